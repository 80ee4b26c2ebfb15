"""What `_SUCCESS` says of a job: written in Hadoop's form, and read."""

from __future__ import annotations

import functools
import getpass
import platform
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from committer.errors import (
    RecordError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotFoundError,
)
from committer.events import names
from committer.layout import DirectoryName, JobLayout
from committer.options import S3A_UUID, WRITE_JOB_UUID
from committer.paths import StorePath
from committer.records.job_state import SETUP
from committer.records.limits import LIMITS
from committer.records.pending_set import java_date
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData, decode_success, hadoop_date
from committer.stages.base import StageContext
from committer.stages.publish import Published

# Where a job id came from that no key of Hadoop's gave.
_OWN_ID = "lake-committer"

# Ours among the diagnostics, which Hadoop prints as they are.
WAS_EMPTY = "committer.destination.was.empty"
DIRECTORIES_CREATED = "committer.directories.created"
DECIDED_BY = "committer.decided.by"


def success_data(
    context: StageContext,
    *,
    success: bool,
    published: Published | None,
    stage: str,
    error: BaseException | None = None,
    was_empty: bool = False,
    directories: int = 0,
    decided_by: str = "",
    more: Mapping[str, str] | None = None,
    committed_at: str = "",
) -> SuccessData:
    """The content of `_SUCCESS` and of the summary report, in the form of Hadoop's committer of that name.

    It bears the time of the outcome, where that is known, whichever driver writes it and whenever: by that two are
    told apart.

    S3A's differs from the manifest committer's: files by bare absolute paths, the date as Java prints it, and what its
    filesystem counted among the metrics.
    """
    now = _moment(committed_at) or context.runtime.now()
    like_s3a = context.forms.like_s3a
    statistics = context.statistics.snapshot()
    diagnostics = {"stage": stage, "committer.engine": "lake-committer"}
    user = _user()
    if user:
        diagnostics["principal"] = user
    diagnostics.update(more or {})
    if published is not None:
        set_totals(statistics, published)
        if like_s3a:
            statistics.counters[names.COMMITTER_COMMITS_COMPLETED] = published.files
    if was_empty:
        diagnostics[WAS_EMPTY] = "true"
    if directories:
        diagnostics[DIRECTORIES_CREATED] = str(directories)
    if decided_by:
        diagnostics[DECIDED_BY] = decided_by
    if context.layout.setup_name:
        diagnostics[SETUP] = context.layout.setup_name
    if error is not None:
        diagnostics["exception"] = f"{type(error).__name__}: {error}"
        diagnostics["stacktrace"] = "".join(traceback.format_exception(error))
    filenames = published.filenames if published is not None else []
    if like_s3a:
        filenames = [StorePath.from_uri(uri).path for uri in filenames]
    return SuccessData(
        success=success,
        timestamp=int(now.timestamp() * 1000),
        date=java_date(now) if like_s3a else hadoop_date(now),
        hostname=platform.node(),
        committer=context.forms.hadoop_name or context.spec.committer,
        jobId=context.layout.job_id,
        description=f"Job committer {context.layout.job_id}" if like_s3a else None,
        jobIdSource=_job_id_source(context, like_s3a=like_s3a),
        metrics={name: value for name, value in statistics.counters.items() if value} if like_s3a else {},
        diagnostics=diagnostics,
        filenames=filenames,
        lengths=published.lengths if published is not None else None,
        iostatistics=statistics,
    )


@functools.cache
def _user() -> str:
    """The short name of the user this process runs as; empty where the system has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def _job_id_source(context: StageContext, *, like_s3a: bool) -> str:
    """Where the job's id came from, by the key of Hadoop's that gave it where one did."""
    if context.layout.job_id.startswith("job_"):
        return "JobID"
    if context.spec.hadoop:
        return S3A_UUID if like_s3a else WRITE_JOB_UUID
    return _OWN_ID


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def set_totals(statistics: IOStatistics, published: Published) -> None:
    """Sets (as Hadoop does) what was committed in all, whichever driver published it."""
    statistics.counters[names.COMMITTER_FILES_COMMITTED] = published.files
    statistics.counters[names.COMMITTER_BYTES_COMMITTED] = published.size


def named_uris(marker: SuccessData, destination: StorePath) -> list[str]:
    """URIs of the files that a `_SUCCESS` or a report names; S3A names them by bare absolute paths."""
    return [
        name if ":" in name.partition("/")[0] else msgspec.structs.replace(destination, path=name).uri
        for name in marker.filenames
    ]


def files_committed(marker: SuccessData) -> int:
    """How many files a `_SUCCESS` or a report speaks of, not all of which it names."""
    counters = marker.statistics().counters
    counted = (counters.get(names.COMMITTER_FILES_COMMITTED), counters.get(names.COMMITTER_COMMITS_COMPLETED))
    return next((count for count in counted if count is not None), len(marker.filenames))


async def is_unmarked(context: StageContext, *, asked: bool = True) -> bool:
    """Whether no other job that ended left its `_SUCCESS`, where this one's was not yet written.

    One that says nothing, as Hadoop's file output committers leave it, is another's. What cannot be looked at is not
    vouched for. No call unless `asked`, else one.
    """
    if not asked:
        return False
    try:
        return is_of_job(await _read(context, context.layout.success), context.layout)
    except StoreNotFoundError:
        return True
    except (StoreError, RecordError):
        return False


def is_of_job(marker: SuccessData, layout: JobLayout) -> bool:
    """Whether a marker names the job. A driver of Hadoop's that was told the unique id of a job writes that."""
    named = DirectoryName.of(marker.jobId)
    return named.job_id == layout.job_id and (not layout.setup_name or named.setup in ("", layout.setup_name))


async def read_success(context: StageContext) -> SuccessData | None:
    """The `_SUCCESS` at the destination; None when there is none that can be read. One call."""
    try:
        return await marker_at(context, context.layout.success)
    except StoreIsADirectoryError:
        return None


async def marker_at(context: StageContext, path: StorePath) -> SuccessData | None:
    """The `_SUCCESS` that lies at a path; None when it is gone, or says nothing. One call."""
    try:
        return await _read(context, path)
    except (StoreNotFoundError, RecordError):
        return None


def is_same_decision(found: SuccessData | None, value: SuccessData) -> bool:
    """Whether a marker that was read speaks of the same decision of the same job."""
    if found is None or found.jobId != value.jobId:
        return False
    return found.diagnostics.get(DECIDED_BY) == value.diagnostics.get(DECIDED_BY)


async def _read(context: StageContext, path: StorePath) -> SuccessData:
    data = await context.store.read(path, limit=LIMITS["success"])
    return decode_success(data, source=str(path))
