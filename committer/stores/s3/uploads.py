"""Multipart uploads of S3, and the writer that sends parts."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from committer.advice import LOOK_BEFORE, UNREADABLE
from committer.errors import StoreOutcomeUnknownError, StorePartsError, StoreUnavailableError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Capabilities, Store
from committer.stores.http import Answer, Body
from committer.stores.http_answers import PageTokens, parsed
from committer.stores.object_store import directory_prefix
from committer.stores.s3.errors import error_of
from committer.stores.s3.listing import STAMP_HEADER, etag_in
from committer.stores.s3.options import S3Options
from committer.stores.s3.wire import S3Wire
from committer.stores.s3.xml import checksum, checksum_in, completion, element_in, header_of, key_in, moment_in
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.upload_ends import finish_upload
from committer.stores.uploads import UPLOADS, PendingUpload, UploadPart, check_part, check_stamp

_LONG_BODY_BYTES: Final = 256 << 10
_ERROR: Final = re.compile(rb"<Error[\s>]")
_XML: Final = {"content-type": "application/xml"}


class Objects:
    """Headers of requests that make objects; `exclusive` is the one of a request that must replace nothing."""

    def __init__(self, options: S3Options) -> None:
        self.algorithm: str | None = options.checksum_algorithm
        # Alibaba Cloud's page "PutObject"; OSS answers 501 to If-None-Match.
        of_oss = options.service == "oss"
        self.exclusive: Mapping[str, str] = {"x-oss-forbid-overwrite": "true"} if of_oss else {"if-none-match": "*"}
        self._encryption: dict[str, str] = {}
        if options.server_side_encryption is not None:
            self._encryption["x-amz-server-side-encryption"] = options.server_side_encryption
        if options.kms_key_id is not None:
            self._encryption["x-amz-server-side-encryption-aws-kms-key-id"] = options.kms_key_id
        # Only for files that tasks write: records are read again at once, which archive classes do not allow.
        self._class: dict[str, str] = {}
        if options.storage_class is not None:
            self._class["x-amz-storage-class"] = options.storage_class

    def begun(self, stamp: str) -> dict[str, str]:
        """Returns the headers of "CreateMultipartUpload", the only call of an upload that takes these."""
        headers = {**self._encryption, **self._class, STAMP_HEADER: stamp, "content-type": "application/octet-stream"}
        if self.algorithm is not None:
            headers["x-amz-checksum-algorithm"] = self.algorithm
        return headers

    async def headers_with(self, data: Body, *, stamp: str | None = None, stored: bool = True) -> dict[str, str]:
        """Returns the headers of "PutObject"; `stored` for files that tasks write, False for records."""
        headers = {"content-type": "application/octet-stream", **self._encryption, **await self.proof(data)}
        if stored:
            headers |= self._class
        if stamp is not None:
            headers[STAMP_HEADER] = stamp
        return headers

    async def proof(self, data: Body) -> dict[str, str]:
        """Returns the checksum header of a body, if an algorithm is set."""
        algorithm = self.algorithm
        if algorithm is None:
            return {}
        if len(data) < _LONG_BODY_BYTES:
            return {header_of(algorithm): checksum(algorithm, data)}
        return {header_of(algorithm): await current_runtime().run_blocking(lambda: checksum(algorithm, data))}


class UploadCalls:
    """Calls of `SupportsUploads`."""

    def __init__(self, wire: S3Wire, objects: Objects) -> None:
        self._wire = wire
        self._objects = objects

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Capabilities of the store."""

    @abstractmethod
    def _checked(self, path: StorePath) -> StorePath: ...

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """Begins an upload with the options' storage class, encryption and checksum."""
        operation = "create_upload"
        check_stamp(stamp, operation, path)
        headers = self._objects.begun(stamp)
        answer = await self._wire.done(operation, "POST", self._checked(path), (("uploads", ""),), headers)
        upload_id = element_in(answer.body, "UploadId")
        if not upload_id:
            raise StoreOutcomeUnknownError(
                "the upload was begun, and the answer with its id was lost",
                operation=operation,
                path=path,
                next_step="run the task again, with another attempt number; the end of the job aborts the "
                "upload, or its report names it (uploads_left)",
            )
        return upload_id

    async def put_part(self, path: StorePath, upload_id: str, number: int, data: Body) -> UploadPart:
        """Sends a part; the service refuses a damaged one."""
        operation, can = "put_part", self.capabilities
        view = memoryview(data).cast("B") if isinstance(data, memoryview) else data
        check_part(number, len(view), can.max_parts, can.max_part_bytes, operation, path)
        proof = await self._objects.proof(view)
        query = (("partNumber", str(number)), ("uploadId", upload_id))
        answer = await self._wire.done(operation, "PUT", self._checked(path), query, proof, data=view, upload=True)
        etag = etag_in(answer.headers)
        if etag is None:
            raise StoreUnavailableError("an answer has no etag", operation=operation, path=path)
        return UploadPart(number, etag, len(view), next(iter(proof.values()), None), self._objects.algorithm)

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """Completes an upload. A response of 200 is read to its end: it may hold an error, or be cut off."""
        operation = "complete_upload"
        # Checked here: S3 refuses such parts, but other services accept a part twice.
        numbers = [part.number for part in parts]
        if not parts or any(number >= after for number, after in pairwise(numbers)):
            raise StorePartsError("no parts are named, or not by rising numbers", operation=operation, path=path)
        headers = {**_XML, **self._objects.exclusive} if exclusive else _XML
        query = (("uploadId", upload_id),)
        body = completion(parts)
        answer = await self._wire.send(operation, "POST", self._checked(path), query, headers, data=body)
        if answer.status >= 300 or _ERROR.search(answer.body):
            raise error_of(_judged(answer), operation, path, exclusive=exclusive, upload=True)
        if b"</CompleteMultipartUploadResult>" not in answer.body:
            raise StoreOutcomeUnknownError(
                "the request was taken, and the end of its answer was lost",
                operation=operation,
                path=path,
                next_step=LOOK_BEFORE,
            )
        return element_in(answer.body, "ETag").strip('"') or None

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """Aborts an upload; for a missing upload some services report success."""
        operation = "abort_upload"
        answer = await self._wire.send(operation, "DELETE", self._checked(path), (("uploadId", upload_id),))
        if answer.status == 404:
            error = error_of(answer, operation, path, upload=True)
            if element_in(answer.body, "Code") == "NoSuchBucket":
                raise error
            return False
        if answer.status >= 300:
            raise error_of(answer, operation, path, upload=True)
        return True

    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """Lists the uploads whose keys begin with the directory's name and a slash, 1,000 a page."""
        operation = "list_uploads"
        prefix = directory_prefix(self._checked(directory))
        key_marker = id_marker = ""
        tokens = PageTokens(operation, directory)
        # Only for keys that XML cannot hold: SeaweedFS claims to encode keys, and does not.
        encodes = False
        while True:
            query = [("encoding-type", "url")] if encodes else []
            if key_marker:
                query.append(("key-marker", key_marker))
            query.append(("prefix", prefix))
            if id_marker:
                query.append(("upload-id-marker", id_marker))
            query.append(("uploads", ""))
            answer = await self._wire.done(operation, "GET", directory, query, changes=False, key="")
            try:
                page = parsed(answer.body, "ListMultipartUploadsResult", operation, directory)
            except StoreUnavailableError:
                if encodes:
                    raise
                encodes = True
                continue
            encoding = page.text("EncodingType")
            for entry in page.each("Upload"):
                key = key_in(entry.text("Key"), encoding)
                initiated = moment_in(entry.text("Initiated"))
                if initiated is None:
                    # Refused, so that no caller takes the upload for an old one.
                    raise StoreUnavailableError(
                        "a page says not when an upload was begun", operation=operation, path=directory
                    )
                if key.startswith(prefix):
                    initiator = entry.child("Initiator")
                    yield PendingUpload(
                        StorePath(directory.scheme, directory.authority, f"/{key}"),
                        entry.text("UploadId"),
                        initiated,
                        (initiator.text("ID") or initiator.text("DisplayName") or None) if initiator else None,
                    )
            if page.text("IsTruncated") != "true":
                return
            key_marker, id_marker = key_in(page.text("NextKeyMarker"), encoding), page.text("NextUploadIdMarker")
            tokens.following((key_marker, id_marker) if key_marker else ())

    async def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """Lists the parts of an upload, 1,000 a page."""
        operation = "list_parts"
        marker, tokens = "", PageTokens(operation, path)
        while True:
            query = [("part-number-marker", marker)] if marker else []
            query.append(("uploadId", upload_id))
            answer = await self._wire.done(operation, "GET", self._checked(path), query, changes=False, upload=True)
            page = parsed(answer.body, "ListParts", operation, path)
            try:
                parts = [_part(entry.texts()) for entry in page.each("Part")]
            except ValueError:
                raise StoreUnavailableError(
                    "an answer cannot be read", operation=operation, path=path, next_step=UNREADABLE
                ) from None
            for part in parts:
                yield part
            if page.text("IsTruncated") != "true":
                return
            marker = tokens.following(page.text("NextPartNumberMarker"))


def _part(told: Mapping[str, str]) -> UploadPart:
    algorithm, proof = checksum_in(told)
    return UploadPart(
        int(told.get("PartNumber", "")), told.get("ETag", "").strip('"'), int(told.get("Size", "0")), proof, algorithm
    )


# Statuses for the errors in responses that began with 200.
_STATUSES: Final = {"InternalError": 500, "ServiceUnavailable": 503, "NoSuchUpload": 404, "PreconditionFailed": 412,
                    "ConditionalRequestConflict": 409, "OperationAborted": 409, "AccessDenied": 403}  # fmt: skip


def _judged(answer: Answer) -> Answer:
    if answer.status >= 300:
        return answer
    # An unknown code counts as 500, outcome unknown: the service had begun.
    status = _STATUSES.get(element_in(answer.body, "Code"), 500)
    return Answer(status, answer.headers, answer.body)


class S3Writer(PartsWriter[UploadPart]):
    """Writer that sends the parts of an upload and completes it."""

    # S3 takes 10,000 parts.
    parts_of_one_length = 1000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        super().__init__(path, f"writer-{current_runtime().nonce(8)}", put_file)
        self._store = store
        self._uploads = UPLOADS.required(store, "open_writer", path)
        self._upload_id = ""

    async def _abandon(self) -> None:
        if self._upload_id:
            await self._uploads.abort_upload(self._path, self._upload_id)

    def _has_begun(self) -> bool:
        return bool(self._upload_id)

    async def _begin(self) -> None:
        if not self._upload_id:
            self._upload_id = await self._uploads.create_upload(self._path, stamp=self._stamp)

    async def _send(self, number: int, data: bytes) -> UploadPart:
        return await self._uploads.put_part(self._path, self._upload_id, number, data)

    async def _made_of_parts(self) -> str | None:
        return await finish_upload(
            self._store, self._path, self._upload_id, self._parts, stamp=self._stamp, size=self._size, exclusive=True
        )
