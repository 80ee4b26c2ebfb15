"""A file whose bytes go to the store at once, and which appears when its job is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from committer.errors import StoreError, TaskError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.helpers import bytes_of
from committer.stores.upload_ends import end_upload
from committer.stores.uploads import UPLOADS, UploadPart


class UploadWriter(FileWriter):
    """Sends the parts of an upload, several at a time, and never completes it.

    Memory: the part that is filled, those under way, and what the caller hands over: (2 + `in_flight`) parts.

    Args:
        store: The store, which has uploads.
        path: Where the file will stand.
        upload_id: The upload, which no other writer writes to.
        stamp: What it was created with.
        part_bytes: Length of every part but the last.
        in_flight: Parts that are under way at most.
        finished: Told the parts and the length of the file once it is closed.
    """

    def __init__(
        self,
        store: Store,
        path: StorePath,
        upload_id: str,
        *,
        stamp: str,
        part_bytes: int,
        in_flight: int,
        finished: Callable[[Sequence[UploadPart]], None],
    ) -> None:
        self._store = store
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._path = path
        self._upload_id = upload_id
        self._stamp = stamp
        self._part_bytes = part_bytes
        self._in_flight = in_flight
        self._finished = finished
        self._most = store.capabilities.max_parts
        self._buffer = bytearray()
        self._size = 0
        self._begun = 0
        self._parts: dict[int, UploadPart] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._ended = False

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keeps it, and sends every part that is full; waits while as many as allowed are under way.

        Raises:
            TaskError: The file would have more parts than the store takes, or is closed.
        """
        self._check_usable()
        view = memoryview(bytes_of(data))
        while view:
            room = self._part_bytes - len(self._buffer)
            self._buffer += view[:room]
            self._size += len(view[:room])
            view = view[room:]
            if len(self._buffer) == self._part_bytes:
                await self._send()

    async def close(self) -> FileStatus:
        """Sends what is left, waits for every part; of a file without content that is one part without content.

        Whatever fails aborts the upload: no process could finish the file any more.
        """
        try:
            return await self._finish()
        except BaseException:
            with suppress(StoreError):
                await run_shielded(self.abort, bound_s=UNDO_BOUND_S)
            raise

    async def _finish(self) -> FileStatus:
        self._check_usable()
        if self._buffer or not self._begun:
            await self._send()
        while self._sending:
            await self._wait_for_one()
        self._check_usable()
        self._ended = True
        self._finished([self._parts[number] for number in range(1, self._begun + 1)])
        return FileStatus(self._path, False, self._size, stamp=self._stamp)

    async def abort(self) -> None:
        """Stops what is under way and aborts the upload until it is gone; does nothing for a file that is closed."""
        if self._ended:
            return
        await self.stop()
        await end_upload(self._store, self._path, self._upload_id)

    async def stop(self) -> None:
        """Stops what is under way: nothing is sent any more once this returns. The upload stays; no call."""
        self._ended = True
        self._buffer = bytearray()
        for task in self._sending:
            task.cancel()
        while self._sending:
            await self._wait_for_one()

    async def _send(self) -> None:
        if self._most is not None and self._begun == self._most:
            raise TaskError(
                f"the file has more than {self._most} parts of {self._part_bytes} bytes, which is as many as the store "
                "takes",
                operation="write",
                path=self._path,
                next_step="write smaller files, or raise multipart_size (fs.s3a.multipart.size)",
            )
        while len(self._sending) >= self._in_flight:
            await self._wait_for_one()
        self._check_usable()
        self._begun += 1
        data, self._buffer = self._buffer, bytearray()
        task = asyncio.create_task(self._put(self._begun, data))
        self._sending.add(task)

    async def _put(self, number: int, data: bytearray) -> None:
        self._parts[number] = await self._uploads.put_part(self._path, self._upload_id, number, data)

    async def _wait_for_one(self) -> None:
        done, self._sending = await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            self._failure = self._failure or error

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise TaskError(
                "the file is closed, or was given up",
                operation="write",
                path=self._path,
                next_step="open another file, under another name",
            )
