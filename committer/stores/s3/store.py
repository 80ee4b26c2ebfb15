"""Store for Amazon S3 and services with its protocol: `s3:`, `s3a:` and `oss:` paths."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Final

import aiohttp
import msgspec

from committer.advice import LOOK_BEFORE
from committer.errors import (
    ConfigurationError,
    StoreConflictError,
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.options.storage import OptionTable
from committer.paths import StorePath
from committer.stores.abilities import has_conditions
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.examination import Finding
from committer.stores.helpers import finish_upload
from committer.stores.http import MAX_NAME_BYTES, Body, HttpStore
from committer.stores.http_answers import PageTokens, content_in, parsed, range_up_to, texts_in, unreadable
from committer.stores.object_store import ObjectStore, Page, directory_prefix, odd_status
from committer.stores.s3.deletes import BATCH, Deletes
from committer.stores.s3.errors import error_of, refusal_in
from committer.stores.s3.examine import Trials, probe
from committer.stores.s3.options import TABLE, S3Options, checked_bucket
from committer.stores.s3.wire import STAMP_HEADER, S3Wire, etag_in, object_at, page_in
from committer.stores.s3.xml import checksum, completion, element_in, header_of, key_in, moment_in, part_in
from committer.stores.sending_writer import PartsWriter, PutFile
from committer.stores.uploads import UPLOADS, PendingUpload, UploadPart, check_part, check_stamp

_LONG_BODY_BYTES: Final = 256 << 10


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


class S3Writer(PartsWriter[UploadPart]):
    """Writer that sends the parts of an upload and completes it."""

    # S3 takes 10,000 parts.
    parts_of_one_length = 1000

    def __init__(self, store: Store, path: StorePath, put_file: PutFile) -> None:
        super().__init__(store, path, f"writer-{current_runtime().nonce(8)}", put_file)
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


_TRIES: Final = 5
_XML: Final = {"content-type": "application/xml"}

# "Amazon S3 multipart upload limits", "DeleteObjects", and the guideline of 3,500 changes a second for each prefix.
_CAPABILITIES: Final = Capabilities(
    directories=False,
    atomic_file_rename=False,
    no_replace_rename=False,
    replacing_rename=False,
    atomic_directory_rename=False,
    identity_through_rename=False,
    conditional_delete=True,
    conditional_replace=True,
    multipart=True,
    batch_delete=True,
    examination=True,
    # A key lacks the path's leading slash.
    max_path_bytes=1 + MAX_NAME_BYTES,
    max_parts=10_000,
    min_part_bytes=5 << 20,
    max_part_bytes=5 << 30,
    max_batch_delete=BATCH,
    default_io_rate=3500,
)
# Services that a user can declare (`S3Options.service`); their deletes ignore conditions.
_SERVICES: Final = {
    None: _CAPABILITIES,
    "minio": msgspec.structs.replace(_CAPABILITIES, conditional_delete=False, deletes_by_name=True),
    "oss": msgspec.structs.replace(
        _CAPABILITIES, conditional_delete=False, conditional_replace=False, deletes_by_name=True
    ),
}


class S3Store(HttpStore, ObjectStore):
    """Store for one bucket, over S3's REST interface; completed uploads make files visible, nothing is renamed.

    - A file's identity is its etag, which depends on its content alone: it proves the bytes. Its stamp, which
      names its writer, is metadata (``committer-attempt``) that an upload is created with.
    - There are no directories. A name is one if keys lie below it, or if another tool left a marker, an empty
      object whose key ends in a slash; markers are never listed, and are deleted with the objects below them.
    - Deleting a file reads its status first, one call more: the service answers alike for a file and for nothing.
    - Deleting on a condition reads the status first, too: a service that ignores the condition would delete any
      file. `probe` finds out, and `capabilities` then says so.
    - Deleting many files on conditions reads no status, and is allowed only after `probe` has seen this service
      spare, of many, a file that does not meet its condition.
    - The signature covers the body, so the service keeps nothing that was damaged on its way.

    Args:
        scheme: ``s3``, ``s3a``, or ``oss`` for Alibaba Cloud OSS.
        authority: The bucket.
        options: The storage options.
        http_session: An aiohttp session to use instead of an own one.
    """

    def __init__(
        self,
        scheme: str,
        authority: str,
        options: S3Options | None = None,
        *,
        http_session: aiohttp.ClientSession | None = None,
    ) -> None:
        bucket = checked_bucket(scheme, authority)
        self._options = (options or S3Options()).of_scheme(scheme).checked()
        endpoint, access = self._options.endpoint(), self._options.access()
        super().__init__(scheme, bucket, f"{endpoint or 'https://s3.amazonaws.com'}/{bucket}", access, http_session)
        self._capabilities = _SERVICES[self._options.service]
        self._wire = S3Wire(bucket, endpoint, self._options.style(), access, self._http)
        self._objects = Objects(self._options)
        self._deletes = Deletes(self._wire)

    _schemes = ("s3", "s3a", "oss")
    storage_options: ClassVar[OptionTable] = TABLE

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> S3Store:
        """Makes the store for `path` from storage options: `S3Options`, under any name of `storage_options`."""
        given = dict(options)
        http_session = TABLE.take(given, "http_session")
        return cls(path.scheme, path.authority, S3Options.of(given, path.authority), http_session=http_session)

    def __reduce__(self) -> tuple[object, ...]:
        return S3Store, (self._scheme, self._authority, self._options)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of S3; `probe` may find fewer, and whether files can be deleted on conditions in one call."""
        if self._capabilities.conditional_batch_delete and self._deletes.ignores_conditions:
            # Another store of this process saw it.
            self._capabilities = msgspec.structs.replace(self._capabilities, conditional_batch_delete=False)
        return self._capabilities

    async def probe(self, directory: StorePath) -> None:
        """Tries every condition that a commit needs, in `directory`; 12 calls in 11 round trips.

        Raises:
            UnsupportedError: The service keeps no stamps, or ignores a condition of a put or a completion.
        """
        found = await probe(self, self._wire, self._checked(directory))
        # One name may have servers of several versions: a condition that one of them ignored is not used again.
        spares = self._capabilities.conditional_delete and found.spares_one
        self._capabilities = msgspec.structs.replace(
            self._capabilities, conditional_delete=spares, conditional_batch_delete=spares and found.spares_of_many
        )

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> Sequence[Finding]:
        """See `SupportsExamination.findings`; some 100 calls, none without `scratch`."""
        return [] if scratch is None else await Trials(self, self._wire, self._checked(scratch)).run()

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        headers = {"range": range_up_to(limit)}
        answer = await self._wire.send("read", "GET", self._checked(path), (), headers, changes=False, limit=limit)
        return content_in(answer, path, limit, error_of)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`; without the condition if the service refuses the header."""
        headers = await self._objects.headers_with(data, stored=False)
        met = {**headers, "if-match": f'"{seen.identity}"'}
        try:
            return await self._put("put", self._checked(path), data, met, exclusive=False)
        except StoreNotFoundError as error:
            # "Conditional writes": 404 if no object exists.
            raise StorePreconditionError("no file is there", operation="put", path=path, causes=[error]) from error
        except (ConfigurationError, UnsupportedError):
            return await self._put("put", path, data, headers, exclusive=False)

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file; two calls."""
        return await self._deletes.delete(self._checked(path))

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`; two calls, a third if the file was changed meanwhile."""
        if not self._capabilities.conditional_delete:
            raise UnsupportedError("this service deletes whatever is there", operation="delete_file_if", path=path)
        return await self._deletes.delete_if(self._checked(path), identity)

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """See `SupportsBatchDelete.delete_files`; a name that XML cannot hold gets a call of its own."""
        if has_conditions(files) and not self.capabilities.conditional_batch_delete:
            raise UnsupportedError(
                "this service may delete whatever is there",
                operation="delete_files",
                next_step="probe the store, then ask its capabilities",
            )
        return await self._deletes.delete_many({self._checked(path): etag for path, etag in files.items()})

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
        refused = refusal_in(answer)
        if refused is not None:
            raise error_of(refused, operation, path, exclusive=exclusive, upload=True)
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
            encoding = page.findtext("EncodingType", "")
            for entry in page.iterfind("Upload"):
                key = key_in(entry.findtext("Key", ""), encoding)
                initiated = moment_in(entry.findtext("Initiated", ""))
                if initiated is None:
                    # Refused, so that no caller takes the upload for an old one.
                    raise StoreUnavailableError(
                        "a page says not when an upload was begun", operation=operation, path=directory
                    )
                if key.startswith(prefix):
                    initiator = entry.findtext("Initiator/ID") or entry.findtext("Initiator/DisplayName")
                    yield PendingUpload(
                        StorePath(directory.scheme, directory.authority, f"/{key}"),
                        entry.findtext("UploadId", ""),
                        initiated,
                        initiator or None,
                    )
            if page.findtext("IsTruncated") != "true":
                return
            key_marker = key_in(page.findtext("NextKeyMarker", ""), encoding)
            id_marker = page.findtext("NextUploadIdMarker", "")
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
                parts = [part_in(texts_in(entry)) for entry in page.iterfind("Part")]
            except ValueError:
                raise unreadable(operation, path) from None
            for part in parts:
                yield part
            if page.findtext("IsTruncated") != "true":
                return
            marker = tokens.following(page.findtext("NextPartNumberMarker", ""))

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """See `SupportsUploads.put_described`; names and values must be valid in HTTP headers."""
        headers = await self._objects.headers_with(data, stored=False)
        headers.update((f"x-amz-meta-{name}", text) for name, text in metadata.items())
        return await self._put("put", self._checked(path), data, headers, exclusive=False)

    async def _put_small(self, path: StorePath, data: bytes, *, exclusive: bool) -> FileStatus:
        headers = await self._objects.headers_with(data, stored=False)
        return await self._put("put", path, data, headers, exclusive=exclusive)

    def _writer(self, path: StorePath) -> FileWriter:
        return S3Writer(self, path, self._put_file)

    async def _put_file(self, path: StorePath, data: bytes, stamp: str) -> FileStatus:
        headers = await self._objects.headers_with(data, stamp=stamp)
        return await self._put("close", path, data, headers, exclusive=True, stamp=stamp)

    async def _put(
        self,
        operation: str,
        path: StorePath,
        data: bytes,
        headers: dict[str, str],
        *,
        exclusive: bool,
        stamp: str | None = None,
    ) -> FileStatus:
        if exclusive:
            headers |= self._objects.exclusive
        for tries_left in reversed(range(_TRIES)):
            answer = await self._wire.send(operation, "PUT", path, (), headers, data=data)
            if answer.status < 300:
                return FileStatus(path, False, len(data), None, etag_in(answer.headers), stamp=stamp)
            error = error_of(answer, operation, path, exclusive=exclusive)
            # Another request for the name was in progress, and this one had no effect ("Conditional writes").
            if not (isinstance(error, StoreConflictError) and tries_left):
                raise error
            await current_runtime().sleep(0.05 * (_TRIES - tries_left) * current_runtime().random())
        raise AssertionError("the last try returns or raises")

    async def _page(
        self, operation: str, directory: StorePath, *, delimiter: str, most: int | None, token: str | None
    ) -> Page:
        query = [] if token is None else [("continuation-token", token)]
        if delimiter:
            query.append(("delimiter", delimiter))
        query += [("encoding-type", "url"), ("list-type", "2")]
        if most is not None:
            query.append(("max-keys", str(most)))
        query.append(("prefix", directory_prefix(directory)))
        answer = await self._wire.done(operation, "GET", directory, query, changes=False, key="")
        return page_in(answer.body, operation, directory)

    def _odd(self, directory: StorePath, name: str) -> FileStatus | None:
        elsewhere = f" --endpoint-url {shlex.quote(self._wire.endpoint)}" if self._wire.endpoint else ""
        return odd_status(directory, name, f"aws s3 rm{elsewhere}", "s3")

    async def _object_at(self, operation: str, path: StorePath) -> FileStatus | None:
        return await object_at(self._wire, operation, path)

    async def _delete_objects(self, operation: str, paths: Sequence[StorePath]) -> None:
        failed = await self.delete_files(dict.fromkeys(paths))
        for error in failed.values():
            raise error
