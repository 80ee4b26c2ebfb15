"""Steps after the end of a job: `_SUCCESS`, cleanup, the last records, the report."""

from __future__ import annotations

from typing import NamedTuple

from committer.committers.actions import PublishAction
from committer.committers.failures import saying_what_is_left, what_first
from committer.committers.listing import KeptList, keep_list, store_of
from committer.committers.reports import save_report
from committer.errors import CommitterError, StoreNotADirectoryError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import JobOutcome
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import CommitState, decision_is_gone
from committer.stages.durability import sync_directories
from committer.stages.finish.end_job import Ended, runs_alone
from committer.stages.finish.success_file import SaveSuccess, success_data
from committer.stages.names import with_ancestors
from committer.stages.publish.publish import Published
from committer.stages.remove.abort_uploads import AbortUploads
from committer.stages.remove.cleanup import CleanupJob, RemoveJob, put_kept
from committer.stages.remove.removal import end_without_removal
from committer.stages.state.own_records import read_outcome
from committer.stages.state.success_content import is_unmarked
from committer.stores.base import Store
from committer.stores.helpers import walk

_log = job_logger("committer.committers")


async def finish_rolled_back(context: StageContext) -> list[str]:
    """Cleans up after a rollback, idempotently; returns uploads left alone, which may be another job's."""
    try:
        cleaned, left_alone = await clean_up(context)
        await remove_job(context, None, cleaned=cleaned)
    except CommitterError as error:
        error.outcome = "partial"
        step = (
            context.cleanup_call()
            if error.path.startswith(str(context.layout.removed))
            else context.recover_call(rollback=True)
        )
        error.next_step = f"the job is rolled back; {what_first(error)}, then call {step} to remove what is left of it"
        raise
    return left_alone


async def clean_up(context: StageContext) -> tuple[bool, list[str]]:
    """Removes task output; returns whether the job is to be removed, and uploads left alone."""
    try:
        if context.config.cleanup_skipped:
            # Pending uploads cost money, and no listing of files shows them.
            return False, await AbortUploads(context).run(None) if context.store.capabilities.multipart else []
        return True, await CleanupJob(context).run(None)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)
        return False, []


async def remove_job(context: StageContext, kept: JobOutcome | None, *, cleaned: bool) -> None:
    """Runs `RemoveJob`, or only ends a job that skips cleanup; may ignore a failure."""
    try:
        if cleaned:
            await RemoveJob(context).run(kept)
        else:
            if kept is not None:
                await put_kept(context, kept)
            await end_without_removal(context)
            if not context.layout.setup_name:
                # The task directory stays, so the job would look live. A job with an outcome but no decision is over.
                await context.store.delete_file(context.layout.decision)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)


async def finish_aborted(context: StageContext) -> None:
    """Cleans up after a decision against a job. Idempotent."""
    skipped = context.config.cleanup_skipped
    if not skipped:
        await CleanupJob(context).run(None)
    elif context.store.capabilities.multipart:
        await AbortUploads(context).run(None)
    await save_report(context, success=False, published=None, error=None, only_if_absent=True)
    await (end_without_removal(context) if skipped else RemoveJob(context).run(None))


class Finished(NamedTuple):
    """Result of `finish_committed`: uploads left alone, which may be another job's, and the state of the file list."""

    uploads_left: list[str]
    kept: KeptList


async def finish_committed(
    context: StageContext,
    state: CommitState,
    published: Published,
    action: PublishAction,
    ended: Ended | None = None,
) -> Finished:
    """Takes all steps after `outcome=committed`, idempotently; `ended` saves reads of what this driver knows.

    An error has `outcome="committed"`: the output is complete, and `recover` finishes the rest.
    """
    job = _Committed(context, state, published)
    with saying_what_is_left(context):
        await job.look(ended)
        await action.supersede(context, state)
        job.kept = await keep_list(context, state, fresh=True)
        await job.save_success()
        if context.config.diagnostics_manifest_directory:
            await _keep_records(context)
        if state.superseded:
            await _remove_emptied_directories(context, state)
        cleaned, uploads_left = await clean_up(context)
    await job.save_report()
    with saying_what_is_left(context):
        await remove_job(context, job.outcome if context.config.outcome_kept else None, cleaned=cleaned)
    return Finished(uploads_left, job.kept)


class _Committed:
    """The last steps of a committed job; `was_empty` tells whether the destination held nothing else."""

    def __init__(self, context: StageContext, state: CommitState, published: Published) -> None:
        self._context = context
        self._state = state
        self._published = published
        self.outcome: JobOutcome
        self.was_empty = False
        self.kept = KeptList()

    async def look(self, ended: Ended | None) -> None:
        """Reads what this driver does not know of the job's end."""
        context, decision = self._context, self._state.decision
        outcome, alone = (ended.outcome, ended.alone) if ended is not None else (None, None)
        if outcome is None:
            outcome = await read_outcome(context.store, context.layout)
            if outcome is None:
                raise decision_is_gone(context)
        if alone is None:
            alone = decision.was_empty and await runs_alone(context) and await is_unmarked(context)
        self.outcome, self.was_empty = outcome, alone

    async def save_success(self) -> None:
        """Writes `_SUCCESS`, unless another driver finished the job, or the job writes none."""
        context, decision = self._context, self._state.decision
        if not context.config.mark_successful_jobs:
            return
        marker = success_data(
            context,
            success=True,
            published=self._published,
            stage=SaveSuccess.name,
            was_empty=self.was_empty,
            directories=decision.directories,
            decided_by=decision.driver,
            more=self.kept.diagnostics,
            committed_at=self.outcome.created,
        )
        await SaveSuccess(context, was_absent=self.was_empty).run(marker)
        await sync_directories(context, [context.layout.destination])

    async def save_report(self) -> None:
        """Saves the summary, if the job asks for one."""
        await save_report(
            self._context,
            success=True,
            published=self._published,
            was_empty=self.was_empty,
            directories=self._state.decision.directories,
            more=self.kept.diagnostics,
        )


async def _remove_emptied_directories(context: StageContext, state: CommitState) -> None:
    """Removes directories that held only superseded files, deepest first; ignores failures."""
    store, layout = context.store, context.layout
    if not store.capabilities.directories:
        return
    emptied = with_ancestors(await state.superseded.directories(), layout.roots)

    async def remove(directory: str) -> None:
        try:
            await store.delete_directory(layout.target(directory), recursive=False)
        except CommitterError:
            return

    for depth in sorted({directory.count("/") for directory in emptied}, reverse=True):
        level = sorted(directory for directory in emptied if directory.count("/") == depth)
        await run_workers(level, remove, workers=context.config.io_concurrency, operation="remove_emptied")


async def _keep_records(context: StageContext) -> None:
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
