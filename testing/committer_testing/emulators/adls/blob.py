"""The blob endpoint on the same namespace: Put Blob, and the calls the official data lake client sends there."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape

from committer_testing.emulators.adls import leases
from committer_testing.emulators.adls.describe import (
    http_date,
    node_headers,
    read_answer,
    service_properties,
    version_of,
)
from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.namespace import Namespace
from committer_testing.emulators.adls.nodes import Clock, Filesystem, Node
from committer_testing.emulators.adls.sas import Grant
from committer_testing.emulators.adls.settings import Settings
from committer_testing.emulators.adls.wire import Answer, Request, check_hash, content_headers, metadata_of

_ENCRYPTED = {"x-ms-request-server-encrypted": "true"}
_XML = {"Content-Type": "application/xml"}

# By whether the call is on a container, its method, and `comp`.
_CONTAINER_CALLS = {
    ("PUT", ""): "create-filesystem",
    ("GET", ""): "get-filesystem-properties",
    ("HEAD", ""): "get-filesystem-properties",
    ("DELETE", ""): "delete-filesystem",
    ("PUT", "metadata"): "set-filesystem-properties",
    ("GET", "metadata"): "get-filesystem-properties",
    ("HEAD", "metadata"): "get-filesystem-properties",
    ("PUT", "lease"): "lease-filesystem",
    ("GET", "acl"): "get-filesystem-policies",
    ("HEAD", "acl"): "get-filesystem-policies",
    ("PUT", "acl"): "set-filesystem-policies",
}
_BLOB_CALLS = {
    ("PUT", ""): "put-blob",
    ("GET", ""): "read",
    ("HEAD", ""): "get-properties",
    ("DELETE", ""): "delete",
    ("PUT", "metadata"): "set-metadata",
    ("GET", "metadata"): "get-properties",
    ("HEAD", "metadata"): "get-properties",
    ("PUT", "properties"): "set-http-headers",
    ("PUT", "lease"): "lease",
}


def is_blob_call(request: Request) -> bool:
    """Whether a request to a URL that both endpoints share is the blob endpoint's.

    Its calls name `restype` or `comp`, or a blob type; what both endpoints have (GET, HEAD and DELETE of a path) is
    told apart by the answer the client accepts: the blob endpoint speaks XML, the DFS endpoint JSON.
    """
    if "restype" in request.query or "comp" in request.query or "x-ms-blob-type" in request.headers:
        return True
    if "x-ms-rename-source" in request.headers or "resource" in request.query or "action" in request.query:
        return False
    accepted = request.headers.get("Accept", "")
    return "xml" in accepted and "json" not in accepted


def operation_of(request: Request) -> str:
    """What a request asks for, in the words faults and the log use.

    Raises:
        ServiceError: Nothing the emulator knows.
    """
    restype = request.query.get("restype", "").lower()
    comp = request.query.get("comp", "").lower()
    if restype == "account" and comp == "properties" and request.method in {"GET", "HEAD"}:
        return "get-account-information"
    if restype == "service" and comp == "properties" and request.method == "GET" and not request.filesystem:
        return "get-service-properties"
    if not request.filesystem:
        if comp == "list" and not restype and request.method == "GET":
            return "list-filesystems"
        raise _unknown(restype, comp)
    calls = _CONTAINER_CALLS if restype == "container" and not request.path else _BLOB_CALLS
    name = calls.get((request.method, comp)) if restype in {"", "container"} else None
    if name is None or (calls is _BLOB_CALLS and not request.path):
        raise _unknown(restype, comp)
    return name


def _unknown(restype: str, comp: str) -> ServiceError:
    return ServiceError("NotImplemented", f"The emulator's blob endpoint does not know restype={restype} comp={comp}.")


class Blob:
    """Answers the blob endpoint's requests."""

    def __init__(self, settings: Settings, namespace: Namespace, clock: Clock) -> None:
        self._settings = settings
        self._namespace = namespace
        self._clock = clock
        self._handlers: dict[str, Callable[[Request, Grant | None], Answer]] = {
            "get-account-information": self._account_information,
            "get-service-properties": self._service_properties,
            "list-filesystems": self._list_containers,
            "create-filesystem": self._create_container,
            "get-filesystem-properties": self._container_properties,
            "set-filesystem-properties": self._set_container_metadata,
            "delete-filesystem": self._delete_container,
            "lease-filesystem": self._lease_container,
            "get-filesystem-policies": self._get_policies,
            "set-filesystem-policies": self._set_policies,
            "put-blob": self._put,
            "read": self._read,
            "get-properties": self._properties,
            "delete": self._delete,
            "set-metadata": self._set_metadata,
            "set-http-headers": self._set_headers,
            "lease": self._lease,
        }

    def answer(self, request: Request, grant: Grant | None) -> Answer:
        """Does what an authorised request asks.

        Raises:
            ServiceError: The service refuses.
        """
        return self._handlers[request.operation](request, grant)

    # --- The account and containers -------------------------------------------------------------------------------

    def _account_information(self, request: Request, grant: Grant | None) -> Answer:
        # Any SAS that verifies may ask ("Get Account Information").
        return Answer(
            200,
            {
                "x-ms-sku-name": "Standard_LRS",
                "x-ms-account-kind": "StorageV2",
                "x-ms-is-hns-enabled": "true" if self._settings.hierarchical else "false",
            },
        )

    def _service_properties(self, request: Request, grant: Grant | None) -> Answer:
        # Of signatures only one of the account may ask, for reading the service ("Create an account SAS").
        _require(grant, "r", request, kind="s")
        version = request.headers.get("x-ms-version", "")
        return Answer(200, dict(_XML), service_properties(self._settings.soft_delete_days, version))

    def _list_containers(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "l", request, kind="s")
        prefix, after = request.query.get("prefix", ""), request.query.get("marker", "")
        limit = min(request.number("maxresults", 5_000), 5_000)
        with_metadata = "metadata" in request.query.get("include", "")
        names = [name for name in sorted(self._namespace.filesystems) if name.startswith(prefix) and name > after]
        shown = names[:limit]
        containers = "".join(_container(name, self._namespace.filesystems[name], with_metadata) for name in shown)
        marker = shown[-1] if len(names) > limit else ""
        body = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Prefix>{escape(prefix)}</Prefix>'
            f"<Containers>{containers}</Containers><NextMarker>{escape(marker)}</NextMarker></EnumerationResults>"
        )
        return Answer(200, dict(_XML), body.encode())

    def _create_container(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "cw", request, kind="c")
        made = self._namespace.create_filesystem(request.filesystem, metadata_of(request.headers))
        made.public_access = request.headers.get("x-ms-blob-public-access")
        return Answer(201, version_of(made))

    def _container_properties(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "rl", request, kind="c")
        found = self._namespace.filesystem(request.filesystem)
        headers = {**version_of(found), **leases.describe(found.lease), **_metadata_headers(found.properties)}
        headers["x-ms-has-immutability-policy"] = headers["x-ms-has-legal-hold"] = "false"
        headers["x-ms-default-encryption-scope"] = "$account-encryption-key"
        headers["x-ms-deny-encryption-scope-override"] = "false"
        if found.public_access:
            headers["x-ms-blob-public-access"] = found.public_access
        return Answer(200, headers)

    def _set_container_metadata(self, request: Request, grant: Grant | None) -> Answer:
        found = self._writable_container(request, grant, "w")
        found.properties = metadata_of(request.headers)
        found.touch(self._clock.etag())
        return Answer(200, version_of(found))

    def _delete_container(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "d", request, kind="c")
        self._namespace.delete_filesystem(request.filesystem, request.conditions, request.lease)
        return Answer(202)

    def _lease_container(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "w", request, kind="c")
        found = self._namespace.filesystem(request.filesystem)
        found.lease, status, headers = _lease(found.lease, request)
        return Answer(status, {**version_of(found), **headers})

    def _get_policies(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "r", request, kind="c")
        found = self._namespace.filesystem(request.filesystem)
        headers = {**version_of(found), **_XML}
        if found.public_access:
            headers["x-ms-blob-public-access"] = found.public_access
        empty = b'<?xml version="1.0" encoding="utf-8"?><SignedIdentifiers />'
        return Answer(200, headers, found.policies or empty)

    def _set_policies(self, request: Request, grant: Grant | None) -> Answer:
        found = self._writable_container(request, grant, "w")
        found.policies = request.body
        found.public_access = request.headers.get("x-ms-blob-public-access")
        found.touch(self._clock.etag())
        return Answer(200, version_of(found))

    def _writable_container(self, request: Request, grant: Grant | None, letters: str) -> Filesystem:
        _require(grant, letters, request, kind="c")
        found = self._namespace.filesystem(request.filesystem)
        request.conditions.check(found)
        if request.lease is not None:
            leases.check(found.lease, request.lease)
        return found

    # --- Blobs ----------------------------------------------------------------------------------------------------

    def _put(self, request: Request, grant: Grant | None) -> Answer:
        existing = self._namespace.find(request.filesystem, request.path)
        _require(grant, "cw" if existing is None else "w", request)
        if request.header("x-ms-blob-type") != "BlockBlob":
            raise ServiceError("NotImplemented", "The emulator knows block blobs only.")
        if "Content-Length" not in request.headers:
            raise ServiceError("MissingContentLengthHeader")
        check_hash(request)
        metadata = _checked(metadata_of(request.headers))
        if existing is not None and not request.conditions.only_if_absent:
            # Other than a create on the DFS endpoint, this needs the lease ("Put Blob").
            leases.check(existing.lease, request.lease)
        made = self._namespace.create(
            request.filesystem, request.path, directory=False, conditions=request.conditions, lease=request.lease
        )
        made.data = request.body
        made.by_blob_api = True
        made.properties = metadata
        content_type = request.headers.get("Content-Type")
        made.content = content_headers(
            request.headers, "x-ms-blob-", {"content-type": content_type} if content_type else {}
        )
        digest = base64.b64encode(hashlib.md5(request.body, usedforsecurity=False).digest()).decode()
        made.content.setdefault("content-md5", digest)
        return Answer(201, {**version_of(made), "Content-MD5": digest, **_ENCRYPTED})

    def _read(self, request: Request, grant: Grant | None) -> Answer:
        node = self._readable(request, grant, "r")
        if node.is_directory:
            raise ServiceError("ResourceTypeMismatch")
        return read_answer(request, node, _headers(node))

    def _properties(self, request: Request, grant: Grant | None) -> Answer:
        node = self._readable(request, grant, "re")
        headers = _headers(node)
        headers["Content-Length"] = str(len(node.data))
        if self._settings.hierarchical:
            headers["x-ms-acl"] = node.access_list
        return Answer(200, headers)

    def _delete(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "d", request)
        self._namespace.delete(
            request.filesystem, request.path, recursive=False, conditions=request.conditions, lease=request.lease
        )
        return Answer(202, {"x-ms-delete-type-permanent": "false" if self._settings.soft_delete_days else "true"})

    def _set_metadata(self, request: Request, grant: Grant | None) -> Answer:
        node = self._writable(request, grant)
        node.properties = _checked(metadata_of(request.headers))
        node.touch(self._clock.etag())
        return Answer(200, {**version_of(node), **_ENCRYPTED})

    def _set_headers(self, request: Request, grant: Grant | None) -> Answer:
        node = self._writable(request, grant)
        # What isn't named is cleared ("Set Blob Properties").
        node.content = content_headers(request.headers, "x-ms-blob-", {})
        node.touch(self._clock.etag())
        return Answer(200, version_of(node))

    def _lease(self, request: Request, grant: Grant | None) -> Answer:
        _require(grant, "w", request)
        node = self._namespace.get(request.filesystem, request.path)
        request.conditions.check(node)
        node.lease, status, headers = _lease(node.lease, request)
        return Answer(status, {**version_of(node), **headers})

    def _readable(self, request: Request, grant: Grant | None, letters: str) -> Node:
        _require(grant, letters, request)
        node = self._namespace.get(request.filesystem, request.path)
        request.conditions.check_read(node)
        if request.lease is not None:
            leases.check(node.lease, request.lease)
        return node

    def _writable(self, request: Request, grant: Grant | None) -> Node:
        _require(grant, "w", request)
        node = self._namespace.get(request.filesystem, request.path)
        request.conditions.check(node)
        leases.check(node.lease, request.lease)
        return node


def _headers(node: Node) -> dict[str, str]:
    headers = {**node_headers(node), **_metadata_headers(node.properties)}
    headers["x-ms-blob-type"] = "BlockBlob"
    headers["x-ms-access-tier"] = "Hot"
    headers["x-ms-access-tier-inferred"] = "true"
    if node.is_directory:
        headers["x-ms-meta-hdi_isfolder"] = "true"
    return headers


def _metadata_headers(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"x-ms-meta-{name}": value for name, value in properties.items()}


def _checked(metadata: dict[str, str]) -> dict[str, str]:
    # "Metadata names must adhere to the naming rules for C# identifiers" ("Set Blob Metadata").
    if not all(name.isidentifier() for name in metadata):
        raise ServiceError("InvalidMetadata")
    return metadata


def _lease(lease: leases.Lease | None, request: Request) -> tuple[leases.Lease | None, int, dict[str, str]]:
    return leases.operate(
        lease,
        request.header("x-ms-lease-action").lower(),
        given=request.lease,
        proposed=request.headers.get("x-ms-proposed-lease-id"),
        duration=request.headers.get("x-ms-lease-duration"),
        break_period=request.headers.get("x-ms-lease-break-period"),
    )


def _container(name: str, found: Filesystem, with_metadata: bool) -> str:
    state = leases.describe(found.lease)
    metadata = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in found.properties.items())
    return (
        f"<Container><Name>{escape(name)}</Name><Properties><Last-Modified>{http_date(found.modified)}</Last-Modified>"
        f"<Etag>{escape(found.etag)}</Etag><LeaseStatus>{state['x-ms-lease-status']}</LeaseStatus>"
        f"<LeaseState>{state['x-ms-lease-state']}</LeaseState>"
        "<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold></Properties>"
        + (f"<Metadata>{metadata}</Metadata>" if with_metadata else "")
        + "</Container>"
    )


def _require(grant: Grant | None, letters: str, request: Request, *, kind: str = "o") -> None:
    if grant is not None:
        grant.require(letters, request.filesystem, request.path, kind=kind)
