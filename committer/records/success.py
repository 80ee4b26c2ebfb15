"""Content of `_SUCCESS` and of summary reports, ours and those of Hadoop's committers.

Only the name is required, as in Java. A 0-byte `_SUCCESS` comes from a classic committer.
"""

# ruff: noqa: N815 - field names are Hadoop's
from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from committer.records.hadoop_json import bad_record, decode, encode, members_of
from committer.records.statistics import IOStatistics, LazyStatistics, statistics_of

SUCCESS_NAME: Final = "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1"

FILENAMES_LIMIT: Final = 100
"""Hadoop's maximum number of file names."""

_WHAT: Final = "success record"


class SuccessData(msgspec.Struct, kw_only=True):
    """Outcome of a job. Field names and their order are Hadoop's.

    Attributes:
        timestamp: Milliseconds since the epoch.
        success: True if the job committed.
        date: The timestamp for people; its form differs between writers, so it is never parsed.
        committer: A class name, or S3A's short name.
        metrics: S3A's numbers of the file system.
        filenames: URIs of some committed files. S3A writes bare absolute paths.
        lengths: Lengths in bytes, parallel to `filenames`. This engine's own field; Java ignores it.
    """

    name: str = SUCCESS_NAME
    timestamp: int = 0
    success: bool = True
    date: str = ""
    hostname: str = ""
    committer: str = ""
    description: str | None = None
    jobId: str = ""
    jobIdSource: str = ""
    metrics: dict[str, int] = {}
    diagnostics: dict[str, str] = {}
    filenames: list[str] = []
    iostatistics: LazyStatistics = None
    state: str | None = None
    stage: str | None = None
    lengths: list[int] | None = None

    def statistics(self, *, source: str = "") -> IOStatistics:
        """Decodes the statistics, empty if absent; raises RecordError if they are not in Hadoop's form."""
        return statistics_of(self.iostatistics, source=source)


class _StoredSuccess(msgspec.Struct, kw_only=True):
    name: str
    timestamp: int | None = None
    success: bool | None = None
    date: str | None = None
    hostname: str | None = None
    committer: str | None = None
    description: str | None = None
    jobId: str | None = None
    jobIdSource: str | None = None
    metrics: dict[str, int] | None = None
    diagnostics: dict[str, str | None] | None = None
    filenames: list[str] | None = None
    iostatistics: msgspec.Raw = msgspec.Raw(b"null")
    state: str | None = None
    stage: str | None = None
    lengths: list[int] | None = None


def encode_success(success: SuccessData) -> bytes:
    """Encodes a success record as Hadoop's JSON."""
    return encode(success)


def decode_success(data: bytes, *, source: str) -> SuccessData:
    """Decodes a success record; null counts as absent. Raises RecordError if it is none, or lengths do
    not fit names.
    """
    stored = decode(data, _StoredSuccess, source=source, what=_WHAT)
    if stored.name != SUCCESS_NAME:
        raise bad_record(_WHAT, "name", f"{stored.name!r} is not {SUCCESS_NAME!r}", source=source)
    lengths, filenames = stored.lengths, stored.filenames or []
    if lengths is not None:
        if len(lengths) != len(filenames):
            raise bad_record(_WHAT, "lengths", f"{len(lengths)} for {len(filenames)} file names", source=source)
        for index, length in enumerate(lengths):
            if length < 0:
                raise bad_record(_WHAT, f"lengths[{index}]", f"{length} is negative", source=source)
    diagnostics = {key: text for key, text in (stored.diagnostics or {}).items() if text is not None}
    return SuccessData(**members_of(stored) | {"diagnostics": diagnostics})


def hadoop_date(moment: datetime) -> str:
    """Formats a moment as the manifest committer does, in UTC: ``2026-11-21T02:11:03.058903Z[UTC]``."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z[UTC]")
