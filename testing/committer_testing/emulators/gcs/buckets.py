"""Calls on buckets: making, configuring and deleting them, and what they say of their layout and of permissions."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from committer_testing.emulators.gcs.access import Access
from committer_testing.emulators.gcs.describe import bucket_resource
from committer_testing.emulators.gcs.errors import ServiceError
from committer_testing.emulators.gcs.namespace import Namespace
from committer_testing.emulators.gcs.objects import Bucket, timestamp
from committer_testing.emulators.gcs.preconditions import Preconditions
from committer_testing.emulators.gcs.settings import Settings
from committer_testing.emulators.gcs.wire import Answer, Request, json_answer

# "Bucket names": 3 to 63 characters, up to 222 with dots; lower case, digits, dashes, underscores and dots.
_NAME = re.compile(r"[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]", re.ASCII)
# The fields of a bucket's resource that clients may set and get back.
_SETTABLE: Final = frozenset(
    {
        "acl",
        "autoclass",
        "billing",
        "cors",
        "defaultEventBasedHold",
        "defaultObjectAcl",
        "encryption",
        "hierarchicalNamespace",
        "iamConfiguration",
        "labels",
        "lifecycle",
        "location",
        "logging",
        "retentionPolicy",
        "rpo",
        "softDeletePolicy",
        "storageClass",
        "versioning",
        "website",
    }
)


class Buckets:
    """Answers them."""

    def __init__(self, settings: Settings, namespace: Namespace, access: Access) -> None:
        self._settings = settings
        self._namespace = namespace
        self._access = access

    def make(self, name: str, resource: dict[str, Any] | None = None, project: str = "") -> Bucket:
        """Makes a bucket.

        Raises:
            ServiceError: The name makes no sense or is taken, or the resource asks for what is not emulated.
        """
        if not _NAME.fullmatch(name) or ".." in name or any(len(part) > 63 for part in name.split(".")):
            raise ServiceError("invalid", f"Invalid bucket name: '{name}'")
        if name in self._namespace.buckets:
            raise ServiceError("conflict")
        configured = self._configured(resource or {}, {})
        if self._settings.hierarchical:
            configured.setdefault("hierarchicalNamespace", {"enabled": True})
        if (configured.get("hierarchicalNamespace") or {}).get("enabled"):
            # "Hierarchical namespace": such buckets have no access control lists of objects.
            configured["iamConfiguration"] = {"uniformBucketLevelAccess": {"enabled": True}}
        if self._settings.soft_delete_seconds:
            configured.setdefault(
                "softDeletePolicy", {"retentionDurationSeconds": str(self._settings.soft_delete_seconds)}
            )
        made = Bucket(name, project or self._settings.project, configured)
        self._namespace.buckets[name] = made
        return made

    def create(self, request: Request) -> Answer:
        """`create-bucket`."""
        resource = request.resource()
        if not isinstance(resource.get("name"), str):
            raise ServiceError("required", "Required parameter: name")
        return self._shown(request, self.make(resource["name"], resource, request.parameter("project")))

    def list_all(self, request: Request) -> Answer:
        """`list-buckets`; always one page."""
        project = request.parameter("project")
        prefix = request.query.get("prefix", "")
        found = [
            bucket_resource(bucket, request.base)
            for name, bucket in sorted(self._namespace.buckets.items())
            if bucket.project == project and name.startswith(prefix)
        ]
        return json_answer({"kind": "storage#buckets"} | ({"items": found} if found else {}))

    def get(self, request: Request) -> Answer:
        """`get-bucket`."""
        bucket = self._namespace.bucket(request.bucket)
        request.preconditions.check_read(bucket)
        return self._shown(request, bucket)

    def patch(self, request: Request) -> Answer:
        """`patch-bucket`."""
        bucket = self._namespace.bucket(request.bucket)
        request.preconditions.check(bucket)
        before = bucket.configured.get("retentionPolicy") or {}
        configured = self._configured(request.resource(), bucket.configured)
        if before.get("isLocked"):
            seconds = int((configured.get("retentionPolicy") or {}).get("retentionPeriod", 0))
            if seconds < int(before["retentionPeriod"]):
                raise ServiceError("retentionPolicyLocked")
        bucket.configured = configured
        self._touch(bucket)
        return self._shown(request, bucket)

    def lock(self, request: Request) -> Answer:
        """`lock-retention-policy`."""
        bucket = self._namespace.bucket(request.bucket)
        request.parameter("ifMetagenerationMatch")
        Preconditions(request.query).check(bucket)
        if not bucket.retention_seconds:
            raise ServiceError("invalid", "The bucket has no retention policy.")
        bucket.configured["retentionPolicy"]["isLocked"] = True
        self._touch(bucket)
        return self._shown(request, bucket)

    def delete(self, request: Request) -> Answer:
        """`delete-bucket`."""
        bucket = self._namespace.bucket(request.bucket)
        request.preconditions.check(bucket)
        if bucket.objects:
            raise ServiceError("conflict", "The bucket you tried to delete is not empty.")
        del self._namespace.buckets[bucket.name]
        return Answer(204)

    def layout(self, request: Request) -> Answer:
        """`get-storage-layout` ("Buckets: getStorageLayout")."""
        bucket = self._namespace.bucket(request.bucket)
        return json_answer(
            {
                "kind": "storage#storageLayout",
                "bucket": bucket.name,
                "location": "US",
                "locationType": "multi-region",
                "hierarchicalNamespace": {"enabled": bucket.hierarchical},
            }
        )

    def permissions(self, request: Request, asked: list[str]) -> Answer:
        """`test-permissions`: those of the permissions asked for that the caller has."""
        self._namespace.bucket(request.bucket)
        granted = [one for one in asked if self._access.grants(one)]
        found = {"permissions": granted} if granted else {}
        return json_answer({"kind": "storage#testIamPermissionsResponse", **found})

    def _configured(self, resource: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        configured = dict(before)
        for name in _SETTABLE & resource.keys():
            if resource[name] is None:
                configured.pop(name, None)
            else:
                configured[name] = resource[name]
        if (configured.get("versioning") or {}).get("enabled"):
            raise ServiceError("notImplemented", "The emulator does not know object versions.")
        for name, number, moment in (
            ("retentionPolicy", "retentionPeriod", "effectiveTime"),
            ("softDeletePolicy", "retentionDurationSeconds", "effectiveTime"),
        ):
            policy = configured.get(name)
            if policy:
                if not str(policy.get(number, "")).isdigit():
                    raise ServiceError("invalid", f"Invalid value for {name}.{number}.")
                # Times in JSON are numbers in text, as all of 64 bits are.
                configured[name] = {moment: timestamp(time.time()), **policy, number: str(policy[number])}
        return configured

    @staticmethod
    def _touch(bucket: Bucket) -> None:
        bucket.metageneration += 1
        bucket.updated = time.time()

    @staticmethod
    def _shown(request: Request, bucket: Bucket) -> Answer:
        return json_answer(bucket_resource(bucket, request.base))
