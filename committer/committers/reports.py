"""Reports of a job that ended: the report itself, its summary file, the complete file list, and kept records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, NamedTuple

from committer.advice import call
from committer.committers.opened_store import store_beside
from committer.committers.results import JobReport
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    JobNotFoundError,
    RecordError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.events import names
from committer.file_names import reserved_part
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.file_list import check_format
from committer.records.job_state import SETUP, JobOutcome
from committer.records.limits import LIMITS
from committer.records.statistics import IOStatistics
from committer.records.success import SuccessData, decode_success, encode_success
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.finish.file_list import FILE_LIST, FILE_LIST_PROBLEM, SaveFileList, first_part, list_named
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
from committer.stores.helpers import exists, walk

_log = job_logger("committer.committers")

_REPORT_PLACES: Final = ("summary_report_directory", "file_list_directory")


def refuse_unwritable_list(config: CommitterConfig) -> None:
    """Refuses a Parquet list if pyarrow is missing."""
    if config.file_list_directory:
        check_format(config.file_list_format)


async def refuse_unwritable_places(context: StageContext) -> None:
    """Refuses a job whose summary report or file list cannot be written: 3 calls a directory, for an empty file."""
    config = context.config
    asked = {text: name for name in _REPORT_PLACES if (text := getattr(config, name))}
    for text, name in asked.items():
        try:
            directory = StorePath.of(text)
            if reserved_part(directory.path) >= 0:
                raise InvalidPathError(
                    "it lies in a directory that commits own", path=directory, next_step="name one outside of these"
                )
            async with store_of(context, directory) as store:
                await store.make_directory(directory, parents=True)
                await _try_to_write(store, directory / f".committer-{context.driver}")
        except CommitterError as error:
            raise ConfigurationError(
                f"{name}={text!r} cannot be written to: {error.message}",
                operation="open_job",
                path=error.path or text,
                next_step=f"name a directory that can be written to, or leave {name} out"
                + (f"; {error.next_step}" if error.next_step else ""),
            ) from error


async def _try_to_write(store: Store, probe: StorePath) -> None:
    async def delete() -> None:
        # A user may be allowed to write there, but not to delete.
        with suppress(CommitterError):
            await store.delete_file(probe)

    try:
        await store.put(probe, b"")
    finally:
        await run_shielded(delete, bound_s=UNDO_BOUND_S)


class KeptList(NamedTuple):
    """The URI of the list's first part, or why there is none although one was asked for."""

    uri: str = ""
    problem: str = ""

    @property
    def diagnostics(self) -> dict[str, str]:
        """The non-empty fields, for `_SUCCESS` and the summary."""
        told = {FILE_LIST: self.uri, FILE_LIST_PROBLEM: self.problem}
        return {name: text for name, text in told.items() if text}


async def keep_list(context: StageContext, state: CommitState) -> KeptList:
    """Writes the job's list, unless another driver did; never raises a `CommitterError`."""
    config, layout = context.config, context.layout
    if not config.file_list_directory:
        return KeptList()
    try:
        directory = StorePath.of(config.file_list_directory)
        async with store_of(context, directory) as store:
            expected = (state.decision.files, state.decision.size)
            saving = SaveFileList(context, store=store, directory=directory, expected=expected)
            try:
                return KeptList((await saving.run(state.files)).uri)
            except CommitterError:
                first = first_part(directory, layout, config.file_list_format)
                # Another driver of the job may have ended it meanwhile, and written the same list.
                if await exists(context.store, layout.decision) or not await exists(store, first):
                    raise
                return KeptList(first.uri)
    except CommitterError as error:
        _log.warning("could not keep the list of what job %s committed: %s", layout.job_id, error)
        return KeptList(problem=str(error))


def list_told(context: StageContext, record: SuccessData) -> KeptList:
    """Reads the list's URI from a `_SUCCESS` or summary, as far as the record is trusted (G10)."""
    told = record.diagnostics.get(FILE_LIST, "")
    layout = context.layout
    path = list_named(told, layout.job_id, layout.destination, context.config.file_list_directory)
    return KeptList(path.uri if path is not None else "", record.diagnostics.get(FILE_LIST_PROBLEM, ""))


def store_of(context: StageContext, directory: StorePath) -> AbstractAsyncContextManager[Store]:
    """Yields the store of a directory that the caller named for a block: the job's, or another one that it opens."""
    return store_beside(context.store, context.layout.destination, directory, context.config)


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
            path = self.context.layout.summary(directory)
            async with store_of(self.context, directory) as store:
                if await self._is_to_stay(store, path, success=value.success):
                    return
                await store.make_directory(directory, parents=True)
                with self.context.statistics.timed(names.TASK_STAGE_SAVE_SUMMARY_FILE):
                    await store.put(path, encode_success(value))
        except CommitterError as error:
            _log.warning("could not save the summary report of job %s: %s", self.context.layout.job_id, error)

    async def _is_to_stay(self, store: Store, path: StorePath, *, success: bool) -> bool:
        """Returns whether an existing report counts, not this one."""
        if self._only_if_absent and await exists(store, path):
            return True
        if success:
            return False
        # Another driver committed the job since, so this failure is not the job's; or a job of this id
        # at another destination committed, and this is its only report. A damaged one may say the same.
        try:
            data = await store.read(path, limit=LIMITS["success"])
            return decode_success(data, source=str(path)).success
        except StoreNotFoundError:
            return False
        except RecordError:
            return True


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
        "ended and no _SUCCESS of it is left"
        if decided
        else "it never was, was aborted or rolled back, or ended and was cleaned up, and no _SUCCESS of it is left; "
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
    files, created = list_told(context, found), found.diagnostics.get(DIRECTORIES_CREATED, "")
    return JobReport(
        success=found.success,
        job_id=layout.job_id,
        committer=context.spec.committer,
        files_committed=files_committed(found),
        bytes_committed=counters.get(names.COMMITTER_BYTES_COMMITTED, 0),
        directories_created=int(created) if created.isdecimal() else 0,
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
    # A report without a destination may be this job's.
    told = found.diagnostics.get(DESTINATION, context.spec.destination)
    return found if told == context.spec.destination and _is_own(context, found) else None


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
    else:
        try:
            async for file in state.files:
                published.add(context.layout, [file], 1)
                if len(published.filenames) >= published.most:
                    break
        except CommitterError:
            published = Published()
    published.files, published.size = told.files, told.size
    return published


async def keep_records(context: StageContext) -> None:
    """Copies the job's records to the diagnostics directory; deletes nothing there, unlike Hadoop; logs a failure."""
    layout = context.layout
    try:
        directory = StorePath.of(context.config.diagnostics_manifest_directory)
        kept_in = directory / layout.unique_name
        async with store_of(context, directory) as other:
            await other.make_directory(kept_in, parents=True)
            for source in (layout.manifests, layout.attempts):
                await _copy_records(context, context.holding(source), source, other, kept_in)
    except CommitterError as error:
        _log.warning("could not keep the records of job %s: %s", layout.job_id, error)


async def _copy_records(
    context: StageContext, store: Store, source: StorePath, other: Store, kept_in: StorePath
) -> None:
    try:
        suffixes = (MANIFEST_SUFFIX, context.layout.record_suffix)
        records = [child.path async for child in walk(store, source) if child.path.name.endswith(suffixes)]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return

    async def copy(record: StorePath) -> None:
        data = await store.read(record, limit=context.config.record_size_limit)
        await other.put(kept_in / record.name, data)

    if records:
        await run_workers(records, copy, workers=context.config.io_concurrency, operation="keep_records")
