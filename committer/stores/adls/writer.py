"""Writer of a file on Azure Data Lake Storage Gen2: create, append by the chunk, flush."""

from __future__ import annotations

from typing import Final

from committer.errors import CommitterError, StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.paths import StorePath
from committer.stores.adls.wire import AdlsWire, status_in
from committer.stores.azure.errors import error_of
from committer.stores.base import FileStatus
from committer.stores.helpers import bytes_of
from committer.stores.http import Answer, Body
from committer.stores.sending_writer import SendingWriter

CHUNK_BYTES: Final = 8 << 20
"""Size of the buffer; a smaller file takes two calls in all: create, and append with flush."""

_LARGEST_APPEND_BYTES: Final = 64 << 20
_OCTETS: Final = {"Content-Type": "application/octet-stream"}


class AdlsWriter(SendingWriter):
    """Writer that appends to a file, which is empty until closed.

    A refused `write` or `close` leaves the writer as it was, so the call can be repeated with the same
    arguments. An append whose response was lost counts as refused: the same bytes at the same position, before
    a flush, are the same append (Hadoop's ABFS client sends them again, too).
    """

    def __init__(self, wire: AdlsWire, path: StorePath, created: Answer) -> None:
        super().__init__(path)
        self._wire = wire
        self._created = status_in(created.headers, path, size=0)
        self._sent = 0
        # A write that was refused midway: its bytes, and how many of them were sent.
        self._begun: bytearray | None = None
        self._begun_to = 0

    async def write(self, data: Body) -> None:
        """Buffers the data, or sends it with the buffer."""
        self._check_usable("write")
        view = bytes_of(data)
        if len(self._buffer) + len(view) < CHUNK_BYTES:
            self._check_same(None, "write")
            self._buffer += view
            return
        body = self._buffer + view
        self._check_same(body, "write")
        start, self._begun, self._begun_to = self._begun_to, None, 0
        self._broken = True
        while start < len(body):
            with memoryview(body) as whole:
                part = bytes(whole[start : start + _LARGEST_APPEND_BYTES])
            try:
                await self._append(part)
            except (StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError) as error:
                lost = isinstance(error, StoreOutcomeUnknownError)
                if start or lost:
                    self._begun, self._begun_to = body, start
                self._broken = False
                if lost:
                    raise StoreUnavailableError(error.message, operation="write", path=self._path) from None
                raise
            start += len(part)
        self._buffer = bytearray()
        self._broken = False

    async def _abandon(self) -> None:
        answer = await self._wire.send("abort", "DELETE", self._path, (("recursive", "false"),))
        if answer.status >= 300 and answer.status != 404:
            raise error_of(answer, "abort", self._path)

    async def _finished(self) -> FileStatus:
        """Sends the last bytes with a flush, or a flush alone; if the response is lost, checks the file."""
        self._check_same(None, "close")
        length = self._sent + len(self._buffer)
        if not length:
            return self._created
        data = bytes(self._buffer)
        if data:
            query = (("action", "append"), ("flush", "true"), ("position", str(self._sent)))
        else:
            query = (("action", "flush"), ("close", "true"), ("position", str(length)))
        try:
            answer = await self._wire.done("close", "PATCH", self._path, query, _OCTETS, data=data or None)
        except StoreOutcomeUnknownError as error:
            return await self._flushed(length, error)
        if answer.headers.get("ETag"):
            return status_in(answer.headers, self._path, size=length)
        return await self._flushed(length, None)

    async def _flushed(self, length: int, lost: StoreOutcomeUnknownError | None) -> FileStatus:
        """Checks whether the flush was done: only this writer made the file, so its length proves its content."""
        message, found = "the file was flushed, and cannot be looked at", None
        try:
            answer = await self._wire.done("close", "HEAD", self._path, (("action", "getStatus"),), changes=False)
            found = status_in(answer.headers, self._path)
        except CommitterError as error:
            message = error.message
        if found is not None and found.size == length:
            return found
        raise lost or StoreOutcomeUnknownError(message, operation="close", path=self._path)

    async def _append(self, data: bytes) -> None:
        query = (("action", "append"), ("position", str(self._sent)))
        await self._wire.done("write", "PATCH", self._path, query, _OCTETS, data=data)
        self._sent += len(data)

    def _check_same(self, body: bytearray | None, operation: str) -> None:
        """Refuses other bytes after a partial write: they would make a file that is neither."""
        if self._begun not in (None, body):
            self._broken = True
            self._check_usable(operation)
