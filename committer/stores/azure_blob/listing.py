"""Statuses as the service tells them of blobs: in the headers of an answer, and in the pages of a listing.

Hadoop's file system for such accounts (`wasb:`), and others, leave an empty blob for a directory, with the metadata
``hdi_isfolder``, under its name or under that with a slash. Such a marker is no file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import msgspec

from committer.advice import UNREADABLE
from committer.errors import StoreUnavailableError
from committer.paths import StorePath
from committer.stores.answered_xml import Answered, parsed
from committer.stores.azure_blob.wire import BlobWire
from committer.stores.base import FileStatus
from committer.stores.http_answers import moment_of
from committer.stores.object_store import directory_prefix, listed_directory
from committer.stores.odd_names import is_odd, odd_status
from committer.stores.page_tokens import PageTokens

STAMP: Final = "committerattempt"
STAMP_HEADER: Final = f"x-ms-meta-{STAMP}"
_MARKER: Final = "hdi_isfolder"


def status_in(headers: Mapping[str, str], path: StorePath, *, size: int | None = None) -> FileStatus:
    """What an answer's headers say of a blob; of a marker that it is a directory.

    Args:
        headers: Of the answer.
        path: What it is about.
        size: The length, where the answer is to a write and does not say it.
    """
    if headers.get(f"x-ms-meta-{_MARKER}", "").lower() == "true":
        return FileStatus(path, True, 0)
    return FileStatus(
        path,
        False,
        int(headers.get("Content-Length", "0")) if size is None else size,
        moment_of(headers.get("Last-Modified", "")),
        headers.get("ETag", "").strip('"') or None,
        stamp=headers.get(STAMP_HEADER),
    )


async def pages(
    wire: BlobWire,
    operation: str,
    directory: StorePath,
    *,
    delimiter: str = "",
    markers: bool = False,
    most: int | None = None,
) -> AsyncIterator[list[FileStatus]]:
    """As `Pages`, by "List Blobs"."""
    prefix = directory_prefix(directory)
    continuation, tokens = "", PageTokens(operation, directory)
    while True:
        query = [("comp", "list"), ("include", "metadata"), ("prefix", prefix), ("restype", "container")]
        if delimiter:
            query.append(("delimiter", delimiter))
        if continuation:
            query.append(("marker", continuation))
        if most is not None:
            query.append(("maxresults", str(most)))
        answer = await wire.done(operation, "GET", directory, sorted(query), changes=False, at="")
        page = parsed(answer.body, "EnumerationResults", operation, directory)
        entries = page.child("Blobs")
        blobs = list(entries.each("Blob")) if entries is not None else []
        below = list(entries.each("BlobPrefix")) if entries is not None else []
        try:
            found = [_blob(wire, blob, directory, prefix, markers, bool(delimiter)) for blob in blobs]
        except ValueError:
            raise StoreUnavailableError(
                "a page of a listing cannot be read", operation=operation, path=directory, next_step=UNREADABLE
            ) from None
        found += [listed_directory(one.text("Name"), directory, partial(_odd, wire, directory)) for one in below]
        if blobs or below:
            yield [status for status in found if status is not None]
        more = page.text("NextMarker")
        # Pages can be empty, or shorter than asked for, and go on.
        if not more or (most is not None and (blobs or below)):
            return
        continuation = tokens.following(more)


def _blob(
    wire: BlobWire, blob: Answered, directory: StorePath, prefix: str, markers: bool, is_child: bool
) -> FileStatus | None:
    name = blob.text("Name")
    metadata = blob.child("Metadata")
    described = metadata.texts() if metadata is not None else {}
    marks = name.endswith("/") or described.get(_MARKER, described.get("Hdi_isfolder", "")).lower() == "true"
    if not name.startswith(prefix) or (marks and not markers):
        return None
    if is_child and is_odd(name[len(prefix) :]):
        return _odd(wire, directory, name)
    properties = blob.child("Properties")
    told = properties.texts() if properties is not None else {}
    return FileStatus(
        StorePath(directory.scheme, directory.authority, f"/{name}"),
        False,
        int(told.get("Content-Length", "0")),
        moment_of(told.get("Last-Modified", "")),
        (told.get("Etag") or told.get("ETag") or "").strip('"') or None,
    )


def _odd(wire: BlobWire, directory: StorePath, name: str) -> FileStatus | None:
    scheme, _, place = wire.container_url.partition("://")
    odd = odd_status(StorePath(scheme, place, directory.path), name, "azcopy remove", scheme)
    if odd is None:
        return None
    return msgspec.structs.replace(odd, path=StorePath(directory.scheme, directory.authority, f"/{name}"))
