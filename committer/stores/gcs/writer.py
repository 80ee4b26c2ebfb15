"""Writers of files on Google Cloud Storage: a whole object in one insert, or a resumable upload."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable
from typing import Final

from committer.errors import (
    CommitterError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreUnavailableError,
    TaskError,
)
from committer.flow.runtime import current_runtime
from committer.logs import current_audit
from committer.paths import StorePath
from committer.stores.base import FileStatus, Store
from committer.stores.gcs.errors import error_of, says_no_bucket
from committer.stores.gcs.wire import FIELDS, STAMP, GcsWire, parsed, status_of
from committer.stores.http import Answer, Body
from committer.stores.object_store import written_file
from committer.stores.sending_writer import SendingWriter

_extend: Callable[[int, bytes], int] | None
try:
    from google_crc32c import extend as _extend
except ImportError:
    _extend = None

# The checksum of a longer body is computed in a thread.
LONG_BODY_BYTES: Final = 1 << 20


class Checksum:
    """Running checksum: CRC32C if google-crc32c is installed, else MD5; names it in resources and ``X-Goog-Hash``."""

    field: Final = "md5Hash" if _extend is None else "crc32c"
    header: Final = "md5" if _extend is None else "crc32c"

    def __init__(self) -> None:
        self._crc = 0
        self._md5 = hashlib.md5(usedforsecurity=False) if _extend is None else None

    @classmethod
    def of(cls, begun: Checksum, data: Body) -> Checksum:
        """Returns the checksum `begun` extended by `data`; `begun` stays unchanged."""
        made = cls()
        made._crc = begun._crc
        made._md5 = None if begun._md5 is None else begun._md5.copy()
        made.update(data)
        return made

    def update(self, data: Body) -> None:
        """Adds bytes."""
        if self._md5 is not None:
            self._md5.update(data)
        elif _extend is not None:
            self._crc = _extend(self._crc, bytes(data))

    def text(self) -> str:
        """Returns the checksum in base64."""
        raw = self._md5.digest() if self._md5 is not None else self._crc.to_bytes(4, "big")
        return base64.b64encode(raw).decode()


_TYPE: Final = "application/octet-stream"


class Inserts:
    """Insert calls, each with its own stamp."""

    def __init__(self, wire: GcsWire, store: Store) -> None:
        self._wire = wire
        self._store = store
        self._prefix = current_runtime().nonce(8)
        self._numbers = itertools.count(1)

    def stamp(self) -> str:
        """Returns a unique stamp: the current task attempt, if any, and a number of this process."""
        attempt = current_audit().get("ta", "")
        # The process id, because a forked process continues its parent's numbers.
        mark = f"{self._prefix}-{os.getpid():x}-{next(self._numbers):x}"
        return f"{attempt[:200]}/{mark}" if attempt else mark

    def resource(self, path: StorePath, stamp: str) -> dict[str, object]:
        """Builds an object's resource, which is sent beside its data."""
        return {"name": path.path[1:], "contentType": _TYPE, "metadata": {STAMP: stamp}}

    async def put(
        self,
        operation: str,
        path: StorePath,
        data: Body,
        *,
        exclusive: bool = False,
        generation: str = "",
        stamp: str | None = None,
    ) -> FileStatus:
        """Makes an object: if none exists (`exclusive`), over that of a `generation`, or over any."""
        stamp = stamp or self.stamp()
        checksum = Checksum()
        if len(data) < LONG_BODY_BYTES:
            checksum.update(data)
        else:
            await current_runtime().run_blocking(lambda: checksum.update(data))
        resource = self.resource(path, stamp) | {checksum.field: checksum.text()}
        # Drawn after the data was made, so only chance could put it there.
        boundary = f"lake-committer-{current_runtime().nonce(16)}"
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
            f"--{boundary}\r\nContent-Type: {_TYPE}\r\n\r\n"
        )
        body = b"".join((head.encode(), data, f"\r\n--{boundary}--\r\n".encode()))
        query = [("uploadType", "multipart"), ("fields", FIELDS)]
        if exclusive:
            query.append(("ifGenerationMatch", "0"))
        elif generation:
            query.append(("ifGenerationMatch", generation))
        headers = {"Content-Type": f"multipart/related; boundary={boundary}"}
        answer = await self._wire.send(operation, "POST", path, self._wire.upload_url, query, headers, data=body)
        if generation and answer.status in (404, 412) and not says_no_bucket(answer):
            raise StorePreconditionError("another file is there, or none", operation=operation, path=path)
        if answer.status == 412:
            raise StoreExistsError("something exists there", operation=operation, path=path)
        if answer.status >= 300:
            raise error_of(answer, operation, path)
        if not answer.body:
            # The end of the response was lost, but the object exists.
            return await self._store.status(path)
        return status_of(parsed(answer.body, operation, path, changes=True), path)

    async def put_new(self, path: StorePath, data: Body, stamp: str) -> FileStatus:
        """Makes a new file as a writer's last call; if the response is lost, looks for the file."""
        try:
            return await self.put("close", path, data, exclusive=True, stamp=stamp)
        except StoreOutcomeUnknownError as lost:
            return await written_file(self._store, path, len(data), stamp, lost)


CHUNK_BYTES: Final = 8 << 20
"""Size of the buffer, a multiple of 256 KiB ("Resumable uploads"); a shorter file is one insert."""

_PERSISTED: Final = re.compile(r"bytes=0-(\d+)")
_CANCELLED: Final = frozenset({404, 410, 499})


class GcsWriter(SendingWriter):
    """Writer that sends a resumable upload, whose end makes the file if none exists; it inserts a short file.

    After a refused call the service reports how much of the chunk has arrived, and the writer sends the rest. The
    upload's URL authorises by itself, so no error shows it.
    """

    def __init__(self, store: Store, wire: GcsWire, inserts: Inserts, path: StorePath) -> None:
        super().__init__(path)
        self._store = store
        self._wire = wire
        self._inserts = inserts
        self._stamp = inserts.stamp()
        self._session = ""
        self._checksum = Checksum()
        self._sent = 0
        self._in_doubt = False

    def _piece_bytes(self, waiting: int) -> int:
        return CHUNK_BYTES

    async def _abandon(self) -> None:
        if self._session:
            answer = await self._wire.resend("abort", "DELETE", self._path, self._session, {})
            if answer.status >= 300 and answer.status not in _CANCELLED:
                raise error_of(answer, "abort", self._path)

    async def _start(self) -> None:
        resource = self._inserts.resource(self._path, self._stamp)
        query = (("uploadType", "resumable"), ("fields", FIELDS), ("ifGenerationMatch", "0"))
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        try:
            answer = await self._wire.send(
                "write", "POST", self._path, self._wire.upload_url, query, headers, data=json.dumps(resource).encode()
            )
        except StoreOutcomeUnknownError as error:
            # An upload whose URL was lost holds nothing, and expires.
            raise StoreUnavailableError(error.message, operation="write", path=self._path) from None
        if answer.status == 412:
            raise StoreExistsError("something exists there", operation="write", path=self._path)
        if answer.status >= 300:
            raise self._refusal(answer, "write")
        self._session = answer.headers.get("Location", "")
        if not self._session:
            raise StoreUnavailableError("the answer names no upload", operation="write", path=self._path)

    async def _send_piece(self, data: bytes) -> None:
        if not self._session:
            await self._start()
        done = await self._done_already() if self._in_doubt else 0
        while done < len(data):
            self._in_doubt = True
            first = self._sent + done
            span = f"bytes {first}-{self._sent + len(data) - 1}/*"
            answer = await self._put("write", data[done:], span)
            if answer.status != 308:
                raise self._refusal(answer, "write")
            before, done = done, self._persisted(answer) - self._sent
            if done <= before:
                raise StoreUnavailableError("the upload takes no more", operation="write", path=self._path)
        self._in_doubt = False
        await current_runtime().run_blocking(lambda: self._checksum.update(data))
        self._sent += len(data)

    async def _finished(self) -> FileStatus:
        if not self._session:
            return await self._inserts.put_new(self._path, bytes(self._buffer), self._stamp)
        data = bytes(self._buffer)
        size = self._sent + len(data)
        try:
            if self._in_doubt:
                answer = await self._put("close", b"", f"bytes */{size}")
                if answer.status != 308:
                    return self._made(answer)
                done = max(0, self._persisted(answer) - self._sent)
            else:
                done = 0
            while True:
                self._in_doubt = True
                rest = data[done:]
                span = f"bytes {self._sent + done}-{size - 1}/{size}" if rest else f"bytes */{size}"
                checksum = Checksum.of(self._checksum, data)
                answer = await self._put("close", rest, span, {"X-Goog-Hash": f"{checksum.header}={checksum.text()}"})
                if answer.status != 308:
                    return self._made(answer)
                before, done = done, self._persisted(answer) - self._sent
                if done <= before:
                    raise StoreUnavailableError("the upload takes no more", operation="close", path=self._path)
        except StoreOutcomeUnknownError as lost:
            return await self._looked_up(size, lost)

    async def _looked_up(self, size: int, lost: StoreOutcomeUnknownError) -> FileStatus:
        """Finds out, from the upload or the file, whether an end whose response was lost was done."""
        try:
            answer = await self._put("close", b"", f"bytes */{size}")
            if answer.status < 300:
                return self._made(answer)
            if answer.status == 308:
                raise StoreUnavailableError(lost.message, operation="close", path=self._path)
        except StoreOutcomeUnknownError:
            pass
        return await written_file(self._store, self._path, size, self._stamp, lost)

    def _made(self, answer: Answer) -> FileStatus:
        if answer.status == 412:
            raise StoreExistsError("something exists there", operation="close", path=self._path)
        if answer.status >= 300:
            raise self._refusal(answer, "close")
        if not answer.body:
            raise StoreOutcomeUnknownError("the end of the answer was lost", operation="close", path=self._path)
        return status_of(parsed(answer.body, "close", self._path, changes=True), self._path)

    async def _done_already(self) -> int:
        answer = await self._put("write", b"", "bytes */*")
        if answer.status != 308:
            raise self._refusal(answer, "write")
        return max(0, self._persisted(answer) - self._sent)

    async def _put(self, operation: str, data: bytes, span: str, more: dict[str, str] | None = None) -> Answer:
        headers = {"Content-Range": span, **(more or {})}
        closing = operation == "close"
        try:
            answer = await self._wire.resend(operation, "PUT", self._path, self._session, headers, data=data or None)
        except StoreOutcomeUnknownError as error:
            if closing:
                raise
            raise StoreUnavailableError(error.message, operation=operation, path=self._path) from None
        if answer.status in (408, 500, 502, 503, 504):
            raise error_of(answer, operation, self._path, changes=closing)
        return answer

    def _refusal(self, answer: Answer, operation: str) -> CommitterError:
        """Maps a refusal of the upload to an error; for an unknown upload the task must run again."""
        if answer.status in _CANCELLED and self._session:
            return TaskError(
                "the upload is known no more", operation=operation, path=self._path, next_step="run the task again"
            )
        return error_of(answer, operation, self._path, changes=False)

    @staticmethod
    def _persisted(answer: Answer) -> int:
        found = _PERSISTED.fullmatch(answer.headers.get("Range", "").strip())
        return int(found[1]) + 1 if found else 0
