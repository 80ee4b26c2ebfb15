"""Objects of Google Cloud Storage as statuses, their identities, and listings."""

from __future__ import annotations

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
from committer.stores.http_answers import iso_moment_of
from committer.stores.object_store import Page

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
