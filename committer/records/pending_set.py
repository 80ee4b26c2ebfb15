"""Hadoop's records of the magic committer: an uncompleted upload (``.pending``), and all of a task (``.pendingset``).

Written for Hadoop 3.3.2 and later; read from any of Hadoop's S3A committers. Decoding refuses what Java refuses,
and: an upload without parts or with too many, numbers over 64 bits, text after the record. Accepted as in Java:
unknown members, absent texts and statistics, any date; beyond Java: any `uri`, which is never used.

Source: ``SinglePendingCommit``, ``PendingSet`` and ``UploadEtag`` of Hadoop 3.3.6 and 3.5.0, run.
"""

# ruff: noqa: N815 - field names are Hadoop's
from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from committer.records.hadoop_json import bad_record, decode, members_of
from committer.records.statistics import IOStatistics, LazyStatistics, statistics_of

PENDING_VERSION: Final = 2
PENDING_SET_VERSION: Final = 3

PENDING_SUFFIX: Final = ".pending"
PENDING_SET_SUFFIX: Final = ".pendingset"

MAGIC_LENGTH: Final = "x-hadoop-s3a-magic-data-length"
"""Metadata key of a marker: the length of the uncompleted file."""

_MOST_PARTS: Final = 10_000
_PENDING_VERSIONS: Final = frozenset({1, 2})
# Version 2 had no statistics; Hadoop 3.3.1 and earlier.
_SET_VERSIONS: Final = frozenset({1, 2, 3})
_PENDING: Final = "pending upload"
_SET: Final = "pending set"

_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Length: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Time: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

EtagForm: TypeAlias = Literal["objects", "texts"]


class PartEtag(msgspec.Struct, frozen=True, gc=False):
    """A part of an upload, from the store's response.

    Attributes:
        etag: Java writes it with the quotes of the HTTP header since version 2 of the SDK.
        checksumAlgorithm: ``CRC32``, ``CRC32C``, ``SHA1``, ``SHA256``; or None.
    """

    etag: _Text
    checksumAlgorithm: str | None = None
    checksum: str | None = None


class PendingCommit(msgspec.Struct, kw_only=True, frozen=True):
    """An uncompleted upload: Hadoop's ``SinglePendingCommit``.

    Attributes:
        filename: The path that the record was read from. Never used.
        uri: The magic committer's path below the task attempt directory, or the staging committers' destination.
            Never used.
        destinationKey: Its key, without a leading slash.
        created: When it was saved, in milliseconds since the epoch.
        jobId: Empty until the task commits.
        taskId: The task *attempt*; empty until the task commits.
    """

    version: int = PENDING_VERSION
    filename: str | None = None
    uri: str = ""
    uploadId: str
    bucket: str
    destinationKey: str
    created: int = 0
    saved: int = 0
    date: str = ""
    jobId: str = ""
    taskId: str = ""
    text: str = ""
    etags: tuple[PartEtag, ...]
    extraData: dict[str, str] = {}
    length: int
    iostatistics: LazyStatistics = None

    def statistics(self, *, source: str = "") -> IOStatistics:
        """Decodes the statistics, empty if absent; raises RecordError if they are not in Hadoop's form."""
        return statistics_of(self.iostatistics, source=source)


class PendingSet(msgspec.Struct, kw_only=True, frozen=True):
    """All uploads of a committed task: Hadoop's ``PendingSet``.

    Attributes:
        jobId: Empty in the oldest records.
        extraData: Free text by key. Hadoop sets some, and writes none.
    """

    version: int = PENDING_SET_VERSION
    jobId: str = ""
    commits: tuple[PendingCommit, ...] = ()
    extraData: dict[str, str] = {}
    iostatistics: LazyStatistics = None

    def statistics(self, *, source: str = "") -> IOStatistics:
        """Decodes the statistics, empty if absent; raises RecordError if they are not in Hadoop's form."""
        return statistics_of(self.iostatistics, source=source)


class _Version(msgspec.Struct):
    version: int | None = None


class _StoredPending(msgspec.Struct, kw_only=True, gc=False):
    version: int
    filename: str | None = None
    uri: str | None = None
    uploadId: _Text
    bucket: _Text
    destinationKey: _Text
    created: _Time = 0
    saved: _Time = 0
    date: str | None = None
    jobId: str | None = None
    taskId: str | None = None
    text: str | None = None
    etags: Annotated[list[_Text | PartEtag], msgspec.Meta(min_length=1, max_length=_MOST_PARTS)]
    extraData: dict[str, str | None] | None = None
    length: _Length
    iostatistics: msgspec.Raw = msgspec.Raw(b"null")


class _StoredSet(msgspec.Struct, kw_only=True):
    version: int
    jobId: str | None = None
    commits: list[_StoredPending] = []
    extraData: dict[str, str | None] | None = None
    iostatistics: msgspec.Raw = msgspec.Raw(b"null")


def encode_pending(pending: PendingCommit, *, etags: EtagForm = "objects") -> bytes:
    """Encodes an upload's record as Hadoop's JSON, for a name that ends in ``.pending``.

    Args:
        etags: ``objects`` for Hadoop 3.4.2 and later, ``texts``, without checksums, for earlier ones.
    """
    return msgspec.json.encode(_members(pending, etags))


def encode_pending_set(record: PendingSet, *, etags: EtagForm = "objects") -> bytes:
    """Encodes a task's record as Hadoop's JSON, for a name that ends in ``.pendingset``; `etags` as for
    `encode_pending`.
    """
    commits = [_members(pending, etags) for pending in record.commits]
    return msgspec.json.encode({**msgspec.structs.asdict(record), "commits": commits} | _statistics(record))


def decode_pending(data: bytes, *, source: str) -> PendingCommit:
    """Decodes an upload's record, whose names may lie anywhere; raises RecordError if it could not be completed."""
    _check_version(data, _PENDING_VERSIONS, _PENDING, source)
    return _pending(decode(data, _StoredPending, source=source, what=_PENDING), "", source)


def decode_pending_set(data: bytes, *, source: str) -> PendingSet:
    """Decodes a task's record, whose names may lie anywhere.

    Raises RecordError if it could not be committed, or two uploads share a destination.
    """
    _check_version(data, _SET_VERSIONS, _SET, source)
    stored = decode(data, _StoredSet, source=source, what=_SET)
    seen: set[tuple[str, str]] = set()
    commits: list[PendingCommit] = []
    for index, one in enumerate(stored.commits):
        at = f"commits[{index}]."
        if one.version not in _PENDING_VERSIONS:
            raise bad_record(_SET, f"{at}version", f"{one.version} is not {PENDING_VERSION}", source=source)
        key = one.bucket, one.destinationKey
        if key in seen:
            reason = f"another upload has the same destination: {one.destinationKey}"
            raise bad_record(_SET, f"{at}destinationKey", reason, source=source)
        seen.add(key)
        commits.append(_pending(one, at, source))
    return PendingSet(**members_of(stored) | {"commits": tuple(commits), "extraData": _texts(stored.extraData)})


def java_date(moment: datetime) -> str:
    """Formats a moment as Java's ``Date`` prints it, in UTC and any locale: ``Sat Nov 21 19:34:40 UTC 2026``."""
    at = moment.astimezone(UTC)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[at.weekday()]
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[at.month - 1]
    return f"{day} {month} {at:%d %H:%M:%S} UTC {at.year:04d}"


def _members(pending: PendingCommit, form: EtagForm) -> dict[str, object]:
    members = msgspec.structs.asdict(pending) | _statistics(pending)
    if form == "texts":
        members["etags"] = [part.etag for part in pending.etags]
    return members


def _statistics(record: PendingCommit | PendingSet) -> dict[str, object]:
    # Hadoop's aggregation, unlike Java's beans, fails on null.
    return {"iostatistics": record.statistics()}


def _check_version(data: bytes, known: frozenset[int], what: str, source: str) -> None:
    """Reports a record's unknown version before any unexpected member."""
    version = decode(data, _Version, source=source, what=what).version
    if version is not None and version not in known:
        raise bad_record(what, "version", f"{version} is not {max(known)}", source=source)


def _pending(stored: _StoredPending, at: str, source: str) -> PendingCommit:
    etags = tuple(PartEtag(one) if isinstance(one, str) else one for one in stored.etags)
    for index, part in enumerate(etags):
        if not part.etag.strip('"'):
            raise bad_record(_PENDING, f"{at}etags[{index}]", "it is empty", source=source)
    return PendingCommit(**members_of(stored) | {"etags": etags, "extraData": _texts(stored.extraData)})


def _texts(given: dict[str, str | None] | None) -> dict[str, str]:
    return {key: text for key, text in (given or {}).items() if text is not None}
