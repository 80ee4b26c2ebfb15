"""A file on Azure Data Lake Storage Gen2 while it is written: created, appended to by the chunk, flushed."""

from __future__ import annotations

from typing import Final

from committer.errors import (
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StoreThrottledError,
    StoreUnavailableError,
    TaskError,
)
from committer.paths import StorePath
from committer.stores._adls_errors import error_of
from committer.stores._adls_listing import status_in
from committer.stores._adls_wire import AdlsWire
from committer.stores.base import FileStatus, FileWriter
from committer.stores.http import Answer, Body

CHUNK_BYTES: Final = 8 << 20
"""What is kept before it is sent; a smaller file takes two calls in all: create, and append with flush."""

_LARGEST_APPEND_BYTES: Final = 64 << 20


class AdlsWriter(FileWriter):
    """Appends at the end of what it sent before; the file is empty until it is closed.

    A refused `write` or `close` leaves the writer as it was, so that it can be called again with the same arguments. An
    append whose answer was lost counts as refused: the same bytes at the same position, before a flush, are the same
    append (Hadoop's ABFS client sends them again, too).

    Args:
        wire: What sends requests.
        path: The file.
        created: The answer to its creation.
    """

    def __init__(self, wire: AdlsWire, path: StorePath, created: Answer) -> None:
        self._wire = wire
        self._path = path
        self._created = status_in(created.headers, path, size=0)
        self._buffer = bytearray()
        self._sent = 0
        self._open = True
        self._broken = False

    async def write(self, data: Body) -> None:
        """Keeps it, or sends it with what was kept."""
        self._check_usable("write")
        view = memoryview(data).cast("B") if isinstance(data, memoryview) else data
        if len(self._buffer) + len(view) < CHUNK_BYTES:
            self._buffer += view
            return
        body = self._buffer + view
        start = 0
        while start < len(body):
            part = bytes(body[start : start + _LARGEST_APPEND_BYTES])
            try:
                await self._append(part, flush=False)
            except BaseException:
                # Of what is larger than one append a part is there already, so it cannot be written again.
                self._broken = start > 0
                raise
            start += len(part)
        self._buffer = bytearray()

    async def close(self) -> FileStatus:
        """Sends what was kept, and flushes; an empty file is finished since it was created."""
        self._check_usable("close")
        length = self._sent + len(self._buffer)
        status = self._created
        if length:
            status = await self._finished(length)
        self._open = False
        return status

    async def abort(self) -> None:
        """Deletes the file; one that is closed stays."""
        if not self._open:
            return
        answer = await self._wire.send("abort", "DELETE", self._path, (("recursive", "false"),))
        if answer.status >= 300 and answer.status != 404:
            raise error_of(answer, "abort", self._path)
        self._open = False
        self._buffer = bytearray()

    async def _finished(self, length: int) -> FileStatus:
        try:
            if self._buffer:
                answer = await self._append(bytes(self._buffer), flush=True)
                # A retry must not append it once more.
                self._buffer = bytearray()
            else:
                answer = await self._flush(length)
        except StoreOutcomeUnknownError:
            self._broken = True
            found = await self._look("close")
            if found is None or found.size != length:
                raise
            return found
        if not answer.headers.get("ETag"):
            found = await self._look("close")
            if found is None:
                raise StoreNotFoundError(
                    "the file was deleted while it was written", operation="close", path=self._path
                )
            return found
        return status_in(answer.headers, self._path, size=length)

    async def _append(self, data: bytes, *, flush: bool) -> Answer:
        position = str(self._sent)
        query = (
            (("action", "append"), ("flush", "true"), ("position", position))
            if flush
            else (("action", "append"), ("position", position))
        )
        operation = "close" if flush else "write"
        try:
            answer = await self._wire.send(operation, "PATCH", self._path, query, _OCTETS, data=data)
            if answer.status >= 300:
                raise error_of(answer, operation, self._path)
        except StoreOutcomeUnknownError as error:
            if flush:
                raise
            raise StoreUnavailableError(error.message, operation=operation, path=self._path) from None
        self._sent += len(data)
        return answer

    async def _flush(self, length: int) -> Answer:
        query = (("action", "flush"), ("close", "true"), ("position", str(length)))
        answer = await self._wire.send("close", "PATCH", self._path, query)
        if answer.status >= 300:
            raise error_of(answer, "close", self._path)
        return answer

    async def _look(self, operation: str) -> FileStatus | None:
        try:
            answer = await self._wire.send(operation, "HEAD", self._path, (("action", "getStatus"),), changes=False)
        except (StoreUnavailableError, StoreThrottledError):
            return None
        except StoreError:
            return None
        return status_in(answer.headers, self._path) if answer.status < 300 else None

    def _check_usable(self, operation: str) -> None:
        if not self._open or self._broken:
            what = "it was closed or aborted" if not self._open else "an earlier write failed"
            raise TaskError(f"a file cannot be written any more: {what}", operation=operation, path=self._path)


_OCTETS: Final = {"Content-Type": "application/octet-stream"}
