"""A file on S3 while it is written: sent by the part, and nowhere to be seen until it is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from committer.errors import (
    StoreOutcomeUnknownError,
    StoreThrottledError,
    StoreUnavailableError,
    TaskError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter, Store
from committer.stores.helpers import bytes_of
from committer.stores.http import Body
from committer.stores.upload_ends import finish_upload
from committer.stores.uploads import UPLOADS, UploadPart

PART_BYTES: Final = 8 << 20
"""What is kept before it is sent; a shorter file is one put. It doubles with every thousand parts: S3 takes 10,000."""

PutFile: TypeAlias = Callable[[StorePath, bytes, str], Awaitable[FileStatus]]


class S3Writer(FileWriter):
    """Sends part after part of an upload and completes it, if nothing stands there by then; or puts it whole.

    A refused `write` or `close` leaves the writer as it was, so that it can be called again. A part whose answer was
    lost counts as refused: it is sent again under another number, and the first is not named at completion, so that no
    late request can exchange anything.

    Args:
        store: The store, which has uploads.
        path: The file.
        put_file: Puts a file whole where nothing stands.
    """

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        self._store = store
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._path = path
        self._put_file = put_file
        self._stamp = f"writer-{current_runtime().nonce(8)}"
        self._buffer = bytearray()
        self._upload_id = ""
        self._parts: list[UploadPart] = []
        self._next = 1
        self._open = True
        self._broken = False

    async def write(self, data: Body) -> None:
        """Keeps it, or sends it with what was kept."""
        self._check_usable("write")
        view = bytes_of(data)
        if len(self._buffer) + len(view) < self._part_bytes:
            self._buffer += view
            return
        body = bytes(self._buffer + view)
        before = len(self._parts)
        # Whatever ends this early, but for a clear refusal, leaves open what is there.
        self._broken = True
        start = 0
        try:
            while len(body) - start >= self._part_bytes:
                end = start + self._part_bytes
                await self._send(body[start:end])
                start = end
        except (StoreThrottledError, StoreUnavailableError):
            del self._parts[before:]
            self._broken = False
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
        before = len(self._parts)
        try:
            status = await self._finished()
        except (StoreThrottledError, StoreUnavailableError):
            del self._parts[before:]
            self._broken = False
            raise
        self._open = False
        self._buffer = bytearray()
        return status

    async def abort(self) -> None:
        """Gives up what was sent; a file that is closed stays."""
        if not self._open:
            return
        if self._upload_id:
            await self._uploads.abort_upload(self._path, self._upload_id)
        self._open = False
        self._buffer = bytearray()

    @property
    def _part_bytes(self) -> int:
        return PART_BYTES << (self._next // 1000)

    async def _finished(self) -> FileStatus:
        if not self._upload_id:
            return await self._put_file(self._path, bytes(self._buffer), self._stamp)
        if self._buffer:
            await self._send(bytes(self._buffer))
        size = sum(part.size or 0 for part in self._parts)
        identity = await finish_upload(
            self._store, self._path, self._upload_id, self._parts, stamp=self._stamp, size=size, exclusive=True
        )
        return FileStatus(self._path, False, size, None, identity, stamp=self._stamp)

    async def _send(self, data: bytes) -> None:
        if not self._upload_id:
            self._upload_id = await self._uploads.create_upload(self._path, stamp=self._stamp)
        number, self._next = self._next, self._next + 1
        try:
            self._parts.append(await self._uploads.put_part(self._path, self._upload_id, number, data))
        except StoreOutcomeUnknownError as error:
            raise StoreUnavailableError(error.message, operation="write", path=self._path) from None

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            what = "it was closed or aborted" if not self._open else "an earlier write failed"
            raise TaskError(
                f"a file cannot be written any more: {what}",
                operation=operation,
                path=self._path,
                next_step="open another file, under another name",
            )
