"""A file on HDFS while it is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from committer.errors import CommitterError, StoreOutcomeUnknownError, TaskError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.hdfs.connection import DATA_S, Connection
from committer.stores.helpers import bytes_of

if TYPE_CHECKING:
    from hdfs_native._internal import RawFileWriter

CHUNK_BYTES: Final = 1 << 20
"""What is kept before it is handed to the client, which sends packets of 64 KiB."""


class HdfsWriter(FileWriter):
    """Appends; the file stands under its path from the beginning, and has its length when it is closed.

    Args:
        connection: What sends calls.
        store: What the file is of.
        path: The file.
        inner: The client's writer.
    """

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
        """Keeps it, or sends it with what was kept."""
        self._check_usable("write")
        self._buffer += bytes_of(data)
        if len(self._buffer) >= CHUNK_BYTES:
            await self._send("write")

    async def close(self) -> FileStatus:
        """Sends what was kept, closes the file, and looks at it: its identity is of what is closed."""
        self._check_usable("close")
        if self._buffer:
            await self._send("close")
        self._broken = True
        await self._call("close", self._inner.close)
        found = await self._store.status(self._path)
        if found.size != self._length:
            raise StoreOutcomeUnknownError(
                f"{self._length} bytes were written, and the file that stands there has {found.size}",
                operation="close",
                path=self._path,
                next_step="write the file again, in another task attempt",
            )
        self._open = False
        return found

    async def abort(self) -> None:
        """Deletes the file and lets go of its pipeline; one that is closed stays."""
        if not self._open:
            return
        self._open = False
        self._buffer = bytearray()
        try:
            await self._store.delete_file(self._path)
        finally:
            # A pipeline that is not closed keeps its connections to DataNodes alive, also where a write to it failed.
            # The file is gone by now: one that stands and lacks bytes is asked to be complete for 15 s.
            await run_shielded(self._release, bound_s=UNDO_BOUND_S)

    async def _release(self) -> None:
        with suppress(CommitterError):
            await self._call("abort", self._inner.close)

    async def _call(self, operation: str, send: Callable[[], object]) -> None:
        await self._connection.call(lambda _client: send(), operation, self._path, bound_s=DATA_S)

    async def _send(self, operation: str) -> None:
        # How much of it arrived is not known when this fails: nothing can be written after it.
        self._broken = True
        for start in range(0, len(self._buffer), CHUNK_BYTES):
            part = bytes(self._buffer[start : start + CHUNK_BYTES])
            await self._call(operation, partial(self._inner.write, part))
            self._length += len(part)
        self._buffer = bytearray()
        self._broken = False

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            what = "it was closed or aborted" if not self._open else "an earlier write failed"
            raise TaskError(
                f"a file cannot be written any more: {what}",
                operation=operation,
                path=self._path,
                next_step="write it again, in another task attempt",
            )
