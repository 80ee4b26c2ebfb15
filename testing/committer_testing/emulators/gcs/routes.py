"""Which operation a request asks for: method and path of each call of the JSON API."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.wire import Request

# Words in braces are the request's: its bucket, the object it is about, and where a copy reads.
_CALLS: Final = (
    ("GET", "b", "list-buckets"),
    ("POST", "b", "create-bucket"),
    ("GET", "b/{bucket}", "get-bucket"),
    ("PATCH", "b/{bucket}", "patch-bucket"),
    ("DELETE", "b/{bucket}", "delete-bucket"),
    ("GET", "b/{bucket}/storageLayout", "get-storage-layout"),
    ("GET", "b/{bucket}/iam/testPermissions", "test-permissions"),
    ("POST", "b/{bucket}/lockRetentionPolicy", "lock-retention-policy"),
    ("GET", "b/{bucket}/o", "list"),
    ("GET", "b/{bucket}/o/{name}", "get"),
    ("PATCH", "b/{bucket}/o/{name}", "patch"),
    ("PUT", "b/{bucket}/o/{name}", "update"),
    ("DELETE", "b/{bucket}/o/{name}", "delete"),
    ("POST", "b/{bucket}/o/{name}/compose", "compose"),
    ("POST", "b/{bucket}/o/{name}/restore", "restore"),
    ("POST", "b/{bucket}/o/{source}/moveTo/o/{name}", "move"),
    ("POST", "b/{from}/o/{source}/rewriteTo/b/{bucket}/o/{name}", "rewrite"),
    ("POST", "b/{from}/o/{source}/copyTo/b/{bucket}/o/{name}", "copy"),
)
_UPLOADS: Final = {"media": "insert", "multipart": "insert", "resumable": "start-upload"}
_SESSION: Final = {"PUT": "upload-chunk", "POST": "upload-chunk", "DELETE": "cancel-upload"}
_UNKNOWN: Final = frozenset(
    {"acl", "anywhereCaches", "defaultObjectAcl", "folders", "iam", "managedFolders", "notificationConfigs"}
)


def _by_shape() -> dict[tuple[str, int], list[tuple[list[str], str]]]:
    shapes = defaultdict(list)
    for method, pattern, operation in _CALLS:
        words = pattern.split("/")
        shapes[method, len(words)].append((words, operation))
    return shapes


_SHAPES: Final = _by_shape()


def name_operation(request: Request) -> None:
    """Sets endpoint, operation, bucket, name and source of a request.

    Raises:
        ServiceError: No operation has this path, or it is not emulated.
    """
    match request.segments:
        case ["storage", "v1", *path] | ["download", "storage", "v1", *path]:
            _name_call(request, path)
        case ["upload", "storage", "v1", *path] | ["resumable", "upload", "storage", "v1", *path]:
            request.endpoint = "upload"
            _name_upload(request, path)
        case _:
            raise ServiceError("notFound")


def _name_call(request: Request, path: list[str]) -> None:
    for words, operation in _SHAPES.get((request.method, len(path)), ()):
        found = _fit(words, path)
        if found is None:
            continue
        request.operation = "read" if operation == "get" and request.query.get("alt") == "media" else operation
        request.bucket, request.name = found.get("{bucket}", ""), found.get("{name}", "")
        if "{source}" in found:
            request.source = (found.get("{from}", request.bucket), found["{source}"])
        return
    if len(path) > 2 and path[2] in _UNKNOWN:
        raise ServiceError("notImplemented", f"The emulator does not know {path[2]}.")
    raise ServiceError("notFound")


def _fit(words: list[str], path: list[str]) -> dict[str, str] | None:
    found = {}
    for word, part in zip(words, path, strict=True):
        if word.startswith("{"):
            found[word] = part
        elif word != part:
            return None
    return found


def _name_upload(request: Request, path: list[str]) -> None:
    match path:
        case ["b", bucket, "o"]:
            request.bucket = bucket
        case _:
            raise ServiceError("notFound")
    request.name = request.query.get("name", "")
    if "upload_id" in request.query:
        request.operation = _SESSION.get(request.method, "")
    elif request.method in {"POST", "PUT"}:
        request.operation = _UPLOADS.get(request.parameter("uploadType"), "")
    if not request.operation:
        raise ServiceError("invalid", "Invalid upload request.")
