"""A blob while it is written: sent as blocks, and nowhere to be seen until it is closed."""

from __future__ import annotations

from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.block_ends import finish_block_list
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.uploads import BLOCK_LISTS


class BlobWriter(PartsWriter[str]):
    """Sends blocks, and puts the list of them. What is given up is dropped by the service after a week.

    Args:
        store: The store, which has block lists.
        path: The file.
        put_file: Puts a file whole where nothing stands.
    """

    # A list takes 50,000 blocks.
    parts_of_one_length = 5000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        self._token = current_runtime().nonce(16)
        super().__init__(path, f"writer-{self._token}", put_file)
        self._store = store
        self._blocks = BLOCK_LISTS.required(store, "open_writer", path)

    async def abort(self) -> None:
        """Gives up what was sent; a file that is closed stays. No call."""
        self._open = False
        self._buffer = bytearray()

    def _has_begun(self) -> bool:
        return bool(self._parts)

    async def _begin(self) -> None:
        """Nothing: blocks belong to their name."""

    async def _send(self, number: int, data: bytes) -> str:
        block_id = f"{self._token}-{number:05d}"
        await self._blocks.put_block(self._path, block_id, data)
        return block_id

    async def _made_of_parts(self) -> str | None:
        return await finish_block_list(
            self._store, self._path, self._parts, stamp=self._stamp, size=self._size, exclusive=True
        )
