"""Requests to a bucket of Google Cloud Storage over the JSON API, and the statuses in its responses."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from committer.advice import UNREADABLE
from committer.errors import StoreOutcomeUnknownError, StoreUnavailableError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.readable import UNDECODABLE
from committer.stores.base import FileStatus, Refusals
from committer.stores.gcs.access import Access
from committer.stores.gcs.errors import error_of, says_no_bucket
from committer.stores.http import USER_AGENT, Answer, Body, HttpClient
from committer.stores.http_answers import iso_moment_of
from committer.stores.object_store import Page

# The service answers a request that is sent again on its way with its first response (google-cloud-cpp, issue 12347).
IDEMPOTENCY: Final = "x-goog-gcs-idempotency-token"

Query = Sequence[tuple[str, str]]


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return quote(text, safe="")


def _name_in_url(path: StorePath) -> str:
    """Escapes an object's name as one URL segment; caches the directory, because escaping slashes is slow."""
    above, slash, last = path.path[1:].rpartition("/")
    return f"{_quoted(above)}%2F{quote(last, safe='')}" if slash else quote(last, safe="")


class GcsWire:
    """Client of a bucket that makes, authorises and sends requests, each once; the endpoint has no trailing slash."""

    def __init__(self, endpoint: str, bucket: str, user_project: str | None, access: Access, http: HttpClient) -> None:
        name = quote(bucket, safe="")
        self.bucket_url: str = f"{endpoint}/storage/v1/b/{name}"
        self.listing_url: str = f"{self.bucket_url}/o"
        self.upload_url: str = f"{endpoint}/upload/storage/v1/b/{name}/o"
        self.batch_url: str = f"{endpoint}/batch/storage/v1"
        self._endpoint = endpoint
        self._pays: Query = (("userProject", user_project),) if user_project else ()
        self._access = access
        self._http = http
        # A counter makes tokens unique without randomness for each; the process id tells forked processes apart.
        self._prefix = current_runtime().nonce(16)
        self._numbers = itertools.count(1)

    def object_url(self, path: StorePath) -> str:
        """Returns an object's URL."""
        return f"{self.listing_url}/{_name_in_url(path)}"

    def move_url(self, source: StorePath, destination: StorePath) -> str:
        """Returns the URL that renames an object."""
        return f"{self.object_url(source)}/moveTo/o/{_name_in_url(destination)}"

    def target_of(self, path: StorePath) -> str:
        """Returns an object's URL for a call in a batch, without the endpoint."""
        parameters = "".join(f"?{name}={quote(value, safe='')}" for name, value in self._pays)
        return f"{self.object_url(path).removeprefix(self._endpoint)}{parameters}"

    def token(self) -> str:
        """Returns a unique idempotency token."""
        return f"{self._prefix}-{os.getpid():x}-{next(self._numbers):x}"

    async def send(
        self,
        operation: str,
        method: str,
        path: StorePath,
        url: str,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
        limit: int | None = None,
    ) -> Answer:
        """Sends a request to `url` with parameters, and returns the response, whatever its status."""
        parameters = "&".join([f"{name}={quote(value, safe='')}" for name, value in (*query, *self._pays)])
        target = f"{url}?{parameters}" if parameters else url
        sent = {"User-Agent": USER_AGENT, **(headers or {})}
        if changes:
            sent[IDEMPOTENCY] = self.token()
        return await self.resend(operation, method, path, target, sent, data=data, changes=changes, limit=limit)

    async def resend(
        self,
        operation: str,
        method: str,
        path: StorePath,
        target: str,
        headers: dict[str, str],
        *,
        data: Body | None = None,
        changes: bool = True,
        limit: int | None = None,
    ) -> Answer:
        """As `send`, with a full URL and headers, to which it adds the authorisation."""
        access = self._access
        for is_last in (False, True):
            if not access.ready:
                await access.prepare()
            if access.token:
                headers["Authorization"] = f"Bearer {access.token}"
            answer = await self._http.send(
                method, target, headers, operation=operation, path=path, changes=changes, data=data, limit=limit
            )
            # A token can expire early. A 401 has no effect, so the request may be sent again.
            if is_last or answer.status != 401 or not access.refused():
                break
        return answer

    async def done(
        self,
        operation: str,
        method: str,
        path: StorePath,
        url: str,
        query: Query = (),
        headers: Mapping[str, str] | None = None,
        *,
        data: Body | None = None,
        changes: bool = True,
    ) -> Answer:
        """Sends a request and raises the store error of a refusal."""
        answer = await self.send(operation, method, path, url, query, headers, data=data, changes=changes)
        if answer.status >= 300:
            raise error_of(answer, operation, path, changes=changes)
        return answer

    def refused(self) -> bool:
        """Discards the token after a 401; returns True if the refused call may be sent again, with another token."""
        return self._access.refused()


STAMP: Final = "committer-attempt"
FIELDS: Final = (
    "name,generation,size,updated,metadata,crc32c,md5Hash,temporaryHold,eventBasedHold,retentionExpirationTime"
)
_ASKED: Final = (("fields", FIELDS),)


class ObjectResource(msgspec.Struct, frozen=True, gc=False):
    """Fields of an object that a call asks for (`FIELDS`)."""

    name: str = ""
    generation: str = ""
    size: str = "0"
    updated: str = ""
    metadata: dict[str, str] | None = None
    crc32c: str = ""
    md5: str = msgspec.field(default="", name="md5Hash")
    temporary_hold: bool = msgspec.field(default=False, name="temporaryHold")
    event_hold: bool = msgspec.field(default=False, name="eventBasedHold")
    retained_until: str = msgspec.field(default="", name="retentionExpirationTime")


class _Page(msgspec.Struct, frozen=True):
    items: list[ObjectResource] = []
    prefixes: list[str] = []
    more: str = msgspec.field(default="", name="nextPageToken")


_OBJECT: Final = msgspec.json.Decoder(ObjectResource)
_PAGE: Final = msgspec.json.Decoder(_Page)


def parsed(body: bytes, operation: str, path: StorePath, *, changes: bool = False) -> ObjectResource:
    """Decodes an object in a response; with `changes`, an unreadable response raises `StoreOutcomeUnknownError`."""
    try:
        found = _OBJECT.decode(body)
        int(found.size)
        return found
    except (*UNDECODABLE, ValueError):
        kind = StoreOutcomeUnknownError if changes else StoreUnavailableError
        raise kind("the answer cannot be read", operation=operation, path=path, next_step=UNREADABLE) from None


async def object_at(wire: GcsWire, operation: str, path: StorePath) -> ObjectResource | None:
    """Reads the object at a path; None if there is none. One call."""
    if path.path == "/":
        return None
    answer = await wire.send(operation, "GET", path, wire.object_url(path), _ASKED, changes=False)
    if answer.status == 404 and not says_no_bucket(answer):
        return None
    if answer.status >= 300:
        raise error_of(answer, operation, path, changes=False)
    return parsed(answer.body, operation, path)


def identity_of(resource: ObjectResource) -> str | None:
    """Returns a file's identity: its stamp and checksum, which moves and rewrites keep (the generation changes).

    Without a stamp (a file written by Java) the checksum alone, which proves the bytes and not the writer.
    """
    checksum = resource.crc32c or resource.md5
    stamp = (resource.metadata or {}).get(STAMP, "")
    return f"{stamp}#{checksum}" if stamp or checksum else None


def status_of(resource: ObjectResource, path: StorePath, *, listed: bool = False) -> FileStatus:
    """Converts an object to a status, which has no stamp if the object was listed."""
    return FileStatus(
        path,
        False,
        int(resource.size),
        iso_moment_of(resource.updated),
        identity_of(resource),
        stamp=None if listed else (resource.metadata or {}).get(STAMP),
        refuses=_refusals(resource),
        version=resource.generation or None,
    )


def page_in(body: bytes, directory: StorePath) -> Page:
    """Reads a page of "Objects: list"."""
    page = _PAGE.decode(body)
    paths = [StorePath(directory.scheme, directory.authority, f"/{one.name}") for one in page.items]
    objects = [status_of(one, path, listed=True) for one, path in zip(page.items, paths, strict=True)]
    return Page(objects, page.prefixes, page.more or None)


def _refusals(resource: ObjectResource) -> Refusals | None:
    """Returns what holds and retention forbid ("Object holds", "Bucket Lock", "Object Retention Lock")."""
    if resource.temporary_hold or resource.event_hold:
        return Refusals(move="it is under a hold")
    if not resource.retained_until:
        return None
    until = iso_moment_of(resource.retained_until)
    if until is None or until <= current_runtime().now().timestamp():
        return None
    return Refusals(move=f"it is retained until {resource.retained_until}")
