"""Writer of a file on HDFS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from committer.errors import CommitterError, StoreOutcomeUnknownError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.hdfs.connection import DATA_S, Connection
from committer.stores.helpers import bytes_of, unusable_writer

if TYPE_CHECKING:
    from hdfs_native._internal import RawFileWriter

CHUNK_BYTES: Final = 1 << 20
"""Bytes buffered before they go to the client, which sends packets of 64 KiB."""


class HdfsWriter(FileWriter):
    """Writer that appends to a file under its own path, which gets its length when closed."""

    def __init__(self, connection: Connection, store: Store, path: StorePath, inner: RawFileWriter) -> None:
        self._connection = connection
        self._store = store
        self._path = path
        self._inner = inner
        self._buffer = bytearray()
        self._length = 0
        self._open = True
        self._broken = False

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Buffers the data, or sends it with the buffer."""
        self._check_usable("write")
        self._buffer += bytes_of(data)
        if len(self._buffer) >= CHUNK_BYTES:
            await self._send("write")

    async def close(self) -> FileStatus:
        """Sends the rest, closes the file and returns its status as of then."""
        self._check_usable("close")
        if self._buffer:
            await self._send("close")
        self._broken = True
        await self._call("close", self._inner.close)
        found = await self._store.status(self._path)
        if found.size != self._length:
            raise StoreOutcomeUnknownError(
                f"{self._length} bytes were written, and the file that exists there has {found.size}",
                operation="close",
                path=self._path,
                next_step="write the file again, in another task attempt",
            )
        self._open = False
        return found

    async def abort(self) -> None:
        """Deletes an open file and closes its pipeline."""
        if not self._open:
            return
        self._open = False
        self._buffer = bytearray()
        try:
            await self._store.delete_file(self._path)
        finally:
            # A pipeline that is not closed keeps its connections to DataNodes, also after a failed write. The file
            # is deleted first: the close of a file that lacks bytes is retried for 15 s.
            await run_shielded(self._release, bound_s=UNDO_BOUND_S)

    async def _release(self) -> None:
        with suppress(CommitterError):
            await self._call("abort", self._inner.close)

    async def _call(self, operation: str, send: Callable[[], object]) -> None:
        await self._connection.call(lambda _client: send(), operation, self._path, bound_s=DATA_S)

    async def _send(self, operation: str) -> None:
        # After a failure it is unknown how much arrived, so nothing can be appended.
        self._broken = True
        for start in range(0, len(self._buffer), CHUNK_BYTES):
            part = bytes(self._buffer[start : start + CHUNK_BYTES])
            await self._call(operation, partial(self._inner.write, part))
            self._length += len(part)
        self._buffer = bytearray()
        self._broken = False

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            again = "write it again, in another task attempt"
            raise unusable_writer(self._path, operation, failed=self._open, next_step=again)
