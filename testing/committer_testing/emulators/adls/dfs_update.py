"""The DFS endpoint's PATCH calls: append, flush, properties and access control."""

from __future__ import annotations

import json
from collections.abc import Callable

from committer_testing.emulators.adls import access, leases, listing
from committer_testing.emulators.adls.describe import version_of
from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.namespace import Namespace
from committer_testing.emulators.adls.nodes import Clock, Node
from committer_testing.emulators.adls.sas import Grant
from committer_testing.emulators.adls.settings import Settings
from committer_testing.emulators.adls.wire import Answer, Request, check_hash, content_headers, parse_properties

_OPERATIONS = {
    "append": "append",
    "flush": "flush",
    "setproperties": "set-properties",
    "setaccesscontrol": "set-access-control",
    "setaccesscontrolrecursive": "set-access-control-recursive",
}
_ENCRYPTED = {"x-ms-request-server-encrypted": "true"}
Handler = Callable[[Request, Grant | None], Answer]


def operation_of(action: str) -> str:
    """The operation's name.

    Raises:
        ServiceError: InvalidQueryParameterValue.
    """
    name = _OPERATIONS.get(action.lower())
    if name is None:
        raise ServiceError("InvalidQueryParameterValue")
    return name


class Update:
    """Answers them.

    Attributes:
        handlers: By operation.
    """

    def __init__(self, settings: Settings, namespace: Namespace, clock: Clock) -> None:
        self._settings = settings
        self._namespace = namespace
        self._clock = clock
        self.handlers: dict[str, Handler] = {
            "append": self._append,
            "flush": self._flush,
            "set-properties": self._set_properties,
            "set-access-control": self._set_access_control,
            "set-access-control-recursive": self._set_access_control_recursive,
        }

    def _append(self, request: Request, grant: Grant | None) -> Answer:
        node = self._file(request, grant, "aw")
        position = request.number("position")
        flush = request.flag("flush")
        if "x-ms-structured-body" in request.headers:
            raise ServiceError("NotImplemented", "The emulator does not know structured bodies.")
        leases.check(node.lease, request.lease)
        check_hash(request)
        if position < len(node.data):
            raise ServiceError("InvalidQueryParameterValue")
        if not request.body and not flush:
            raise ServiceError("InvalidHeaderValue")
        if flush:
            self._flushed(node, position + len(request.body), {position: request.body}, request, keep=False)
            return Answer(202, {**version_of(node), **_ENCRYPTED})
        if node.uncommitted is None:
            node.uncommitted = {}
        node.uncommitted[position] = request.body
        return Answer(202, dict(_ENCRYPTED))

    def _flush(self, request: Request, grant: Grant | None) -> Answer:
        node = self._file(request, grant, "aw")
        position = request.number("position")
        request.flag("close")
        if request.body:
            raise ServiceError("ContentLengthMustBeZero")
        request.conditions.check(node)
        headers = self._lease_before_flush(request, node)
        self._flushed(node, position, {}, request, keep=request.flag("retainuncommitteddata"))
        if request.headers.get("x-ms-lease-action", "").lower() in {"release", "acquire-release"}:
            node.lease = None
        return Answer(200, {**version_of(node), **_ENCRYPTED, **headers})

    def _flushed(self, node: Node, position: int, more: dict[int, bytes], request: Request, *, keep: bool) -> None:
        if node.by_blob_api:
            raise ServiceError("InvalidFlushOperation")
        waiting = {**(node.uncommitted or {}), **more}
        parts = [node.data]
        length = len(node.data)
        while length < position:
            part = waiting.pop(length, None)
            if not part:
                break
            parts.append(part)
            length += len(part)
        if length != position or (waiting and not keep):
            raise ServiceError("InvalidFlushPosition")
        if len(parts) > 1:
            node.data = b"".join(parts)
        node.uncommitted = waiting or None
        node.content = content_headers(request.headers, "x-ms-", node.content)
        node.touch(self._clock.etag())

    def _lease_before_flush(self, request: Request, node: Node) -> dict[str, str]:
        action = request.headers.get("x-ms-lease-action", "").lower()
        if action in {"acquire", "acquire-release"}:
            node.lease, _, headers = leases.operate(
                node.lease,
                "acquire",
                given=None,
                proposed=request.header("x-ms-proposed-lease-id"),
                duration=request.headers.get("x-ms-lease-duration", "-1"),
                break_period=None,
            )
            return headers
        leases.check(node.lease, request.lease)
        if action == "auto-renew":
            node.lease, _, _ = leases.operate(
                node.lease, "renew", given=request.lease, proposed=None, duration=None, break_period=None
            )
            return {"x-ms-lease-renewed": "true"}
        if action not in {"", "release"}:
            raise ServiceError("InvalidHeaderValue")
        return {}

    def _set_properties(self, request: Request, grant: Grant | None) -> Answer:
        if grant is not None:
            grant.require("w", request.filesystem, request.path)
        node = self._namespace.get(request.filesystem, request.path)
        request.conditions.check(node)
        leases.check(node.lease, request.lease)
        properties = request.headers.get("x-ms-properties")
        if properties is not None:
            node.properties = parse_properties(properties)
        node.content = content_headers(request.headers, "x-ms-", node.content)
        node.touch(self._clock.etag())
        return Answer(200, version_of(node))

    def _set_access_control(self, request: Request, grant: Grant | None) -> Answer:
        node = self._for_access(request, grant)
        request.conditions.check(node)
        leases.check(node.lease, request.lease)
        access.apply(request.headers, node)
        # What is in the way of a change is not its content: the service changes etag and time with the list, too.
        node.touch(self._clock.etag())
        return Answer(200, version_of(node))

    def _set_access_control_recursive(self, request: Request, grant: Grant | None) -> Answer:
        node = self._for_access(request, grant)
        mode = request.parameter("mode").lower()
        acl = request.header("x-ms-acl")
        limit = min(request.number("maxrecords", 2_000), 2_000)
        after = request.query.get("continuation") or None
        changed: list[tuple[str, Node]] = [] if after else [(request.path, node)]
        more = None
        if node.is_directory:
            entries, more = listing.page(node, request.path, recursive=True, after=after, limit=limit)
            changed += entries
        for _, one in changed:
            access.change_list(one, mode, acl)
        counts = {
            "directoriesSuccessful": sum(one.is_directory for _, one in changed),
            "failedEntries": [],
            "failureCount": 0,
            "filesSuccessful": sum(not one.is_directory for _, one in changed),
        }
        headers = {"Content-Type": "application/json;charset=utf-8"}
        if more is not None:
            headers["x-ms-continuation"] = more
        return Answer(200, headers, json.dumps(counts).encode())

    def _file(self, request: Request, grant: Grant | None, letters: str) -> Node:
        if grant is not None:
            grant.require(letters, request.filesystem, request.path)
        node = self._namespace.get(request.filesystem, request.path)
        if node.is_directory:
            raise ServiceError("ResourceTypeMismatch")
        return node

    def _for_access(self, request: Request, grant: Grant | None) -> Node:
        if grant is not None:
            # An account SAS has no letter for this, so writing stands for it there.
            letters = "w" if grant.filesystem is None else "po"
            grant.require(letters, request.filesystem, request.path)
        if not self._settings.hierarchical:
            raise ServiceError("UnsupportedQueryParameter")
        return self._namespace.get(request.filesystem, request.path)
