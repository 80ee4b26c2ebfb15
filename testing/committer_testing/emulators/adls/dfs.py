"""The DFS endpoint: filesystems, and creating, renaming, reading, listing and deleting paths."""

from __future__ import annotations

import json
from collections.abc import Callable

from committer_testing.emulators.adls import access, dfs_update, leases, listing
from committer_testing.emulators.adls.auth import Authority
from committer_testing.emulators.adls.conditions import Conditions
from committer_testing.emulators.adls.describe import (
    http_date,
    node_headers,
    read_answer,
    shown_permissions,
    version_of,
)
from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.namespace import Namespace
from committer_testing.emulators.adls.nodes import Clock, Node
from committer_testing.emulators.adls.sas import Grant
from committer_testing.emulators.adls.settings import Settings
from committer_testing.emulators.adls.wire import (
    Answer,
    Request,
    content_headers,
    format_properties,
    parse_properties,
    parse_query,
    path_in,
)

# 1601-01-01, where the service's creation times begin, in seconds before 1970.
_FILETIME_EPOCH = 11_644_473_600
_ENCRYPTED = {"x-ms-request-server-encrypted": "true"}
_PATH_HEADS = {
    None: "get-properties",
    "getstatus": "get-status",
    "getaccesscontrol": "get-access-control",
    "checkaccess": "check-access",
}
_FILESYSTEM_CALLS = {
    "PUT": "create-filesystem",
    "HEAD": "get-filesystem-properties",
    "PATCH": "set-filesystem-properties",
    "DELETE": "delete-filesystem",
    "GET": "list",
}


def operation_of(request: Request) -> str:
    """What a request asks for, in the words faults and the log use.

    Raises:
        ServiceError: Nothing the endpoint knows.
    """
    method, resource = request.method, request.query.get("resource", "").lower()
    if not request.filesystem:
        if method == "GET" and resource == "account":
            return "list-filesystems"
        raise ServiceError("MissingRequiredQueryParameter")
    if resource == "filesystem":
        if method not in _FILESYSTEM_CALLS:
            raise ServiceError("UnsupportedHttpVerb")
        return _FILESYSTEM_CALLS[method]
    if method == "PUT":
        if "x-ms-rename-source" in request.headers:
            return "rename"
        if resource in {"file", "directory"}:
            return f"create-{resource}"
        raise ServiceError("InvalidQueryParameterValue" if resource else "MissingRequiredQueryParameter")
    action = request.query.get("action")
    if method == "PATCH":
        return dfs_update.operation_of(request.parameter("action"))
    if method == "HEAD":
        name = _PATH_HEADS.get(action.lower() if action is not None else None)
        if name is None:
            raise ServiceError("InvalidQueryParameterValue")
        return name
    if method in {"GET", "DELETE", "POST"}:
        return {"GET": "read", "DELETE": "delete", "POST": "lease"}[method]
    raise ServiceError("UnsupportedHttpVerb")


class Dfs:
    """Answers the DFS endpoint's requests."""

    def __init__(self, settings: Settings, namespace: Namespace, clock: Clock, authority: Authority) -> None:
        self._settings = settings
        self._namespace = namespace
        self._clock = clock
        self._authority = authority
        update = dfs_update.Update(settings, namespace, clock)
        self._handlers: dict[str, Callable[[Request, Grant | None], Answer]] = {
            "list-filesystems": self._list_filesystems,
            "create-filesystem": self._create_filesystem,
            "get-filesystem-properties": self._filesystem_properties,
            "set-filesystem-properties": self._set_filesystem_properties,
            "delete-filesystem": self._delete_filesystem,
            "list": self._list,
            "rename": self._rename,
            "create-file": self._create,
            "create-directory": self._create,
            "read": self._read,
            "delete": self._delete,
            "lease": self._lease,
            **dict.fromkeys(_PATH_HEADS.values(), self._head),
            **update.handlers,
        }

    def answer(self, request: Request, grant: Grant | None) -> Answer:
        """Does what an authorised request asks.

        Raises:
            ServiceError: The service refuses.
        """
        return self._handlers[request.operation](request, grant)

    # --- Filesystems ----------------------------------------------------------------------------------------------

    def _list_filesystems(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "l", request, kind="s")
        prefix = request.query.get("prefix", "")
        after = request.query.get("continuation", "")
        limit = min(request.number("maxresults", 5_000), 5_000)
        names = [name for name in sorted(self._namespace.filesystems) if name.startswith(prefix) and name > after]
        found = [(name, self._namespace.filesystems[name]) for name in names[:limit]]
        body = {
            "filesystems": [
                {"name": name, "etag": one.etag.strip('"'), "lastModified": http_date(one.modified)}
                for name, one in found
            ]
        }
        headers = {"Content-Type": "application/json;charset=utf-8"}
        if len(names) > limit:
            headers["x-ms-continuation"] = found[-1][0]
        return Answer(200, headers, json.dumps(body).encode())

    def _create_filesystem(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "cw", request, kind="c")
        properties = parse_properties(request.headers.get("x-ms-properties", ""))
        made = self._namespace.create_filesystem(request.filesystem, properties)
        return Answer(201, {**version_of(made), "x-ms-namespace-enabled": self._hierarchical})

    def _filesystem_properties(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "rl", request, kind="c")
        found = self._namespace.filesystem(request.filesystem)
        headers = {**version_of(found), "x-ms-namespace-enabled": self._hierarchical}
        headers["x-ms-properties"] = format_properties(found.properties)
        return Answer(200, headers)

    def _set_filesystem_properties(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "w", request, kind="c")
        found = self._namespace.filesystem(request.filesystem)
        request.conditions.check(found)
        found.properties = parse_properties(request.headers.get("x-ms-properties", ""))
        found.touch(self._clock.etag())
        return Answer(200, version_of(found))

    def _delete_filesystem(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "d", request, kind="c")
        self._namespace.delete_filesystem(request.filesystem, request.conditions, request.lease)
        return Answer(202)

    @property
    def _hierarchical(self) -> str:
        return "true" if self._settings.hierarchical else "false"

    # --- Listing --------------------------------------------------------------------------------------------------

    def _list(self, request: Request, grant: Grant | None) -> Answer:
        directory = request.query.get("directory", "").strip("/")
        if grant is not None:
            grant.require("l", request.filesystem, directory, kind="l")
        request.parameter("recursive")
        recursive = request.flag("recursive")
        limit = request.number("maxresults", self._settings.list_page)
        if limit < 1:
            raise ServiceError("OutOfRangeQueryParameterValue")
        node = self._namespace.get(request.filesystem, directory)
        continuation = request.query.get("continuation")
        # A client that lists a file gets that file, as one that asks for its status does.
        if not node.is_directory:
            entries, more = [(directory, node)], None
        else:
            entries, more = listing.page(
                node,
                directory,
                recursive=recursive,
                after=continuation or None,
                limit=min(limit, self._settings.list_page),
                begin_from=request.query.get("beginfrom"),
            )
        body = json.dumps({"paths": [_entry(name, found) for name, found in entries]}, separators=(",", ":"))
        headers = {"Content-Type": "application/json;charset=utf-8"}
        if more is not None:
            headers["x-ms-continuation"] = more
        return Answer(200, headers, body.encode())

    # --- Paths ----------------------------------------------------------------------------------------------------

    def _create(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "cw", request)
        if grant is not None and "w" not in grant.permissions and self._find(request) is not None:
            raise ServiceError("AuthorizationPermissionMismatch")
        _refuse_unsupported(request)
        if request.body:
            raise ServiceError("ContentLengthMustBeZero")
        properties = request.headers.get("x-ms-properties")
        parsed = parse_properties(properties) if properties is not None else None
        made = self._namespace.create(
            request.filesystem,
            request.path,
            directory=request.operation == "create-directory",
            conditions=request.conditions,
            lease=request.lease,
        )
        if parsed is not None:
            made.properties = parsed
        made.content = content_headers(request.headers, "x-ms-", made.content)
        access.apply_new(request, made)
        headers = {**version_of(made), **_ENCRYPTED}
        proposed = request.headers.get("x-ms-proposed-lease-id")
        if proposed is not None:
            made.lease, _, extra = leases.operate(
                made.lease,
                "acquire",
                given=None,
                proposed=proposed,
                duration=request.headers.get("x-ms-lease-duration", "-1"),
                break_period=None,
            )
            headers.update(extra)
        return Answer(201, headers)

    def _rename(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "wcm", request)
        raw, _, query = request.header("x-ms-rename-source").partition("?")
        try:
            source = path_in(raw)
        except ServiceError:
            raise ServiceError("InvalidSourceUri") from None
        if not source[1]:
            raise ServiceError("InvalidSourceUri")
        source_grant = self._authority.authorise_source(request, parse_query(query), source)
        if source_grant is not None:
            source_grant.require("dmw", *source)
        mode = request.query.get("mode", "posix").lower()
        if mode not in {"legacy", "posix"}:
            raise ServiceError("InvalidQueryParameterValue")
        if request.body:
            raise ServiceError("ContentLengthMustBeZero")
        properties = request.headers.get("x-ms-properties")
        parsed = parse_properties(properties) if properties is not None else None
        moved = self._namespace.rename(
            source,
            (request.filesystem, request.path),
            conditions=request.conditions,
            source_conditions=Conditions(request.headers, "x-ms-source-", "SourceConditionNotMet"),
            lease=request.lease,
            source_lease=request.headers.get("x-ms-source-lease-id") or None,
        )
        if parsed is not None:
            moved.properties = parsed
        return Answer(201, version_of(moved))

    def _read(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "r", request)
        node = self._namespace.get(request.filesystem, request.path)
        if node.is_directory:
            raise ServiceError("ResourceTypeMismatch")
        request.conditions.check_read(node)
        if request.lease is not None:
            leases.check(node.lease, request.lease)
        headers = node_headers(node)
        if node.properties:
            headers["x-ms-properties"] = format_properties(node.properties)
        return read_answer(request, node, headers)

    def _head(self, request: Request, grant: Grant | None) -> Answer:
        operation = request.operation
        _require(grant, "re" if operation != "get-access-control" else "er", request)
        if operation in {"get-access-control", "check-access"} and not self._settings.hierarchical:
            # How Hadoop's client tells the two kinds of account apart: 400 to this on the root means flat.
            raise ServiceError("UnsupportedQueryParameter")
        node = self._namespace.get(request.filesystem, request.path)
        request.conditions.check_read(node)
        headers = node_headers(node)
        headers["Content-Length"] = str(len(node.data))
        if operation == "get-access-control":
            headers["x-ms-acl"] = node.access_list
        if operation == "get-properties":
            headers["x-ms-properties"] = format_properties(node.properties)
        if operation == "check-access":
            request.parameter("fsaction")
        return Answer(200, headers)

    def _delete(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "d", request)
        more = self._namespace.delete(
            request.filesystem,
            request.path,
            recursive=request.flag("recursive"),
            conditions=request.conditions,
            lease=request.lease,
        )
        return Answer(200, {"x-ms-continuation": more} if more is not None else {})

    def _lease(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "w", request)
        node = self._namespace.get(request.filesystem, request.path)
        request.conditions.check(node)
        node.lease, status, headers = leases.operate(
            node.lease,
            request.header("x-ms-lease-action").lower(),
            given=request.lease,
            proposed=request.headers.get("x-ms-proposed-lease-id"),
            duration=request.headers.get("x-ms-lease-duration"),
            break_period=request.headers.get("x-ms-lease-break-period"),
        )
        return Answer(status, {**version_of(node), **headers})

    def _find(self, request: Request) -> Node | None:
        return self._namespace.find(request.filesystem, request.path)


def _require(grant: Grant | None, letters: str, request: Request, *, kind: str = "o") -> None:
    if grant is not None:
        grant.require(letters, request.filesystem, request.path, kind=kind)


def _refuse_unsupported(request: Request) -> None:
    for name in ("x-ms-expiry-option", "x-ms-encryption-context", "x-ms-encryption-key"):
        if name in request.headers:
            raise ServiceError("NotImplemented", f"The emulator does not know {name}.")


def _entry(name: str, node: Node) -> dict[str, str]:
    entry = {
        "name": name,
        "contentLength": str(len(node.data)),
        "creationTime": str(int((node.created + _FILETIME_EPOCH) * 10_000_000)),
        "etag": node.etag.strip('"'),
        "group": node.group,
        "lastModified": http_date(node.modified),
        "owner": node.owner,
        "permissions": shown_permissions(node),
    }
    if node.is_directory:
        entry["isDirectory"] = "true"
    return entry
