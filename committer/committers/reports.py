"""Builds the report and the summary file of a finished job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from committer.advice import call
from committer.committers.listing import KeptList, list_told, store_of
from committer.committers.results import JobReport
from committer.errors import CommitterError, JobNotFoundError, RecordError, StoreNotFoundError
from committer.events import names
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import SETUP, JobOutcome
from committer.records.limits import LIMITS
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData, decode_success, encode_success
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.finish.success_file import set_totals, success_data
from committer.stages.publish.publish import Published
from committer.stages.remove.removal import remove_temporary
from committer.stages.state.job_directory import refuse_place
from committer.stages.state.success_content import (
    DIRECTORIES_CREATED,
    files_committed,
    is_of_job,
    named_uris,
    read_success,
)
from committer.stores.base import Store
from committer.stores.helpers import exists

_log = job_logger("committer.committers")

# This engine's key among the diagnostics: a report's name tells the job, not its destination.
DESTINATION: Final = "committer.destination"


class SaveReport(Stage[SuccessData, None]):
    """Stage that writes `summary-<job id>.json`. A failure is logged: it never changes a job's end.

    Args:
        only_if_absent: Keep an existing report: an abort must not hide why a commit failed.

    Preconditions: none.
    Postconditions: the report exists, or the log says why not.
    Cost: 2 calls; 3 with `only_if_absent`, or for a failure (which never replaces a success).
    Hadoop: ``ManifestCommitter.maybeSaveSummary``.
    """

    name = "job_stage_save_report"

    def __init__(self, context: StageContext, *, only_if_absent: bool = False) -> None:
        super().__init__(context)
        self._only_if_absent = only_if_absent

    async def execute(self, value: SuccessData) -> None:
        """Opens the report's store, creates the directory, writes the report."""
        try:
            directory = StorePath.of(self.context.config.summary_report_directory)
            async with store_of(self.context, directory) as store:
                await self._save(value, store, directory)
        except CommitterError as error:
            _log.warning("could not save the summary report of job %s: %s", self.context.layout.job_id, error)

    async def _save(self, value: SuccessData, store: Store, directory: StorePath) -> None:
        path = self.context.layout.summary(directory)
        if self._only_if_absent and await exists(store, path):
            return
        if not value.success and await self._may_say_success(store, path):
            # Another driver committed the job since, so this failure is not the job's; or a job of this id
            # at another destination committed, and this is its only report. A damaged one may say the same.
            return
        await store.make_directory(directory, parents=True)
        with self.context.statistics.timed(names.TASK_STAGE_SAVE_SUMMARY_FILE):
            await store.put(path, encode_success(value))

    async def _may_say_success(self, store: Store, path: StorePath) -> bool:
        try:
            data = await store.read(path, limit=LIMITS["success"])
            return decode_success(data, source=str(path)).success
        except StoreNotFoundError:
            return False
        except RecordError:
            return True


def is_report_of(context: StageContext, found: SuccessData) -> bool:
    """Whether a report names this job's destination, or none."""
    told = found.diagnostics.get(DESTINATION)
    return told is None or told == context.spec.destination


_NO_LIST: Final = KeptList()


def report_of(
    context: StageContext,
    started: float,
    *,
    success: bool,
    published: Published,
    directories: int,
    uploads_left: Sequence[str] = (),
    kept: KeptList = _NO_LIST,
) -> JobReport:
    """Builds the report of a job that this driver ended, or saw end."""
    statistics = context.statistics.snapshot()
    set_totals(statistics, published)
    return JobReport(
        success=success,
        job_id=context.layout.job_id,
        committer=context.spec.committer,
        files_committed=published.files,
        bytes_committed=published.size,
        directories_created=directories,
        renames_recovered=published.recovered,
        duration_s=context.runtime.monotonic() - started,
        statistics=statistics,
        filenames=published.filenames,
        uploads_left=list(uploads_left),
        file_list=kept.uri,
        file_list_problem=kept.problem,
    )


async def check_reported(context: StageContext) -> bool:
    """Returns whether a removed job was committed, by its report, or raises `JobNotFoundError`: 1 or 2 calls."""
    found = await _find_report(context)
    if found is None:
        raise await _not_found(context, decided=False)
    return found.success


async def _find_report(context: StageContext) -> SuccessData | None:
    """Returns the job's summary, or its `_SUCCESS`; raises `RecordError` if one is damaged and none reports success."""
    found, damaged = None, None
    try:
        found = await _read_summary(context)
    except RecordError as error:
        damaged = error
    try:
        if found is None or not found.success:
            # A failed driver writes a failure to the summary, although another driver may commit later; `_SUCCESS`
            # means success.
            found = await _read_marker(context, refuse_damaged=True) or found
    except RecordError as error:
        damaged = error
    if damaged is not None and (found is None or not found.success):
        layout = context.layout
        raise RecordError(
            f"whether job {layout.job_id} is committed is not known: {damaged.message}",
            operation="recover",
            path=damaged.path,
            outcome="unknown",
            next_step=f"look whether the job's files are at {layout.destination}: if they are, it committed, and must "
            "not run again; if not, move this damaged file away, and make the call again. A report may be of a job "
            "with this id at another destination",
        ) from damaged
    return found


async def _read_marker(context: StageContext, *, refuse_damaged: bool = False) -> SuccessData | None:
    marker = await read_success(context, refuse_damaged=refuse_damaged)
    return marker if marker is not None and is_of_job(marker, context.layout) and _is_own(context, marker) else None


def _is_own(context: StageContext, found: SuccessData) -> bool:
    """Whether a record names this setup of the job, or none."""
    setup, own = found.diagnostics.get(SETUP, ""), context.layout.setup_name
    return not (setup and own) or setup == own


async def _not_found(context: StageContext, *, decided: bool) -> JobNotFoundError:
    layout = context.layout
    if not decided:
        await refuse_place(context.store, layout, operation="recover")
    jobs = f"{call('list_jobs', str(layout.destination))} shows the jobs that are there"
    what = f"there is no job {layout.job_id} at {layout.destination}"
    if layout.setup_name:
        what = f"this run of job {layout.job_id} is gone from {layout.destination}"
    return JobNotFoundError(
        f"{what}, and neither a summary report nor _SUCCESS speaks of it",
        operation="recover",
        path=layout.job_directory,
        outcome="unknown" if decided else "unchanged",
        next_step="look at the destination: another process deleted the job's directory while it was committed, or it "
        "ended and a later job wrote _SUCCESS"
        if decided
        else "it never was, was aborted or rolled back, or ended and was cleaned up while a later job wrote _SUCCESS; "
        f"{jobs}",
    )


async def report_of_finished(
    context: StageContext, started: float, kept: JobOutcome | None, *, decided: bool
) -> JobReport:
    """Builds the report of a removed job: a kept outcome proves a commit; else its summary, else its own `_SUCCESS`.

    Raises `JobNotFoundError` without any; `decided` tells that a commit decision was seen.
    """
    layout = context.layout
    if kept is None:
        # The driver that ended the job may have died between its last deletes.
        await remove_temporary(context)
    try:
        found = await _find_report(context)
    except RecordError:
        if kept is None:
            raise
        found = None
    if (found is None or not found.success) and kept is not None:
        return report_of_ended(context, kept, started)
    if found is None:
        raise await _not_found(context, decided=decided)
    statistics = found.statistics()
    counters = statistics.counters
    files = list_told(context, found)
    return JobReport(
        success=found.success,
        job_id=layout.job_id,
        committer=context.spec.committer,
        files_committed=files_committed(found),
        bytes_committed=counters.get(names.COMMITTER_BYTES_COMMITTED, 0),
        directories_created=_number(found.diagnostics.get(DIRECTORIES_CREATED, "")),
        renames_recovered=counters.get(names.COMMIT_FILE_RENAME_RECOVERED, 0),
        duration_s=context.runtime.monotonic() - started,
        statistics=statistics,
        filenames=named_uris(found, layout.destination),
        file_list=files.uri,
        file_list_problem=files.problem,
    )


def report_of_ended(context: StageContext, outcome: JobOutcome, started: float) -> JobReport:
    """Builds the report of a committed job from its outcome alone."""
    tasks = {} if outcome.tasks is None else {names.COMMITTER_TASKS_COMPLETED: outcome.tasks}
    return JobReport(
        success=True,
        job_id=context.layout.job_id,
        committer=context.spec.committer,
        files_committed=outcome.files,
        bytes_committed=outcome.size,
        duration_s=context.runtime.monotonic() - started,
        statistics=IOStatistics(counters=tasks),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


async def _read_summary(context: StageContext) -> SuccessData | None:
    if not context.config.summary_report_directory:
        return None
    directory = StorePath.of(context.config.summary_report_directory)
    path = context.layout.summary(directory)
    async with store_of(context, directory) as store:
        try:
            data = await store.read(path, limit=LIMITS["success"])
        except StoreNotFoundError:
            return None
    found = decode_success(data, source=str(path))
    return found if is_report_of(context, found) and _is_own(context, found) else None


async def save_report(
    context: StageContext,
    *,
    success: bool,
    published: Published | None,
    error: BaseException | None = None,
    only_if_absent: bool = False,
    was_empty: bool = False,
    directories: int = 0,
    more: Mapping[str, str] | None = None,
) -> None:
    """Saves the summary report when the job asks for one; never raises a `CommitterError`."""
    if not context.config.summary_report_directory:
        return
    data = success_data(
        context,
        success=success,
        published=published,
        stage=context.progress.last_stage or "committer_commit_job",
        error=error,
        was_empty=was_empty,
        directories=directories,
        more={**(more or {}), DESTINATION: context.spec.destination},
    )
    await SaveReport(context, only_if_absent=only_if_absent).run(data)


async def published_before(context: StageContext, state: CommitState) -> Published:
    """Returns the files that an earlier driver published, as `_SUCCESS` or the records name them."""
    told = state.decision
    marker = await _read_marker(context)
    published = Published(most=context.forms.filenames_limit)
    if marker is not None:
        published.filenames = named_uris(marker, context.layout.destination)
        published.lengths = marker.lengths or []
        published.files, published.size = told.files, told.size
        return published
    try:
        async for file in state.files:
            published.add(context.layout, [file], 1)
            if len(published.filenames) >= published.most:
                break
    except CommitterError:
        published = Published()
    published.files, published.size = told.files, told.size
    return published
