"""`_SUCCESS`: an older one is set aside when publishing begins, the job's own is written when all is in place."""

from __future__ import annotations

import contextlib
import platform

import msgspec

from committer.errors import (
    JobStateError,
    RecordError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.events import names
from committer.layout import SUCCESS
from committer.options import S3A_UUID, WRITE_JOB_UUID
from committer.paths import StorePath
from committer.records.job_state import Decision
from committer.records.pending_set import java_date
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData, decode_success, encode_success, hadoop_date
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import explain_missing, fenced_off, looking_again
from committer.stages.publish import Published
from committer.stores.helpers import create_exclusively, move_file, status_or_none

# What Hadoop's committers call themselves in `_SUCCESS`: the manifest committer by its class, S3A's by their names.
COMMITTER_CLASS = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter"

_HADOOP_NAMES = {"manifest": COMMITTER_CLASS}
_LIKE_S3A = "magic"

# Ours among the diagnostics, which Hadoop prints as they are.
WAS_EMPTY = "committer.destination.was.empty"
DIRECTORIES_CREATED = "committer.directories.created"
DECIDED_BY = "committer.decided.by"

PLACE_TAKEN = b"No _SUCCESS: only that none may arrive here late.\n"
"""What takes the place of an old `_SUCCESS` that another job had set aside before."""


class SetAsideSuccess(Stage[Decision, None]):
    """Moves the `_SUCCESS` whose identity the decision recorded into the job's directory; no other one.

    It says that a destination is complete, which it no longer is once the first file is published. Hadoop deletes it
    in job setup, so a job that never commits leaves a complete destination without it.

    Preconditions: the decision stands, nothing is published yet (or the commit is being finished).
    Postconditions: the recorded `_SUCCESS` is not at the destination; rollback puts it back.
    Cost: 2 calls when there was one, else none; one more where an answer was lost.
    """

    name = "job_stage_set_aside_success"

    async def execute(self, value: Decision) -> None:
        """Looks, moves; again when an answer was lost."""
        try:
            await self._set_aside(value)
        except StoreOutcomeUnknownError:
            await looking_again(lambda: self._set_aside(value))
            await self._bar_late_move(value)

    async def _bar_late_move(self, value: Decision) -> None:
        """Takes the place that a request without answer would move `_SUCCESS` to: it could come late, for a new one.

        The old one is not at the destination any more. Needless where a rename is told what to move.
        """
        can = self.context.store.capabilities
        if can.conditional_rename or not can.identity_through_rename or value.success_identity is None:
            return
        with contextlib.suppress(StoreNotFoundError, StoreIsADirectoryError):
            await create_exclusively(self.context.store, self.context.layout.superseded / SUCCESS, PLACE_TAKEN)

    async def _set_aside(self, value: Decision) -> None:
        layout, store = self.context.layout, self.context.store
        if not (value.success_present and value.config.mark_successful_jobs):
            return
        aside = layout.superseded / SUCCESS
        try:
            status = await store.status(layout.success)
            if status.is_directory or status.identity != value.success_identity:
                return
            if status.identity is None and await self._speaks_for_this_job():
                return
            await move_file(store, layout.success, aside, identity=status.identity)
        except StoreNotFoundError as error:
            if error.path in ("", str(layout.success)):
                return
            raise await explain_missing(self.context, fenced_off(self.context, self.name, layout.success)) from error
        except StorePreconditionError:
            # Another one stands there since it was looked at.
            return
        except StoreExistsError:
            # Moved before: by a link whose old name was not yet removed, or by another driver, which may have written
            # the job's own marker since this one looked.
            standing, kept = await status_or_none(store, layout.success), await status_or_none(store, aside)
            if standing is None or kept is None or kept.identity is None:
                return
            if standing.identity == kept.identity == value.success_identity:
                await store.delete_file(layout.success)

    async def _speaks_for_this_job(self) -> bool:
        found = await read_success(self.context)
        return found is not None and found.jobId == self.context.layout.job_id


class SaveSuccess(Stage[SuccessData, None]):
    """Writes `_SUCCESS` by one atomic replace; replaces nothing once the job's directory is gone.

    Whoever removed that directory may have finished the job, and a later job may have written its own marker since.

    Args:
        context: The job.
        only_if_absent: The job's directory is known to be gone.

    Preconditions: outcome `committed` stands: every file of every committed task is in place (G9).
    Postconditions: `_SUCCESS` names this job, or another one that came later.
    Cost: 1 call (2 on stores that write first and rename after).
    Hadoop: ``SaveSuccessFileStage``.
    """

    name = "committer_commit_job"
    statistic = "job_stage_save_success_marker"

    def __init__(self, context: StageContext, *, only_if_absent: bool = False) -> None:
        super().__init__(context)
        self._only_if_absent = only_if_absent

    async def execute(self, value: SuccessData) -> None:
        """Writes it; a directory of that name is a definite refusal."""
        layout, store, durable = self.context.layout, self.context.store, self.context.durable
        data = encode_success(value)
        temporary = layout.success_temporary(self.context.driver)
        try:
            if not self._only_if_absent:
                try:
                    await store.put(layout.success, data, temporary=temporary, durable=durable)
                except StoreNotFoundError:
                    self._only_if_absent = True
            if self._only_if_absent:
                await create_exclusively(store, layout.success, data, durable=durable)
        except StoreIsADirectoryError as error:
            raise JobStateError(
                f"a directory stands at {layout.success}: the job is committed, but its marker cannot be written",
                operation=self.name,
                path=layout.success,
                outcome="committed",
                next_step=f"remove it, then call {self.context.recover_command}",
            ) from error


def success_data(
    context: StageContext,
    *,
    success: bool,
    published: Published | None,
    stage: str,
    error: BaseException | None = None,
    was_empty: bool = False,
    trace: str = "",
    directories: int = 0,
    decided_by: str = "",
) -> SuccessData:
    """The content of `_SUCCESS` and of the summary report, in the form of Hadoop's committer of that name.

    S3A's differs from the manifest committer's: files by bare absolute paths, the date as Java prints it, and what its
    filesystem counted among the metrics.
    """
    now, like_s3a = context.runtime.now(), context.spec.committer == _LIKE_S3A
    statistics = context.statistics.snapshot()
    diagnostics = {"stage": stage, "committer.engine": "lake-committer"}
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
    if error is not None:
        diagnostics["exception"] = f"{type(error).__name__}: {error}"
        diagnostics["stacktrace"] = trace
    filenames = published.filenames if published is not None else []
    if like_s3a:
        filenames = [StorePath.from_uri(uri).path for uri in filenames]
    source = S3A_UUID if like_s3a else WRITE_JOB_UUID
    return SuccessData(
        success=success,
        timestamp=int(now.timestamp() * 1000),
        date=java_date(now) if like_s3a else hadoop_date(now),
        hostname=platform.node(),
        committer=_HADOOP_NAMES.get(context.spec.committer, context.spec.committer),
        jobId=context.layout.job_id,
        description=f"Job committer {context.layout.job_id}" if like_s3a else None,
        jobIdSource="JobID" if context.layout.job_id.startswith("job_") else source,
        metrics={name: value for name, value in statistics.counters.items() if value} if like_s3a else {},
        diagnostics=diagnostics,
        filenames=filenames,
        lengths=published.lengths if published is not None else None,
        iostatistics=statistics,
    )


def set_totals(statistics: IOStatistics, published: Published) -> None:
    """Sets (as Hadoop does) what was committed in all, whoever published it."""
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


async def was_completed(context: StageContext, decision: Decision) -> bool:
    """Whether `_SUCCESS` proves that what this decision says was done: it comes only after the outcome. One call."""
    marker = await read_success(context)
    if marker is None or marker.jobId != context.layout.job_id:
        return False
    return marker.diagnostics.get(DECIDED_BY) == decision.driver


async def is_unmarked(context: StageContext, *, asked: bool = True) -> bool:
    """Whether no other job that ended left its `_SUCCESS`, where this one's was not yet written.

    One that says nothing, as Hadoop's file output committers leave it, is another's. What cannot be looked at is not
    vouched for. No call unless `asked`, else one.
    """
    if not asked:
        return False
    try:
        return (await _read(context)).jobId == context.layout.job_id
    except StoreNotFoundError:
        return True
    except (StoreError, RecordError):
        return False


async def read_success(context: StageContext) -> SuccessData | None:
    """The `_SUCCESS` at the destination; None when there is none that can be read. One call."""
    try:
        return await _read(context)
    except (StoreNotFoundError, StoreIsADirectoryError, RecordError):
        return None


async def _read(context: StageContext) -> SuccessData:
    path = context.layout.success
    data = await context.store.read(path, limit=context.config.record_size_limit)
    return decode_success(data, source=str(path))
