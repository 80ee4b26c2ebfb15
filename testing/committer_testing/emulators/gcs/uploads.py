"""Making objects from what a request carries: plain, with metadata, and in chunks over several requests."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from committer_testing.emulators.gcs import multipart
from committer_testing.emulators.gcs.describe import object_resource
from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.namespace import Draft, Namespace
from committer_testing.emulators.gcs.objects import StoredObject
from committer_testing.emulators.gcs.preconditions import Preconditions
from committer_testing.emulators.gcs.wire import Answer, Request, json_answer, parse_resource

CHUNK: Final = 256 * 1024
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", re.ASCII)


@dataclass(slots=True)
class Upload:
    """A resumable upload.

    Attributes:
        bucket: Where the object is to be.
        name: Its name.
        draft: What the client said of it.
        preconditions: Checked at the start and again at the end.
        data: What has come.
        made: The object, once it is there.
        cancelled: Whether the client gave it up.
    """

    bucket: str
    name: str
    draft: Draft
    preconditions: Preconditions
    data: bytearray = field(default_factory=bytearray)
    made: StoredObject | None = None
    cancelled: bool = False


class Uploads:
    """Answers them.

    Args:
        namespace: Where objects are made.
        shown: What of a resource the request asked for.

    Attributes:
        sessions: Resumable uploads by their id; a test may forget one, as the service does after a week.
    """

    def __init__(self, namespace: Namespace, shown: Callable[[Request, dict[str, Any]], Any]) -> None:
        self._namespace = namespace
        self._shown = shown
        self.sessions: dict[str, Upload] = {}

    def describe(self, request: Request) -> None:
        """Takes apart what an upload carries, which may hold the object's name.

        Raises:
            ServiceError: It makes no sense.
        """
        if request.operation in {"upload-chunk", "cancel-upload"}:
            upload = self.sessions.get(request.query.get("upload_id", ""))
            request.name = "" if upload is None else upload.name
            return
        if request.operation == "start-upload":
            described = request.resource(), request.headers.get("X-Upload-Content-Type", ""), b""
        elif request.query["uploadType"] == "multipart":
            described = _related(request)
        else:
            described = {}, request.headers.get("Content-Type", ""), request.body
            if "contentEncoding" in request.query:
                described[0]["contentEncoding"] = request.query["contentEncoding"]
        request.described = described
        request.name = _name_of(request, described[0])

    def insert(self, request: Request) -> Answer:
        """`insert`: a whole object, with `uploadType` media or multipart."""
        draft = _draft(request)
        _take_hashes(request.headers, draft)
        data = request.described[2]
        made = self._namespace.insert(request.bucket, request.name, data, draft, request.preconditions)
        return self._answer(request, made)

    def start(self, request: Request) -> Answer:
        """`start-upload`: a session for chunks; its URL needs no authorisation."""
        name = request.name
        self._namespace.check_insert(request.bucket, name, request.preconditions)
        identity = secrets.token_urlsafe(72)
        self.sessions[identity] = Upload(request.bucket, name, _draft(request), request.preconditions)
        kept = {key: value for key, value in request.query.items() if key in {"fields", "projection", "userProject"}}
        query = urlencode({"uploadType": "resumable", "name": name, **kept, "upload_id": identity}, quote_via=quote)
        url = f"{request.base}/upload/storage/v1/b/{quote(request.bucket, safe='')}/o?{query}"
        return Answer(200, {"Location": url, "X-GUploader-UploadID": identity})

    def put(self, request: Request) -> Answer:
        """`upload-chunk`: takes a chunk, makes the object of the last, and answers how much has come.

        "Resumable uploads": bytes that came before are ignored when they come again; what is no last chunk is a
        multiple of 256 KiB.
        """
        upload = self._session(request)
        if upload.made is not None:
            return self._answer(request, upload.made)
        start, total = self._content_range(request)
        if start is not None:
            if start > len(upload.data):
                raise ServiceError(
                    "invalid", f"Invalid request. The chunk begins at {start}; {len(upload.data)} bytes have come."
                )
            known = len(upload.data) - start
            last = total is not None and start + len(request.body) == total
            take = len(request.body)
            if not last:
                if take < CHUNK:
                    raise ServiceError(
                        "invalid",
                        (
                            "Invalid request.  The number of bytes uploaded is required to be equal or greater than "
                            f"{CHUNK}, except for the final request (it's recommended to be the exact multiple of "
                            f"{CHUNK}).  The received request contained {take} bytes, which does not meet this "
                            "requirement."
                        ),
                    )
                # What is more than a multiple is not kept: the client reads that from the Range.
                take -= (start + take) % CHUNK
            upload.data += request.body[known:take]
            _take_hashes(request.headers, upload.draft)
        if total is None or len(upload.data) != total:
            if total is not None and len(upload.data) > total:
                raise ServiceError(
                    "invalid", f"Invalid request. {len(upload.data)} bytes have come, more than {total}."
                )
            return _incomplete(upload)
        # The conditions again: the name may be taken since the start. A refusal ends the session.
        try:
            upload.made = self._namespace.insert(
                upload.bucket, upload.name, bytes(upload.data), upload.draft, upload.preconditions
            )
        except ServiceError as error:
            if error.status in {400, 412}:
                upload.cancelled = True
            raise
        upload.data = bytearray()
        return self._answer(request, upload.made)

    def cancel(self, request: Request) -> Answer:
        """`cancel-upload`."""
        upload = self._session(request)
        upload.cancelled = True
        upload.data = bytearray()
        raise ServiceError("clientClosedRequest")

    def _session(self, request: Request) -> Upload:
        upload = self.sessions.get(request.query.get("upload_id", ""))
        if upload is None:
            raise ServiceError("notFound", "The resumable upload session is not known.")
        if upload.cancelled:
            raise ServiceError("gone")
        return upload

    @staticmethod
    def _content_range(request: Request) -> tuple[int | None, int | None]:
        """Where the chunk begins (None: there is none) and how long the object is (None: not known yet)."""
        header = request.headers.get("Content-Range")
        if header is None:
            return 0, len(request.body)
        found = _CONTENT_RANGE.fullmatch(header.strip())
        if found is None:
            raise ServiceError("invalid", f"Failed to parse Content-Range header: {header}")
        total = None if found[3] == "*" else int(found[3])
        if found[1] is None:
            if request.body:
                raise ServiceError("invalid", "A status query has no body.")
            return None, total
        start, end = int(found[1]), int(found[2])
        if end - start + 1 != len(request.body) or (total is not None and end >= total):
            raise ServiceError("invalid", f"Content-Range {header} does not fit a body of {len(request.body)} bytes.")
        return start, total

    def _answer(self, request: Request, made: StoredObject) -> Answer:
        return json_answer(self._shown(request, object_resource(made, request.base)))


def _name_of(request: Request, resource: Mapping[str, Any]) -> str:
    """The name of the object to be made: in the query, or in the resource.

    Raises:
        ServiceError: required; invalid where the two differ.
    """
    named = resource.get("name")
    asked = request.query.get("name")
    if asked and named and named != asked:
        raise ServiceError("invalid", f"Value '{named}' in content does not agree with value '{asked}'.")
    name = asked or named
    if not isinstance(name, str) or not name:
        raise ServiceError("required", "Required parameter: name")
    return name


def _draft(request: Request) -> Draft:
    resource, media_type, _ = request.described
    draft = Draft.of(resource)
    if media_type:
        draft.content.setdefault("contentType", media_type)
    return draft


def _related(request: Request) -> tuple[dict[str, Any], str, bytes]:
    boundary = multipart.boundary_of(request.headers.get("Content-Type", ""), "multipart/related")
    parts = multipart.split(request.body, boundary)
    if len(parts) != 2:
        raise ServiceError("invalid", f"A multipart insert has two parts, not {len(parts)}.")
    (_, resource), (headers, data) = parts
    return parse_resource(resource), headers.get("content-type", ""), data


def _take_hashes(headers: Mapping[str, str], draft: Draft) -> None:
    for part in headers.get("X-Goog-Hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name == "crc32c":
            draft.crc32c = value
        elif name == "md5":
            draft.md5 = value
    if "Content-MD5" in headers:
        draft.md5 = headers["Content-MD5"]


def _incomplete(upload: Upload) -> Answer:
    headers = {"Range": f"bytes=0-{len(upload.data) - 1}"} if upload.data else {}
    return Answer(308, headers)
