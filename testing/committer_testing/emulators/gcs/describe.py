"""Objects and buckets in JSON and in headers, and which fields of it a client asked for."""

from __future__ import annotations

import base64
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.objects import Bucket, StoredObject, timestamp
from committer_testing.emulators.gcs.wire import Answer, Request

_EVERYTHING: dict[str, Any] = {}


def etag_of(generation: int, metageneration: int) -> str:
    """An etag: it changes with the generation and the metageneration."""
    return base64.b64encode(generation.to_bytes(8, "big") + metageneration.to_bytes(4, "big")).decode()


def object_resource(one: StoredObject, base: str, kept_seconds: int = 0) -> dict[str, Any]:
    """The resource of an object ("Objects" in the JSON API's reference)."""
    link = f"b/{quote(one.bucket, safe='')}/o/{quote(one.name, safe='')}"
    created, updated = timestamp(one.created), timestamp(one.updated)
    resource: dict[str, Any] = {
        "kind": "storage#object",
        "id": f"{one.bucket}/{one.name}/{one.generation}",
        "selfLink": f"{base}/storage/v1/{link}",
        "mediaLink": f"{base}/download/storage/v1/{link}?generation={one.generation}&alt=media",
        "name": one.name,
        "bucket": one.bucket,
        "generation": str(one.generation),
        "metageneration": str(one.metageneration),
        "storageClass": "STANDARD",
        "size": str(len(one.data)),
        "crc32c": one.crc32c,
        "etag": etag_of(one.generation, one.metageneration),
        "timeCreated": created,
        "updated": updated,
        "timeStorageClassUpdated": created,
        "timeFinalized": created,
        **one.content,
    }
    if one.md5 is not None:
        resource["md5Hash"] = one.md5
    if one.metadata:
        resource["metadata"] = one.metadata
    if one.components:
        resource["componentCount"] = one.components
    if one.temporary_hold:
        resource["temporaryHold"] = True
    if one.event_hold:
        resource["eventBasedHold"] = True
    if one.retention:
        resource["retention"] = one.retention
    if one.deleted:
        resource["softDeleteTime"] = timestamp(one.deleted)
        resource["hardDeleteTime"] = timestamp(one.deleted + kept_seconds)
    return resource


def bucket_resource(bucket: Bucket, base: str) -> dict[str, Any]:
    """The resource of a bucket."""
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{base}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": "1",
        "generation": str(bucket.generation),
        "metageneration": str(bucket.metageneration),
        "location": "US",
        "locationType": "multi-region",
        "storageClass": "STANDARD",
        "etag": etag_of(bucket.generation, bucket.metageneration),
        "timeCreated": timestamp(bucket.created),
        "updated": timestamp(bucket.updated),
        **bucket.configured,
    }


def media_answer(request: Request, one: StoredObject) -> Answer:
    """The answer to a read of an object's data: all of it or the range asked for.

    Raises:
        ServiceError: requestedRangeNotSatisfiable.
    """
    hashes = f"crc32c={one.crc32c}" + (f",md5={one.md5}" if one.md5 is not None else "")
    headers = {
        "Content-Type": one.content.get("contentType", "application/octet-stream"),
        "ETag": etag_of(one.generation, one.metageneration),
        "Last-Modified": formatdate(one.updated, usegmt=True),
        "Accept-Ranges": "bytes",
        "X-Goog-Generation": str(one.generation),
        "X-Goog-Metageneration": str(one.metageneration),
        "X-Goog-Hash": hashes,
        "X-Goog-Storage-Class": one.content.get("storageClass", "STANDARD"),
        "X-Goog-Stored-Content-Length": str(len(one.data)),
        "X-Goog-Stored-Content-Encoding": one.content.get("contentEncoding", "identity"),
    }
    for name, header in (("contentEncoding", "Content-Encoding"), ("cacheControl", "Cache-Control")):
        if name in one.content:
            headers[header] = one.content[name]
    span = _span(request.headers.get("Range"), len(one.data))
    if span is None:
        return Answer(200, headers, one.data)
    start, end = span
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(one.data)}"
    return Answer(206, headers, one.data[start:end])


def _span(asked: str | None, length: int) -> tuple[int, int] | None:
    if asked is None:
        return None
    unit, _, span = asked.partition("=")
    first, dash, last = (part.strip() for part in span.partition("-"))
    numbers = [one for one in (first, last) if one]
    # What makes no sense is no range (RFC 9110, 14.2).
    if unit.strip() != "bytes" or not dash or not numbers or not all(one.isdigit() for one in numbers):
        return None
    start = int(first) if first else max(0, length - int(last))
    end = min(int(last) + 1, length) if first and last else length
    if first and last and int(last) < start:
        return None
    if start >= length:
        unsatisfied = {"Content-Range": f"bytes */{length}"}
        raise ServiceError("requestedRangeNotSatisfiable", headers=unsatisfied)
    return start, end


def parse_fields(text: str) -> dict[str, Any]:
    """A `fields` parameter as a tree: `items(name,size),nextPageToken`, `items/name`; `*` is everything.

    Raises:
        ServiceError: It makes no sense.
    """
    tree, end = _fields(text, 0)
    if end != len(text):
        raise ServiceError("invalidParameter", f"Invalid field selection {text}")
    return tree


def _fields(text: str, at: int) -> tuple[dict[str, Any], int]:
    tree: dict[str, Any] = {}
    while True:
        start = at
        while at < len(text) and text[at] not in "(),/":
            at += 1
        name = text[start:at].strip()
        if not name:
            raise ServiceError("invalidParameter", f"Invalid field selection {text}")
        below: dict[str, Any] = _EVERYTHING
        if at < len(text) and text[at] == "/":
            # One path; what follows a comma is a sibling of its first part.
            end = _end_of_path(text, at)
            below, at = _fields(text[at + 1 : end], 0)[0], end
        elif at < len(text) and text[at] == "(":
            below, at = _fields(text, at + 1)
            if at >= len(text) or text[at] != ")":
                raise ServiceError("invalidParameter", f"Invalid field selection {text}")
            at += 1
        before = tree.get(name)
        tree[name] = {**before, **below} if before and below else _EVERYTHING if before is not None else below
        if at >= len(text) or text[at] != ",":
            return tree, at
        at += 1


def _end_of_path(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if text[at] == "(":
            depth += 1
        elif text[at] == ")":
            if not depth:
                break
            depth -= 1
        elif text[at] == "," and not depth:
            break
        at += 1
    return at


def select(value: Any, fields: dict[str, Any]) -> Any:
    """What of a resource the fields name; all of it for none."""
    if not fields or "*" in fields:
        return value
    if isinstance(value, list):
        return [select(one, fields) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: select(value[name], below) for name, below in fields.items() if name in value}
