"""Insert calls of Google Cloud Storage: a whole object in one multipart request, with its checksum."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
from collections.abc import Callable
from typing import Final

from committer.errors import StoreExistsError, StoreOutcomeUnknownError, StorePreconditionError
from committer.flow.runtime import current_runtime
from committer.logs import current_audit
from committer.paths import StorePath
from committer.stores.base import FileStatus, Store
from committer.stores.gcs.errors import error_of, says_no_bucket
from committer.stores.gcs.resources import FIELDS, STAMP, parsed, status_of
from committer.stores.gcs.wire import GcsWire
from committer.stores.http import Body
from committer.stores.object_store import written_file

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


_BOUNDARY: Final = "lake-committer-{}"
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
        boundary = _boundary_for(data)
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


def _boundary_for(data: Body) -> str:
    while True:
        boundary = _BOUNDARY.format(current_runtime().nonce(16))
        # Drawn after the data was made, so only chance could put it there.
        if len(data) >= LONG_BODY_BYTES or boundary.encode() not in bytes(data):
            return boundary
