"""The uncommitted blocks of a memory space: plain and synchronous, each call one indivisible step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from committer.errors import ConfigurationError, StorePartsError, StorePreconditionError
from committer.paths import StorePath
from committer.stores.memory.tree import Tree
from committer.stores.uploads import UncommittedBlock, check_length, check_stamp

_WEEK_S: Final = 7 * 24 * 3600.0
_MAX_ID_BYTES: Final = 64
_MAX_UNCOMMITTED: Final = 100_000


class _Waiting(msgspec.Struct):
    blocks: dict[str, bytes]
    last_put: float


class Blocks:
    """Uncommitted blocks by the name they were put to, with the rules of Azure's block blobs.

    A delete of the file leaves them: what the service does then is not documented, and this is the harder case.

    Args:
        tree: Where a list of blocks becomes a file; it drops what waits for a name whenever a file is put there.
        clock: Gives the time, in seconds since the epoch.
    """

    def __init__(self, tree: Tree, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        tree.on_put = self._drop

    def clear(self) -> None:
        """Drops every block."""
        self._waiting.clear()

    def put(self, path: StorePath, block_id: str, data: bytes) -> None:
        """Keeps a block."""
        self._tree.check_free(path, "put_block", replace=True)
        if not (0 < len(block_id) <= _MAX_ID_BYTES and block_id.isascii()):
            raise ConfigurationError(f"no block can have the id {block_id!r}", operation="put_block", path=path)
        if not data:
            raise ConfigurationError("a block cannot be empty", operation="put_block", path=path)
        check_length(len(data), self._tree.capabilities.max_part_bytes, "put_block", path)
        blocks = self.uncommitted(path)
        if blocks and len(next(iter(blocks))) != len(block_id):
            raise StorePartsError("blocks with ids of another length wait there", operation="put_block", path=path)
        if len(blocks) >= _MAX_UNCOMMITTED and block_id not in blocks:
            raise StorePartsError("too many blocks wait there", operation="put_block", path=path)
        blocks[block_id] = data
        self._waiting[path.path] = _Waiting(blocks, self._clock())

    def commit(
        self, path: StorePath, block_ids: Sequence[str], *, stamp: str, exclusive: bool, identity: str | None
    ) -> str | None:
        """Makes blocks a file."""
        check_stamp(stamp, "put_block_list", path)
        if exclusive and identity is not None:
            raise ConfigurationError("two conditions that exclude each other", operation="put_block_list", path=path)
        standing = self._tree.find(path, "put_block_list")
        if identity is not None and (standing is None or standing.identity != identity):
            raise StorePreconditionError("another file, or none, is there", operation="put_block_list", path=path)
        most = self._tree.capabilities.max_parts
        if most is not None and len(block_ids) > most:
            raise StorePartsError(f"more than {most} blocks", operation="put_block_list", path=path)
        blocks = self.uncommitted(path)
        missing = next((block_id for block_id in block_ids if block_id not in blocks), None)
        if missing is not None:
            raise StorePartsError(f"no block {missing!r} waits there", operation="put_block_list", path=path)
        file = self._tree.new_file(b"".join(blocks[block_id] for block_id in block_ids), stamp=stamp)
        self._tree.put(path, file, "put_block_list", replace=not exclusive)
        return file.identity

    def uncommitted(self, path: StorePath) -> dict[str, bytes]:
        """The blocks that wait under a name."""
        waiting = self._waiting.get(path.path)
        if waiting is not None and self._clock() - waiting.last_put >= _WEEK_S:
            del self._waiting[path.path]
            waiting = None
        return waiting.blocks if waiting is not None else {}

    def listed(self, path: StorePath) -> list[UncommittedBlock]:
        """The blocks that wait under a name, as a store tells them."""
        return [UncommittedBlock(block_id, len(data)) for block_id, data in self.uncommitted(path).items()]

    def _drop(self, path: StorePath) -> None:
        self._waiting.pop(path.path, None)
