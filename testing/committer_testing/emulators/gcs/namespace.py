"""The service's buckets: what each operation on objects does to them, atomically, as plain calls without I/O."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from committer_testing.emulators.gcs.errors import ServiceError, no_object
from committer_testing.emulators.gcs.hashes import crc32c_of, md5_of
from committer_testing.emulators.gcs.objects import SETTABLE, Bucket, Clock, StoredObject, moment_of, timestamp
from committer_testing.emulators.gcs.preconditions import Preconditions
from committer_testing.emulators.gcs.settings import Settings

# "Compose": at most 32 sources.
_MOST_SOURCES = 32
# "Object metadata": custom metadata holds 8 KiB at most, names and values together.
_METADATA_LIMIT = 8 * 1024
# "Object names": 1 to 1024 bytes of UTF-8.
_NAME_LIMIT = 1024


@dataclass(slots=True)
class Draft:
    """What a client says of an object that it makes.

    Attributes:
        content: Fields of `objects.SETTABLE`.
        metadata: Custom metadata; None where it says nothing of it.
        crc32c: What it says the data's checksum is; None for nothing.
        md5: Likewise.
        temporary_hold: Whether it is to be under this hold.
        event_hold: Likewise.
        retention: Its own retention.
    """

    content: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] | None = None
    crc32c: str | None = None
    md5: str | None = None
    temporary_hold: bool = False
    event_hold: bool = False
    retention: dict[str, str] | None = None

    @classmethod
    def of(cls, resource: dict[str, Any]) -> Draft:
        """What an object's resource in a request says.

        Raises:
            ServiceError: A field is of the wrong type, or the metadata is over the service's limit.
        """
        draft = cls()
        for name in SETTABLE:
            value = resource.get(name)
            if value is not None:
                draft.content[name] = _text(name, value)
        metadata = resource.get("metadata")
        if metadata is not None:
            if not isinstance(metadata, dict):
                raise ServiceError("invalid", "Invalid value for metadata.")
            draft.metadata = {name: _text(name, value) for name, value in metadata.items() if value is not None}
            check_metadata(draft.metadata)
        for name, attribute in (("crc32c", "crc32c"), ("md5Hash", "md5")):
            value = resource.get(name)
            if value is not None:
                setattr(draft, attribute, _text(name, value))
        draft.temporary_hold = bool(resource.get("temporaryHold"))
        draft.event_hold = bool(resource.get("eventBasedHold"))
        draft.retention = resource.get("retention") or None
        return draft


class Namespace:
    """Buckets by name, and the objects in them. Every method is atomic: nothing else runs while it does."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.buckets: dict[str, Bucket] = {}

    def bucket(self, name: str) -> Bucket:
        """The bucket of that name.

        Raises:
            ServiceError: notFound.
        """
        found = self.buckets.get(name)
        if found is None:
            raise ServiceError("notFound", "The specified bucket does not exist.")
        return found

    def find(self, bucket: str, name: str) -> StoredObject | None:
        """The live object of that name; None for none.

        Raises:
            ServiceError: notFound: the bucket.
        """
        return self.bucket(bucket).objects.get(name)

    def get(
        self, bucket: str, name: str, preconditions: Preconditions, generation: int | None = None, *, read: bool = False
    ) -> StoredObject:
        """The live object of that name, which preconditions hold for.

        Raises:
            ServiceError: notFound; conditionNotMet, or notModified for a read.
        """
        found = self.find(bucket, name)
        if found is None or generation not in {None, found.generation}:
            if self._settings.condition_on_absent == "condition":
                preconditions.check(None)
            raise no_object(bucket, name)
        if read:
            preconditions.check_read(found)
        else:
            preconditions.check(found)
        return found

    # --- Making ---------------------------------------------------------------------------------------------------

    def check_insert(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Raises ServiceError if an object could not be made now; a resumable upload is asked at its start, too."""
        _check_name(name)
        existing = self.find(bucket, name)
        preconditions.check(existing)
        if existing is not None:
            self._check_free(existing)

    def insert(
        self, bucket: str, name: str, data: bytes, draft: Draft, preconditions: Preconditions, components: int = 0
    ) -> StoredObject:
        """Makes an object, in place of the one that is there.

        Raises:
            ServiceError: The name or a checksum is wrong, conditionNotMet, or the old one must not be replaced.
        """
        self.check_insert(bucket, name, preconditions)
        self._check_pace(self.bucket(bucket), name)
        crc32c, md5 = crc32c_of(data), md5_of(data)
        if draft.crc32c not in {None, crc32c}:
            raise ServiceError(
                "invalid", f'Provided CRC32C "{draft.crc32c}" doesn\'t match calculated CRC32C "{crc32c}".'
            )
        if draft.md5 not in {None, md5}:
            raise ServiceError(
                "invalid", f'Provided MD5 hash "{draft.md5}" doesn\'t match calculated MD5 hash "{md5}".'
            )
        now = time.time()
        made = StoredObject(
            bucket=bucket,
            name=name,
            generation=self._clock.generation(),
            metageneration=1,
            data=data,
            crc32c=crc32c,
            md5=None if components else md5,
            created=now,
            updated=now,
            content=draft.content,
            metadata=draft.metadata,
            components=components,
            temporary_hold=draft.temporary_hold,
            event_hold=draft.event_hold,
            retention=draft.retention,
        )
        self.bucket(bucket).put(made)
        return made

    def copy(
        self, source: StoredObject, bucket: str, name: str, draft: Draft | None, preconditions: Preconditions
    ) -> StoredObject:
        """Makes an object with the data of another; with its metadata, too, unless a draft says what to have.

        Raises:
            ServiceError: As `insert`.
        """
        if draft is None:
            draft = Draft(content=dict(source.content), metadata=source.metadata and dict(source.metadata))
        return self.insert(bucket, name, source.data, draft, preconditions, source.components)

    def compose(
        self,
        bucket: str,
        name: str,
        sources: Sequence[tuple[str, int | None, Preconditions]],
        draft: Draft,
        preconditions: Preconditions,
        *,
        deletes_sources: bool = False,
    ) -> StoredObject:
        """Makes an object of others, one behind the other.

        Raises:
            ServiceError: None or too many sources, one that is not there or whose preconditions fail; as `insert`.
        """
        if not sources:
            raise ServiceError("required", "You must provide at least one source component.")
        if len(sources) > _MOST_SOURCES:
            raise ServiceError(
                "invalid",
                f"The number of source components provided ({len(sources)}) exceeds the maximum ({_MOST_SOURCES})",
            )
        parts = [self.get(bucket, source, wanted, generation) for source, generation, wanted in sources]
        data = b"".join(part.data for part in parts)
        made = self.insert(bucket, name, data, draft, preconditions, sum(part.components or 1 for part in parts))
        if deletes_sources:
            for part in {part.name for part in parts} - {name}:
                self.bucket(bucket).remove(part)
        return made

    def move(
        self, bucket: str, source: str, target: str, preconditions: Preconditions, source_preconditions: Preconditions
    ) -> StoredObject:
        """Gives an object another name in its bucket, in one step, in place of what is there ("Objects: move").

        Data and metadata are kept; generation and times are new, and the metageneration is 1.

        Raises:
            ServiceError: invalid: both names are one; notFound: the source; conditionNotMet, which does not tell which
                end it is about; either object must not be changed.
        """
        _check_name(target)
        if source == target:
            raise ServiceError("invalid", "The source and destination object names must be different.")
        found = self.get(bucket, source, source_preconditions)
        existing = self.find(bucket, target)
        preconditions.check(existing)
        self._check_free(found)
        if existing is not None:
            self._check_free(existing)
        held = self.bucket(bucket)
        self._check_pace(held, target)
        now = time.time()
        held.remove(source, moved=True)
        made = replace(
            found, name=target, generation=self._clock.generation(), metageneration=1, created=now, updated=now
        )
        held.put(made)
        return made

    # --- Changing -------------------------------------------------------------------------------------------------

    def patch(
        self,
        bucket: str,
        name: str,
        resource: dict[str, Any],
        preconditions: Preconditions,
        generation: int | None = None,
        *,
        replaces: bool = False,
    ) -> StoredObject:
        """Changes what an object says of itself: named fields only, or all of them (`replaces`); null takes one away.

        Raises:
            ServiceError: notFound, conditionNotMet, or a field makes no sense.
        """
        found = self.get(bucket, name, preconditions, generation)
        draft = Draft.of(resource)
        content = {} if replaces else dict(found.content)
        content.update(draft.content)
        for field_name in SETTABLE:
            if field_name in resource and resource[field_name] is None:
                content.pop(field_name, None)
        metadata = {} if replaces else dict(found.metadata or {})
        changes = resource.get("metadata", {})
        metadata.update(draft.metadata or {})
        for key, value in (changes or {}).items():
            if value is None:
                metadata.pop(key, None)
        if "metadata" in resource and changes is None:
            metadata = {}
        check_metadata(metadata)
        found.content, found.metadata = content, metadata or None
        if replaces or "temporaryHold" in resource:
            found.temporary_hold = draft.temporary_hold
        if replaces or "eventBasedHold" in resource:
            found.event_hold = draft.event_hold
        if "retention" in resource:
            found.retention = draft.retention
        found.metageneration += 1
        found.updated = time.time()
        return found

    def delete(self, bucket: str, name: str, preconditions: Preconditions, generation: int | None = None) -> None:
        """Deletes an object.

        Raises:
            ServiceError: notFound, conditionNotMet, or it must not be deleted.
        """
        found = self.get(bucket, name, preconditions, generation)
        self._check_free(found)
        self._check_pace(self.bucket(bucket), name)
        self.bucket(bucket).remove(name)

    def soft_deleted(self, bucket: str, name: str, generation: int | None) -> StoredObject:
        """An object that was deleted and is kept.

        Raises:
            ServiceError: notFound, or no generation was named.
        """
        if generation is None:
            raise ServiceError("required", "Required parameter: generation")
        for one in self.bucket(bucket).kept():
            if (one.name, one.generation) == (name, generation):
                return one
        raise no_object(bucket, name)

    # --- Rules ----------------------------------------------------------------------------------------------------

    def locked_until(self, one: StoredObject) -> float:
        """Until when an object must be neither deleted nor replaced; 0 for no such time."""
        until = 0.0
        seconds = self.bucket(one.bucket).retention_seconds
        if seconds:
            until = one.created + seconds
        if one.retention:
            until = max(until, moment_of(one.retention["retainUntilTime"]))
        return until

    def _check_free(self, one: StoredObject) -> None:
        # "Object holds", "Bucket Lock", "Object Retention Lock".
        for held, kind in ((one.temporary_hold, "Temporary"), (one.event_hold, "Event-Based")):
            if held:
                raise ServiceError(
                    "objectUnderActiveHold",
                    (
                        f"Object '{one.bucket}/{one.name}' is under active {kind} hold and cannot be deleted, "
                        "overwritten or archived until hold is removed."
                    ),
                )
        until = self.locked_until(one)
        if until > time.time():
            raise ServiceError(
                "retentionPolicyNotMet",
                (
                    f"Object '{one.bucket}/{one.name}' is subject to bucket's retention policy or object retention "
                    f"and cannot be deleted or overwritten until {timestamp(until)}"
                ),
            )

    def _check_pace(self, bucket: Bucket, name: str) -> None:
        pause = self._settings.object_change_seconds
        if not pause:
            return
        now = time.monotonic()
        if now - bucket.changed.get(name, -pause) < pause:
            raise ServiceError(
                "rateLimitExceeded",
                (
                    f"The object {bucket.name}/{name} exceeded the rate limit for object mutation operations (create, "
                    "update, and delete). Please reduce your request rate."
                ),
            )
        bucket.changed[name] = now


def check_metadata(metadata: dict[str, str]) -> None:
    """Raises ServiceError if custom metadata is over the service's limit."""
    size = sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items())
    if size > _METADATA_LIMIT:
        raise ServiceError("invalid", f"The metadata is {size} bytes; the maximum is {_METADATA_LIMIT}.")


def _check_name(name: str) -> None:
    # "Object names": no line breaks, neither "." nor "..", nothing below .well-known/acme-challenge/.
    wrong = name in {".", ".."} or "\r" in name or "\n" in name or name.startswith(".well-known/acme-challenge/")
    if not name:
        raise ServiceError("required", "Required parameter: name")
    if wrong or len(name.encode()) > _NAME_LIMIT:
        raise ServiceError("invalid", f"Invalid object name: {name[:100]!r}")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ServiceError("invalid", f"Invalid value for {name}: {value!r}")
    return value
