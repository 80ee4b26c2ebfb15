"""Objects of a bucket, and the clock that stamps them."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from committer_testing.emulators.serving import HttpClock

# The fields of an object's resource that a client may set with text, and that a copy keeps.
SETTABLE = (
    "cacheControl",
    "contentDisposition",
    "contentEncoding",
    "contentLanguage",
    "contentType",
    "customTime",
    "storageClass",
)


class Clock(HttpClock):
    """Gives generations that never repeat, and times as HTTP writes them."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0

    def generation(self) -> int:
        """The next one; the service's are times in microseconds, too."""
        self._last = max(self._last + 1, time.time_ns() // 1_000)
        return self._last


def timestamp(moment: float) -> str:
    """A time as resources tell it (RFC 3339)."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(text: str) -> float:
    """The reverse of `timestamp`.

    Raises:
        ValueError: It is none.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


@dataclass(slots=True)
class StoredObject:
    """One version of an object.

    Attributes:
        content: The fields of `SETTABLE` that it has.
        metadata: What users set; None for none.
        md5: None for a composite object.
        components: How many objects it was composed of; 0 for any other.
        temporary_hold: Whether it must not be deleted or replaced until this is taken back.
        event_hold: Likewise.
        retention: Its own retention: `mode` and `retainUntilTime`; None for none.
        deleted: When it was deleted, in a bucket that keeps such objects; 0 while it lives.
    """

    bucket: str
    name: str
    generation: int
    metageneration: int
    data: bytes
    crc32c: str
    md5: str | None
    created: float
    updated: float
    content: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] | None = None
    components: int = 0
    temporary_hold: bool = False
    event_hold: bool = False
    retention: dict[str, str] | None = None
    deleted: float = 0.0


class Bucket:
    """A bucket.

    Attributes:
        configured: The fields of its resource that clients set.
        objects: The live ones, by name; change them with `put` and `remove`.
        soft_deleted: Those deleted that are still kept, oldest first.
        changed: When each object name last changed, by the monotonic clock; kept only for `object_change_seconds`.
    """

    def __init__(self, name: str, project: str, configured: dict[str, Any]) -> None:
        self.name: str = name
        self.project: str = project
        self.generation: int = 1
        self.metageneration: int = 1
        self.created: float = time.time()
        self.updated: float = self.created
        self.configured: dict[str, Any] = configured
        self.objects: dict[str, StoredObject] = {}
        self.soft_deleted: list[StoredObject] = []
        self.changed: dict[str, float] = {}
        self._names: list[str] = []

    @property
    def hierarchical(self) -> bool:
        """Whether it has a hierarchical namespace."""
        return bool((self.configured.get("hierarchicalNamespace") or {}).get("enabled"))

    @property
    def soft_delete_seconds(self) -> int:
        """How long it keeps deleted objects; 0 is off."""
        return int((self.configured.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0))

    @property
    def retention_seconds(self) -> int:
        """How long after its creation an object must not be deleted or replaced; 0 is off."""
        return int((self.configured.get("retentionPolicy") or {}).get("retentionPeriod", 0))

    def names(self) -> list[str]:
        """The names of its objects in the order of their UTF-8 bytes, which is that of their code points."""
        return self._names

    def put(self, made: StoredObject) -> None:
        """Makes an object the live one of its name; the one before is kept if deleted objects are."""
        before = self.objects.get(made.name)
        if before is None:
            insort(self._names, made.name)
        else:
            self._keep(before)
        self.objects[made.name] = made

    def remove(self, name: str, *, moved: bool = False) -> None:
        """Takes an object away; it is kept if deleted objects are, unless it was moved."""
        gone = self.objects.pop(name)
        del self._names[bisect_left(self._names, name)]
        if not moved:
            self._keep(gone)

    def kept(self) -> list[StoredObject]:
        """The deleted objects whose time has not come."""
        ends = time.time() - self.soft_delete_seconds
        self.soft_deleted = [one for one in self.soft_deleted if one.deleted > ends]
        return self.soft_deleted

    def _keep(self, gone: StoredObject) -> None:
        if self.soft_delete_seconds:
            gone.deleted = time.time()
            self.soft_deleted.append(gone)
