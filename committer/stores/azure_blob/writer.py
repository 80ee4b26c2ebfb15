"""A blob while it is written: sent as blocks, and nowhere to be seen until it is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from committer.errors import StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError, TaskError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.block_ends import finish_block_list
from committer.stores.helpers import bytes_of
from committer.stores.http import Body
from committer.stores.uploads import BLOCK_LISTS

BLOCK_BYTES: Final = 8 << 20
"""What is kept before it is sent; a shorter file is one put."""

PutFile: TypeAlias = Callable[[StorePath, bytes, str], Awaitable[FileStatus]]


class BlobWriter(FileWriter):
    """Sends block after block and makes a file of them, if nothing stands there by then; or puts it whole.

    A refused `write` or `close` leaves the writer as it was, so that it can be called again. A block whose answer was
    lost counts as refused: it is sent again under another id, and the first is not named in the list, so that no late
    request can exchange anything. What is given up is dropped by the service after a week.

    Args:
        store: The store, which has block lists.
        path: The file.
        put_file: Puts a file whole where nothing stands.
    """

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        self._store = store
        self._blocks = BLOCK_LISTS.required(store, "open_writer", path)
        self._path = path
        self._put_file = put_file
        self._token = current_runtime().nonce(16)
        self._stamp = f"writer-{self._token}"
        self._buffer = bytearray()
        self._ids: list[str] = []
        self._next = 1
        self._size = 0
        self._open = True
        self._broken = False

    async def write(self, data: Body) -> None:
        """Keeps it, or sends it with what was kept."""
        self._check_usable("write")
        view = bytes_of(data)
        if len(self._buffer) + len(view) < self._block_bytes:
            self._buffer += view
            return
        body = bytes(self._buffer + view)
        before = len(self._ids), self._size
        # Whatever ends this early, but for a clear refusal, leaves open what is there.
        self._broken = True
        start = 0
        try:
            while len(body) - start >= self._block_bytes:
                end = start + self._block_bytes
                await self._send(body[start:end])
                start = end
        except (StoreThrottledError, StoreUnavailableError):
            self._go_back(before)
            raise
        self._buffer = bytearray(memoryview(body)[start:])
        self._broken = False

    async def close(self) -> FileStatus:
        """Sends what was kept, and makes the file visible.

        Raises:
            StoreExistsError: Something stands there by now.
        """
        self._check_usable("close")
        self._broken = True
        before = len(self._ids), self._size
        try:
            status = await self._finished()
        except (StoreThrottledError, StoreUnavailableError):
            self._go_back(before)
            raise
        self._open = False
        self._buffer = bytearray()
        return status

    async def abort(self) -> None:
        """Gives up what was sent; a file that is closed stays. No call."""
        self._open = False
        self._buffer = bytearray()

    @property
    def _block_bytes(self) -> int:
        return BLOCK_BYTES << (self._next // 5000)

    def _go_back(self, before: tuple[int, int]) -> None:
        del self._ids[before[0] :]
        self._size = before[1]
        self._broken = False

    async def _finished(self) -> FileStatus:
        if not self._ids:
            return await self._put_file(self._path, bytes(self._buffer), self._stamp)
        if self._buffer:
            await self._send(bytes(self._buffer))
        identity = await finish_block_list(
            self._store, self._path, self._ids, stamp=self._stamp, size=self._size, exclusive=True
        )
        return FileStatus(self._path, False, self._size, None, identity, stamp=self._stamp)

    async def _send(self, data: bytes) -> None:
        block_id, self._next = f"{self._token}-{self._next:05d}", self._next + 1
        try:
            await self._blocks.put_block(self._path, block_id, data)
        except StoreOutcomeUnknownError as error:
            raise StoreUnavailableError(error.message, operation="write", path=self._path) from None
        self._ids.append(block_id)
        self._size += len(data)

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            what = "it was closed or aborted" if not self._open else "an earlier write failed"
            raise TaskError(
                f"a file cannot be written any more: {what}",
                operation=operation,
                path=self._path,
                next_step="open another file, under another name",
            )
