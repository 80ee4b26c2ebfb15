"""Objects of Google Cloud Storage as statuses, their identities, and listings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import msgspec

from committer.advice import UNREADABLE
from committer.errors import StoreOutcomeUnknownError, StoreUnavailableError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.readable import UNDECODABLE
from committer.stores.base import FileStatus, Refusals
from committer.stores.gcs.errors import error_of, says_no_bucket
from committer.stores.gcs.wire import GcsWire
from committer.stores.http_answers import PageTokens, iso_moment_of
from committer.stores.object_store import directory_prefix, is_odd, listed_directory, odd_status

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


def status_of(resource: ObjectResource, path: StorePath) -> FileStatus:
    """Converts an object to a status."""
    stamp = (resource.metadata or {}).get(STAMP)
    modified, identity = iso_moment_of(resource.updated), identity_of(resource)
    refusals, version = _refusals(resource), resource.generation or None
    return FileStatus(
        path, False, int(resource.size), modified, identity, stamp=stamp, refuses=refusals, version=version
    )


async def pages(
    wire: GcsWire,
    operation: str,
    directory: StorePath,
    *,
    delimiter: str = "",
    markers: bool = False,
    most: int | None = None,
) -> AsyncIterator[list[FileStatus]]:
    """Lists objects with "Objects: list"; see `Pages`."""
    prefix = directory_prefix(directory)
    query = [("prefix", prefix), ("fields", f"items({FIELDS}),prefixes,nextPageToken")]
    if delimiter:
        query.append(("delimiter", delimiter))
    if most is not None:
        query.append(("maxResults", str(most)))
    token, tokens = "", PageTokens(operation, directory)
    while True:
        asked = [*query, ("pageToken", token)] if token else query
        answer = await wire.done(operation, "GET", directory, wire.listing_url, asked, changes=False)
        try:
            page = _PAGE.decode(answer.body)
            files = [
                _child(one, directory, prefix, bool(delimiter))
                for one in page.items
                if markers or not one.name.endswith("/")
            ]
        except (*UNDECODABLE, ValueError):
            raise StoreUnavailableError(
                "a page of a listing cannot be read", operation=operation, path=directory, next_step=UNREADABLE
            ) from None
        files += [listed_directory(name, directory, partial(_odd, directory)) for name in page.prefixes]
        found = [one for one in files if one is not None]
        # A page may be empty and not the last ("Objects: list").
        if page.items or page.prefixes:
            yield found
        if most is not None or not page.more:
            return
        token = tokens.following(page.more)


def _child(resource: ObjectResource, directory: StorePath, prefix: str, is_child: bool) -> FileStatus | None:
    if not resource.name.startswith(prefix):
        return None
    if is_child and is_odd(resource.name[len(prefix) :]):
        return _odd(directory, resource.name)
    path = StorePath(directory.scheme, directory.authority, f"/{resource.name}")
    modified, identity = iso_moment_of(resource.updated), identity_of(resource)
    refusals, version = _refusals(resource), resource.generation or None
    return FileStatus(path, False, int(resource.size), modified, identity, refuses=refusals, version=version)


def _odd(directory: StorePath, name: str) -> FileStatus | None:
    return odd_status(directory, name, "gcloud storage rm", "gs")


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
