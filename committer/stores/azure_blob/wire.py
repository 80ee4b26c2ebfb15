"""Requests to a container of blobs, their errors, and the statuses in their responses.

Hadoop's `wasb:` file system and other tools mark a directory by an empty blob with the metadata
``hdi_isfolder``, under its name with or without a slash. Such a marker is not a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from committer.errors import (
    CommitterError,
    ConfigurationError,
    StoreConflictError,
    StoreExistsError,
    StorePartsError,
    StorePermissionError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.azure.errors import code_of
from committer.stores.azure.errors import error_of as shared_error_of
from committer.stores.azure.wire import AzureWire
from committer.stores.base import FileStatus
from committer.stores.http import Answer
from committer.stores.http_answers import Refusal, moment_of, parsed, texts_in
from committer.stores.object_store import Page

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

# "Put Block", "Put Block List": a missing block, an id of another length than others, too many blocks.
_PARTS: Final = frozenset({"InvalidBlockList", "InvalidBlobOrBlock", "InvalidBlockId", "BlockListTooLong"})
_TOO_MANY: Final = frozenset({"BlockCountExceedsLimit", "UncommittedBlockCountExceedsLimit"})
_KINDS: Final = frozenset({"InvalidBlobType"})
_KEPT: Final = frozenset({"BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"})


def error_of(
    answer: Answer, operation: str, path: StorePath, *, changes: bool = True, exclusive: bool = False
) -> CommitterError:
    """Maps a refusal (status 300 or more) to an error; `exclusive` says that the request required no blob there."""
    code = code_of(answer)
    refusal = Refusal(answer.status, code, answer.headers.get("x-ms-request-id", ""), operation, path)
    if code in _PARTS:
        what = "blocks with ids of another length wait there" if operation == "put_block" else "a block is not there"
        return refusal.as_error(StorePartsError, what)
    if code in _TOO_MANY:
        return refusal.as_error(StorePartsError, "there are too many blocks")
    if answer.status == 413:
        return refusal.as_error(ConfigurationError, "the service takes no body that long", "set multipart_size lower")
    if code in _KEPT:
        return refusal.as_error(
            StorePermissionError,
            "the container does not let blobs be changed or deleted",
            "write to a container without a policy of immutability: a commit replaces and deletes records of its own",
        )
    if code in _KINDS:
        return refusal.as_error(
            StoreConflictError, "a blob of another type is there", "delete it, or choose another name"
        )
    unmet = answer.status == 412 and not code.startswith("Lease")
    if code == "BlobAlreadyExists" or (exclusive and unmet):
        return refusal.as_error(StoreExistsError, "something exists there")
    if unmet:
        return refusal.as_error(StorePreconditionError, "another file is there, or none")
    return shared_error_of(answer, operation, path, changes=changes)


class BlobWire(AzureWire):
    """Client of a container of blobs."""

    def _refusal(
        self, answer: Answer, operation: str, path: StorePath, *, changes: bool, exclusive: bool
    ) -> CommitterError:
        return error_of(answer, operation, path, changes=changes, exclusive=exclusive)


STAMP: Final = "committerattempt"
STAMP_HEADER: Final = f"x-ms-meta-{STAMP}"
_MARKER: Final = "hdi_isfolder"


def status_in(headers: Mapping[str, str], path: StorePath, *, size: int | None = None) -> FileStatus:
    """Builds a status from response headers, a directory's for a marker; `size` is for the response to a write."""
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


def page_in(body: bytes, operation: str, directory: StorePath) -> Page:
    """Reads a page of "List Blobs"."""
    page = parsed(body, "EnumerationResults", operation, directory)
    entries = page.find("Blobs")
    if entries is None:
        return Page((), (), page.findtext("NextMarker") or None)
    blobs = [_blob(blob, directory) for blob in entries.iterfind("Blob")]
    below = [one.findtext("Name", "") for one in entries.iterfind("BlobPrefix")]
    return Page(blobs, below, page.findtext("NextMarker") or None)


def _blob(blob: Element, directory: StorePath) -> FileStatus:
    path = StorePath(directory.scheme, directory.authority, f"/{blob.findtext('Name', '')}")
    metadata, properties = blob.find("Metadata"), blob.find("Properties")
    described = texts_in(metadata) if metadata is not None else {}
    if described.get(_MARKER, described.get("Hdi_isfolder", "")).lower() == "true":
        return FileStatus(path, True, 0)
    told = texts_in(properties) if properties is not None else {}
    return FileStatus(
        path,
        False,
        int(told.get("Content-Length", "0")),
        moment_of(told.get("Last-Modified", "")),
        (told.get("Etag") or told.get("ETag") or "").strip('"') or None,
    )
