"""Statuses of objects, from response headers and listings."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

from committer.advice import UNREADABLE
from committer.errors import StoreUnavailableError
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.http_answers import Answered, PageTokens, moment_of, parsed
from committer.stores.object_store import directory_prefix, is_odd, listed_directory, odd_status
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


async def pages(
    wire: S3Wire,
    operation: str,
    directory: StorePath,
    *,
    delimiter: str = "",
    markers: bool = False,
    most: int | None = None,
) -> AsyncIterator[list[FileStatus]]:
    """Lists objects with "ListObjectsV2"; see `Pages`."""
    prefix = directory_prefix(directory)
    token, tokens = "", PageTokens(operation, directory)
    while True:
        query = [("continuation-token", token)] if token else []
        if delimiter:
            query.append(("delimiter", delimiter))
        query += [("encoding-type", "url"), ("list-type", "2")]
        if most is not None:
            query.append(("max-keys", str(most)))
        query.append(("prefix", prefix))
        answer = await wire.done(operation, "GET", directory, query, changes=False, key="")
        page = parsed(answer.body, "ListBucketResult", operation, directory)
        encoding = page.text("EncodingType")
        contents = list(page.each("Contents"))
        try:
            files = [_file(wire, entry, encoding, directory, prefix, markers, bool(delimiter)) for entry in contents]
        except ValueError:
            raise StoreUnavailableError(
                "a page of a listing cannot be read", operation=operation, path=directory, next_step=UNREADABLE
            ) from None
        below = [key_in(one.text("Prefix"), encoding) for one in page.each("CommonPrefixes")]
        files += [listed_directory(key, directory, partial(_odd, wire, directory)) for key in below]
        found = [one for one in files if one is not None]
        if contents or below:
            yield found
        if most is not None or page.text("IsTruncated") != "true":
            return
        token = tokens.following(page.text("NextContinuationToken"))


def _odd(wire: S3Wire, directory: StorePath, key: str) -> FileStatus | None:
    elsewhere = f" --endpoint-url {shlex.quote(wire.endpoint)}" if wire.endpoint else ""
    return odd_status(directory, key, f"aws s3 rm{elsewhere}", "s3")


def _file(
    wire: S3Wire, entry: Answered, encoding: str, directory: StorePath, prefix: str, markers: bool, is_child: bool
) -> FileStatus | None:
    told = entry.texts()
    key = key_in(told.get("Key", ""), encoding)
    if not key.startswith(prefix) or (not markers and key.endswith("/")):
        return None
    if is_child and is_odd(key[len(prefix) :]):
        return _odd(wire, directory, key)
    return FileStatus(
        StorePath(directory.scheme, directory.authority, f"/{key}"),
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
