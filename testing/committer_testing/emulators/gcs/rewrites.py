"""Copies within the service: `rewriteTo`, which may take several calls, and `copyTo`, which takes one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from committer_testing.emulators.gcs.describe import object_resource
from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.namespace import Draft, Namespace
from committer_testing.emulators.gcs.objects import StoredObject
from committer_testing.emulators.gcs.settings import Settings
from committer_testing.emulators.gcs.wire import Answer, Request, json_answer

_MEGABYTE: Final = 1024 * 1024


@dataclass(slots=True)
class Rewrite:
    """One that is not done yet.

    Attributes:
        source: The version it reads.
        target: Bucket and object it makes.
        copied: How many bytes.
    """

    source: StoredObject
    target: tuple[str, str]
    copied: int = 0


class Rewrites:
    """Answers them.

    Args:
        settings: How much one call copies.
        namespace: Where.
        shown: What of a resource the request asked for.
    """

    def __init__(
        self, settings: Settings, namespace: Namespace, shown: Callable[[Request, dict[str, Any]], Any]
    ) -> None:
        self._settings = settings
        self._namespace = namespace
        self._shown = shown
        self._under_way: dict[str, Rewrite] = {}

    def copy(self, request: Request) -> Answer:
        """`copy`."""
        source = self._source(request)
        made = self._namespace.copy(source, request.bucket, request.name, _draft(request), request.preconditions)
        return json_answer(self._shown(request, object_resource(made, request.base)))

    def rewrite(self, request: Request) -> Answer:
        """`rewrite` ("Objects: rewrite"): preconditions are checked at each call, a token belongs to both ends."""
        source = self._source(request)
        target = (request.bucket, request.name)
        existing = self._namespace.find(*target)
        request.preconditions.check(existing)
        token = request.query.get("rewriteToken", "")
        one = self._under_way.get(token) if token else Rewrite(source, target)
        if one is None or one.target != target or one.source is not source:
            raise ServiceError("gone", status=410)
        one.copied = min(len(source.data), one.copied + self._step(request))
        size = len(source.data)
        resource: dict[str, Any] = {"kind": "storage#rewriteResponse", "objectSize": str(size)}
        if one.copied < size:
            if not token:
                token = secrets.token_urlsafe(24)
                self._under_way[token] = one
            resource |= {"done": False, "rewriteToken": token, "totalBytesRewritten": str(one.copied)}
            return json_answer(self._shown(request, resource))
        made = self._namespace.copy(source, *target, _draft(request), request.preconditions)
        self._under_way.pop(token, None)
        resource |= {"done": True, "totalBytesRewritten": str(size), "resource": object_resource(made, request.base)}
        return json_answer(self._shown(request, resource))

    def _source(self, request: Request) -> StoredObject:
        bucket, name = request.source or ("", "")
        generation = request.number("sourceGeneration") if "sourceGeneration" in request.query else None
        return self._namespace.get(bucket, name, request.source_preconditions, generation)

    def _step(self, request: Request) -> int:
        asked = request.number("maxBytesRewrittenPerCall")
        if asked % _MEGABYTE:
            # "this value must be an integral multiple of 1 MiB (1048576)".
            raise ServiceError("invalid", "maxBytesRewrittenPerCall must be an integral multiple of 1 MiB.")
        limits = [one for one in (asked, self._settings.rewrite_bytes) if one]
        return min(limits) if limits else 1 << 62


def _draft(request: Request) -> Draft | None:
    """What the target is to have; None for what the source has: an empty body says nothing."""
    resource = request.resource()
    return Draft.of(resource) if resource else None
