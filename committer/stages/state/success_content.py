"""Reads the content of `_SUCCESS` and interprets it."""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from committer.errors import RecordError, StoreError, StoreIsADirectoryError, StoreNotFoundError
from committer.events import names
from committer.layout import DirectoryName, JobLayout
from committer.paths import StorePath
from committer.records.limits import LIMITS
from committer.records.success import SuccessData, decode_success
from committer.stages.base import StageContext

# Keys of this engine among the diagnostics, which Hadoop prints as they are.
WAS_EMPTY = "committer.destination.was.empty"
DIRECTORIES_CREATED = "committer.directories.created"
DECIDED_BY = "committer.decided.by"

# The start of a `_SUCCESS` that may be truncated: Hadoop and this engine write the member `name` first.
_TRUNCATED_START: Final = re.compile(rb'\{\s*("name"|"?n?a?m?e?\Z)')


def named_uris(marker: SuccessData, destination: StorePath) -> list[str]:
    """Returns URIs of the files that a `_SUCCESS` or a report names; S3A names them by bare absolute paths."""
    return [
        name if ":" in name.partition("/")[0] else msgspec.structs.replace(destination, path=name).uri
        for name in marker.filenames
    ]


def files_committed(marker: SuccessData) -> int:
    """Returns the number of files of a `_SUCCESS` or a report, which may name only some of them."""
    counters = marker.statistics().counters
    counted = (counters.get(names.COMMITTER_FILES_COMMITTED), counters.get(names.COMMITTER_COMMITS_COMPLETED))
    return next((count for count in counted if count is not None), len(marker.filenames))


async def is_unmarked(context: StageContext, *, asked: bool = True) -> bool:
    """Whether no other job left its `_SUCCESS` before this job wrote one. No call unless `asked`, else one."""
    # A marker without content, as Hadoop's file output committers write it, is another job's. If unreadable: False.
    if not asked:
        return False
    try:
        return is_of_job(await _read(context, context.layout.success), context.layout)
    except StoreNotFoundError:
        return True
    except (StoreError, RecordError):
        return False


def is_of_job(marker: SuccessData, layout: JobLayout) -> bool:
    """Whether a `_SUCCESS` names the job, by its id or, as Hadoop's drivers write it, by its unique id."""
    named = DirectoryName.of(marker.jobId)
    return named.job_id == layout.job_id and (not layout.setup_name or named.setup in ("", layout.setup_name))


async def read_success(context: StageContext, *, refuse_damaged: bool = False) -> SuccessData | None:
    """Reads the `_SUCCESS` at the destination; None if there is no readable one. One call.

    Raises:
        RecordError: With `refuse_damaged`: it is a damaged record, which may have named this job.
    """
    path = context.layout.success
    try:
        data = await context.store.read(path, limit=LIMITS["success"])
    except (StoreNotFoundError, StoreIsADirectoryError, RecordError):
        return None
    try:
        return decode_success(data, source=str(path))
    except RecordError:
        if refuse_damaged and _is_damaged(data):
            raise
        return None


def _is_damaged(data: bytes) -> bool:
    """Whether content that is no record may be the rest of one: a power loss leaves it truncated, or as zeros."""
    if not _TRUNCATED_START.match(data):
        return data[:1] == b"\0"
    # Other programs write content of their own, JSON lines too.
    try:
        json.JSONDecoder().raw_decode(data.decode())
    except (ValueError, RecursionError):
        return True
    return False


async def marker_at(context: StageContext, path: StorePath) -> SuccessData | None:
    """Reads the `_SUCCESS` at a path; None if it does not exist or has no such content. One call."""
    try:
        return await _read(context, path)
    except (StoreNotFoundError, RecordError):
        return None


def is_same_decision(found: SuccessData | None, value: SuccessData) -> bool:
    """Whether a marker that was read is of the same decision of the same job."""
    if found is None or found.jobId != value.jobId:
        return False
    return found.diagnostics.get(DECIDED_BY) == value.diagnostics.get(DECIDED_BY)


async def _read(context: StageContext, path: StorePath) -> SuccessData:
    data = await context.store.read(path, limit=LIMITS["success"])
    return decode_success(data, source=str(path))
