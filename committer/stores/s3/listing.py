"""Statuses of objects, from response headers and listings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.http_answers import moment_of, parsed
from committer.stores.object_store import Page
from committer.stores.s3.errors import error_of
from committer.stores.s3.wire import S3Wire
from committer.stores.s3.xml import key_in, moment_in

STAMP_HEADER: Final = "x-amz-meta-committer-attempt"


def status_in(headers: Mapping[str, str], path: StorePath) -> FileStatus:
    """Builds a status from response headers."""
    return FileStatus(
        path,
        False,
        int(headers.get("Content-Length", "0")),
        moment_of(headers.get("Last-Modified", "")),
        etag_in(headers),
        stamp=headers.get(STAMP_HEADER) or None,
    )


def etag_in(headers: Mapping[str, str]) -> str | None:
    """Returns the etag without its quotes."""
    return headers.get("ETag", "").strip('"') or None


def page_in(body: bytes, operation: str, directory: StorePath) -> Page:
    """Reads a page of "ListObjectsV2"."""
    page = parsed(body, "ListBucketResult", operation, directory)
    encoding = page.text("EncodingType")
    objects = [_object(entry.texts(), encoding, directory) for entry in page.each("Contents")]
    below = [key_in(one.text("Prefix"), encoding) for one in page.each("CommonPrefixes")]
    return Page(objects, below, page.text("NextContinuationToken") if page.text("IsTruncated") == "true" else None)


def _object(told: Mapping[str, str], encoding: str, directory: StorePath) -> FileStatus:
    return FileStatus(
        StorePath(directory.scheme, directory.authority, f"/{key_in(told.get('Key', ''), encoding)}"),
        False,
        int(told.get("Size", "0")),
        moment_in(told.get("LastModified", "")),
        told.get("ETag", "").strip('"') or None,
    )


async def object_at(wire: S3Wire, operation: str, path: StorePath) -> FileStatus | None:
    """Reads the status of an object; None if there is none. One call, none for the root."""
    if path.path == "/":
        return None
    answer = await wire.send(operation, "HEAD", path, changes=False)
    if answer.status == 404:
        return None
    if answer.status >= 300:
        raise error_of(answer, operation, path, changes=False)
    return status_in(answer.headers, path)
