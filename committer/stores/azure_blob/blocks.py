"""Block calls of Azure's blobs, and the writer that uses them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from committer.errors import ConfigurationError, StoreNotFoundError, StorePreconditionError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.azure.wire import AzureStore
from committer.stores.azure_blob.wire import STAMP_HEADER, BlobWire
from committer.stores.base import Store
from committer.stores.helpers import bytes_of
from committer.stores.http import Body
from committer.stores.http_answers import parsed
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.upload_ends import finish_block_list
from committer.stores.uploads import BLOCK_LISTS, UncommittedBlock, check_length, check_stamp

MAX_BLOCKS: Final = 50_000
MAX_BLOCK_BYTES: Final = 4000 << 20
_MAX_ID_BYTES: Final = 64


class BlockCalls(AzureStore):
    """Implementation of `SupportsBlockLists`."""

    _wire: BlobWire

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """See `SupportsBlockLists.put_block`."""
        self._new(path)
        body: Body = bytes_of(data)
        if not (0 < len(block_id) <= _MAX_ID_BYTES and block_id.isascii()):
            raise ConfigurationError(f"no block can have the id {block_id!r}", operation="put_block", path=path)
        if not len(body):
            raise ConfigurationError("a block cannot be empty", operation="put_block", path=path)
        check_length(len(body), MAX_BLOCK_BYTES, "put_block", path)
        query = (("blockid", _encoded(block_id)), ("comp", "block"))
        await self._wire.done("put_block", "PUT", path, query, data=body)

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """See `SupportsBlockLists.put_block_list`."""
        self._new(path)
        check_stamp(stamp, "put_block_list", path)
        if exclusive and identity is not None:
            raise ConfigurationError("two conditions that exclude each other", operation="put_block_list", path=path)
        headers = {
            "Content-Type": "application/xml",
            STAMP_HEADER: stamp,
            "x-ms-blob-content-type": "application/octet-stream",
        }
        if exclusive:
            headers["If-None-Match"] = "*"
        if identity is not None:
            headers["If-Match"] = f'"{identity}"'
        try:
            answer = await self._wire.done(
                "put_block_list",
                "PUT",
                path,
                (("comp", "blocklist"),),
                headers,
                data=_list_of(block_ids),
                exclusive=exclusive,
            )
        except StoreNotFoundError as error:
            # For a condition on a missing blob the service may answer 404 or 412.
            raise StorePreconditionError(error.message, operation="put_block_list", path=path) from error
        return answer.headers.get("ETag", "").strip('"') or None

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """See `SupportsBlockLists.list_uncommitted_blocks`."""
        operation = "list_uncommitted_blocks"
        query = (("blocklisttype", "uncommitted"), ("comp", "blocklist"))
        try:
            answer = await self._wire.done(operation, "GET", self._existing(path, operation), query, changes=False)
        except StoreNotFoundError:
            return []
        waiting = parsed(answer.body, "BlockList", operation, path).find("UncommittedBlocks")
        blocks = waiting.iterfind("Block") if waiting is not None else ()
        return [UncommittedBlock(_decoded(one.findtext("Name", "")), int(one.findtext("Size") or 0)) for one in blocks]


def _list_of(block_ids: Sequence[str]) -> bytes:
    # Not `Latest`: a second, delayed list could find the blocks of the file that the first one made.
    blocks = "".join([f"<Uncommitted>{_encoded(block_id)}</Uncommitted>" for block_id in block_ids])
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()


def _encoded(block_id: str) -> str:
    return base64.b64encode(block_id.encode()).decode()


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        # The id of another program.
        return text


class BlobWriter(PartsWriter[str]):
    """Writer that sends blocks and then their list; the service drops abandoned blocks after a week."""

    # A list takes 50,000 blocks.
    parts_of_one_length = 5000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        self._token = current_runtime().nonce(16)
        super().__init__(path, f"writer-{self._token}", put_file)
        self._store = store
        self._blocks = BLOCK_LISTS.required(store, "open_writer", path)

    def _has_begun(self) -> bool:
        return bool(self._parts)

    async def _send(self, number: int, data: bytes) -> str:
        block_id = f"{self._token}-{number:05d}"
        await self._blocks.put_block(self._path, block_id, data)
        return block_id

    async def _made_of_parts(self) -> str | None:
        return await finish_block_list(
            self._store, self._path, self._parts, stamp=self._stamp, size=self._size, exclusive=True
        )
