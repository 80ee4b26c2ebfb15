"""The JSON API: what answers each operation, and the answers of those on objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from committer_testing.emulators.gcs.access import Access
from committer_testing.emulators.gcs.buckets import Buckets
from committer_testing.emulators.gcs.describe import media_answer, object_resource, parse_fields, select
from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.listing import Listing
from committer_testing.emulators.gcs.namespace import Draft, Namespace
from committer_testing.emulators.gcs.objects import StoredObject, timestamp
from committer_testing.emulators.gcs.preconditions import Preconditions
from committer_testing.emulators.gcs.rewrites import Rewrites
from committer_testing.emulators.gcs.settings import Settings
from committer_testing.emulators.gcs.uploads import Uploads
from committer_testing.emulators.gcs.wire import Answer, Request, json_answer, parse_query


class JsonApi:
    """Answers its calls.

    Attributes:
        buckets: Calls on buckets.
        uploads: Calls that make objects of what they carry.
    """

    def __init__(self, settings: Settings, namespace: Namespace, access: Access) -> None:
        self._settings = settings
        self._namespace = namespace
        self._access = access
        self.buckets: Buckets = Buckets(settings, namespace, access)
        self.uploads: Uploads = Uploads(namespace, shown)
        rewrites = Rewrites(settings, namespace, shown)
        self._handlers: dict[str, Callable[[Request], Answer]] = {
            "list-buckets": self.buckets.list_all,
            "create-bucket": self.buckets.create,
            "get-bucket": self.buckets.get,
            "patch-bucket": self.buckets.patch,
            "lock-retention-policy": self.buckets.lock,
            "delete-bucket": self.buckets.delete,
            "get-storage-layout": self.buckets.layout,
            "test-permissions": self._test_permissions,
            "insert": self.uploads.insert,
            "start-upload": self.uploads.start,
            "upload-chunk": self.uploads.put,
            "cancel-upload": self.uploads.cancel,
            "list": self._list,
            "get": self._get,
            "read": self._read,
            "move": self._move,
            "rewrite": rewrites.rewrite,
            "copy": rewrites.copy,
            "compose": self._compose,
            "patch": self._patch,
            "update": self._patch,
            "delete": self._delete,
            "restore": self._restore,
        }

    def answer(self, request: Request) -> Answer:
        """The answer to an authorised request.

        Raises:
            ServiceError: The refusal.
        """
        if request.operation == "move" and not self._settings.has_move:
            # A server needs no right of a caller to say that it does not know the call.
            raise ServiceError("notImplemented", status=self._settings.missing_move_status)
        if self._settings.denied:
            replaces = bool(request.name) and self._exists(request)
            self._access.check(request.operation, f"{request.bucket}/{request.name}", replaces=replaces)
        for operation, parameter in self._settings.ignored_conditions:
            if operation == request.operation:
                request.query.pop(parameter, None)
        return self._handlers[request.operation](request)

    def _exists(self, request: Request) -> bool:
        bucket = self._namespace.buckets.get(request.bucket)
        return bucket is not None and request.name in bucket.objects

    # --- Answers --------------------------------------------------------------------------------------------------

    def _test_permissions(self, request: Request) -> Answer:
        query = request.target.partition("?")[2]
        asked = [parse_query(part)["permissions"] for part in query.split("&") if part.startswith("permissions=")]
        return self.buckets.permissions(request, asked)

    def _list(self, request: Request) -> Answer:
        bucket = self._namespace.bucket(request.bucket)
        query = request.query
        for unknown in ("versions", "matchGlob", "filter"):
            if query.get(unknown, "false") not in {"false", ""}:
                raise ServiceError("notImplemented", f"The emulator does not know {unknown}.")
        # Above a page, and 0, the service gives what it gives without the parameter.
        most = request.number("maxResults") or self._settings.list_page
        resource: dict[str, Any] = {"kind": "storage#objects"}
        if request.flag("softDeleted"):
            found = [one for one in bucket.kept() if one.name.startswith(query.get("prefix", ""))]
            kept = sorted(found, key=lambda one: (one.name, one.generation))
            resource["items"] = [object_resource(one, request.base, bucket.soft_delete_seconds) for one in kept]
            return json_answer(shown(request, resource))
        listing = Listing(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            trailing=request.flag("includeTrailingDelimiter"),
            start=query.get("startOffset", ""),
            end=query.get("endOffset", ""),
            token=query.get("pageToken", ""),
            limit=min(most, self._settings.list_page),
        )
        page = listing.page(bucket)
        if page.more is not None:
            resource["nextPageToken"] = page.more
        if page.prefixes:
            resource["prefixes"] = page.prefixes
        if page.objects:
            resource["items"] = [self._described(one, request) for one in page.objects]
        return json_answer(shown(request, resource))

    def _get(self, request: Request) -> Answer:
        if request.flag("softDeleted"):
            one = self._namespace.soft_deleted(request.bucket, request.name, request.generation)
            seconds = self._namespace.bucket(request.bucket).soft_delete_seconds
            return json_answer(shown(request, object_resource(one, request.base, seconds)))
        one = self._namespace.get(request.bucket, request.name, request.preconditions, request.generation, read=True)
        return self._resource(request, one)

    def _read(self, request: Request) -> Answer:
        one = self._namespace.get(request.bucket, request.name, request.preconditions, request.generation, read=True)
        return media_answer(request, one)

    def _move(self, request: Request) -> Answer:
        source = (request.source or ("", ""))[1]
        made = self._namespace.move(
            request.bucket, source, request.name, request.preconditions, request.source_preconditions
        )
        return self._resource(request, made)

    def _compose(self, request: Request) -> Answer:
        resource = request.resource()
        sources = []
        for one in resource.get("sourceObjects") or []:
            wanted = Preconditions(one.get("objectPreconditions") or {})
            generation = one.get("generation")
            sources.append((str(one.get("name", "")), None if generation is None else int(generation), wanted))
        made = self._namespace.compose(
            request.bucket,
            request.name,
            sources,
            Draft.of(resource.get("destination") or {}),
            request.preconditions,
            deletes_sources=bool(resource.get("deleteSourceObjects")),
        )
        return self._resource(request, made)

    def _patch(self, request: Request) -> Answer:
        changed = self._namespace.patch(
            request.bucket,
            request.name,
            request.resource(),
            request.preconditions,
            request.generation,
            replaces=request.operation == "update",
        )
        return self._resource(request, changed)

    def _delete(self, request: Request) -> Answer:
        self._namespace.delete(request.bucket, request.name, request.preconditions, request.generation)
        return Answer(204)

    def _restore(self, request: Request) -> Answer:
        kept = self._namespace.soft_deleted(request.bucket, request.name, request.generation)
        made = self._namespace.copy(kept, request.bucket, request.name, None, request.preconditions)
        return self._resource(request, made)

    def _resource(self, request: Request, one: StoredObject) -> Answer:
        return json_answer(shown(request, self._described(one, request)))

    def _described(self, one: StoredObject, request: Request) -> dict[str, Any]:
        resource = object_resource(one, request.base)
        until = self._namespace.locked_until(one)
        if until:
            resource["retentionExpirationTime"] = timestamp(until)
        return resource


def shown(request: Request, resource: dict[str, Any]) -> Any:
    """What of a resource the `fields` parameter asks for."""
    asked = request.query.get("fields")
    return resource if not asked else select(resource, parse_fields(asked))
