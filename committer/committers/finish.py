"""What follows a job's outcome: `_SUCCESS`, the lock, kept records, cleanup, the report."""

from __future__ import annotations

from typing import NamedTuple

from committer.committers.failures import what_first
from committer.committers.listing import KeptList, keep_list, store_of
from committer.committers.publish_action import PublishAction
from committer.committers.reports import save_report
from committer.errors import CommitterError, JobNotFoundError, StoreNotFoundError
from committer.events.logs import job_logger
from committer.flow.together import together
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX
from committer.paths import StorePath
from committer.records.job_state import JobOutcome
from committer.records.success import SuccessData
from committer.stages.abort_uploads import AbortUploads
from committer.stages.base import StageContext
from committer.stages.cleanup import (
    CleanupJob,
    Found,
    RemoveDecision,
    RemoveFate,
    look_what_to_clean,
)
from committer.stages.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.end_job import Ended, mark_finished, runs_alone
from committer.stages.intent import release_lock
from committer.stages.job_directory import read_outcome
from committer.stages.names import with_ancestors
from committer.stages.publish import Published
from committer.stages.success_file import (
    SaveSuccess,
    is_unmarked,
    success_data,
    withdraw_success,
)
from committer.stores.base import Store
from committer.stores.helpers import walk

_log = job_logger("committer.committers")


class Finished(NamedTuple):
    """What is left to say of a job that is over.

    Attributes:
        untold: Uploads that `AbortUploads` leaves alone: they may be another job's.
        kept: What became of the complete list of its files.
    """

    untold: list[str]
    kept: KeptList


async def finish_committed(
    context: StageContext,
    state: CommitState,
    published: Published,
    action: PublishAction,
    ended: Ended | None = None,
) -> Finished:
    """Everything after `outcome=committed`. Idempotent; a failure here leaves a committed job.

    Args:
        context: The job.
        state: What was decided.
        published: What is at the destination.
        action: How it got there.
        ended: What this driver's `EndJob` found; what it did not is looked up.

    Raises:
        CommitterError: With `outcome="committed"`: the output is complete; `recover` does the rest.
    """
    config = context.config
    try:
        outcome, alone = (ended.standing, ended.alone) if ended is not None else (None, None)
        if outcome is None:
            outcome = await read_outcome(context.store, context.layout)
        if alone is None:
            alone = state.decision.was_empty and await runs_alone(context) and await is_unmarked(context)
        # Once finished, `_SUCCESS` was written, and a later job's may stand there.
        fresh = outcome is not None and not outcome.finished
        # Another driver did the rest, and cleaned up; or another process deleted all of `_temporary`, and then
        # nothing stands at `_SUCCESS`.
        gone = outcome is None
        was_empty = alone and fresh
        # Hardly ever does a job hold the lock that takes none; should it, every driver that meets the mark releases it.
        holds_lock = state.decision.replacing or config.takes_replace_lock
        if fresh:
            await action.supersede(context, state)
        kept = await keep_list(context, state, fresh=fresh)
        marker: SuccessData | None = None
        if config.mark_successful_jobs and (fresh or gone):
            marker = success_data(
                context,
                success=True,
                published=published,
                stage=SaveSuccess.name,
                was_empty=was_empty,
                directories=state.decision.directories,
                decided_by=state.decision.driver,
                more=kept.diagnostics,
                committed_at=_ended_at(state, outcome or (ended.outcome if ended is not None else None)),
            )
            await SaveSuccess(context, outcome=outcome, replacing=holds_lock, published=published).run(marker)
            await sync_directories(context, [context.layout.destination])
        if config.diagnostics_manifest_directory and fresh:
            await _keep_records(context)
        if state.superseded:
            await _remove_emptied_directories(context, state)
        looked: list[Found] = []
        overtaken: list[bool] = []

        async def mark() -> None:
            if outcome is not None and not await mark_finished(context, outcome):
                overtaken.append(True)
                if marker is not None:
                    await withdraw_success(context, marker, published)

        await together(
            *([] if holds_lock else [release_lock(context)]),
            *([mark()] if fresh else []),
            *([] if config.cleanup_skipped else [_look_before_cleanup(context, looked)]),
        )
        if holds_lock:
            await release_lock(context)
        # What was withdrawn may lie in the job's directory since that was looked at, and that be another job's by now.
        cleaned, left_alone = await _clean_up(context, *([] if overtaken else looked), skipped=config.cleanup_skipped)
    except CommitterError as error:
        leave_rest(context, error)
        raise
    await save_report(
        context,
        success=True,
        published=published,
        was_empty=was_empty,
        directories=state.decision.directories,
        more=kept.diagnostics,
    )
    if cleaned:
        try:
            await _remove_fate(context, kept=context.config.outcome_kept and outcome is not None)
        except CommitterError as error:
            leave_rest(context, error)
            raise
    return Finished(left_alone, kept)


def _ended_at(state: CommitState, outcome: JobOutcome | None) -> str:
    """When the job ended; where that is not known any more, when it was decided, which was before."""
    return outcome.created if outcome is not None else state.decision.created


async def finish_kept(context: StageContext) -> None:
    """Removes what stands beside a kept outcome: what came late, or what a cleanup that died left. Idempotent.

    Raises:
        CommitterError: With `outcome="committed"`: the output is complete; `recover` does the rest.
    """
    try:
        cleaned, _left_alone = await _clean_up(context)
        if cleaned:
            await _remove_fate(context, kept=True)
    except CommitterError as error:
        leave_rest(context, error)
        raise


def leave_rest(context: StageContext, error: CommitterError) -> None:
    """Says of a failure after the outcome that nothing is missing, and what does the rest."""
    error.outcome = "committed"
    error.next_step = (
        f"the output is complete; {what_first(error)}, then call {context.recover_call()} to finish the rest"
    )


async def finish_rolled_back(context: StageContext) -> list[str]:
    """Everything after a rollback was undone. Idempotent.

    Returns:
        The uploads that `AbortUploads` leaves alone: they may be another job's.

    Raises:
        CommitterError: With `outcome="partial"`: all was taken back, and `recover` or `cleanup` removes what is left.
    """
    step = context.recover_call(rollback=True)
    try:
        outcome = await read_outcome(context.store, context.layout)
        if outcome is not None and not outcome.finished:
            await mark_finished(context, outcome)
        await release_lock(context)
        step = context.cleanup_call()
        cleaned, left_alone = await _clean_up(context, skipped=context.config.cleanup_skipped)
        if cleaned:
            await _remove_fate(context, kept=False)
    except CommitterError as error:
        error.outcome = "partial"
        error.next_step = f"the job is rolled back; {what_first(error)}, then call {step} to remove what is left of it"
        raise
    return left_alone


async def _look_before_cleanup(context: StageContext, looked: list[Found]) -> None:
    """Looks what there is to clean. What cannot be looked at now the cleanup looks for itself, and fails, or not."""
    try:
        looked.append(await look_what_to_clean(context))
    except CommitterError:
        return


async def _clean_up(
    context: StageContext, looked: Found | None = None, *, skipped: bool = False
) -> tuple[bool, list[str]]:
    """Removes all but the job's fate, which tells what is left of it apart.

    Returns:
        Whether it did, and it went well; and the uploads that `AbortUploads` leaves alone: they may be another
        job's.
    """
    try:
        if skipped:
            # What is left pending is paid for, and no listing of files shows it.
            return False, await AbortUploads(context).run(None) if context.store.capabilities.multipart else []
        return True, await CleanupJob(context).run(looked)
    except JobNotFoundError:
        # Another driver did the rest, and the id is another job's by now.
        return False, []
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)
        return False, []


async def _remove_fate(context: StageContext, *, kept: bool) -> None:
    try:
        await (RemoveDecision(context) if kept else RemoveFate(context)).run(None)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)


async def _remove_emptied_directories(context: StageContext, state: CommitState) -> None:
    """Removes directories that held only superseded files, deepest first. A courtesy: failures are ignored."""
    store, layout = context.store, context.layout
    if not store.capabilities.directories:
        return
    emptied = with_ancestors((fact.path.rpartition("/")[0] for fact in state.superseded), layout.roots)

    async def remove(directory: str) -> None:
        try:
            await store.delete_directory(layout.target(directory), recursive=False)
        except CommitterError:
            return

    for depth in sorted({directory.count("/") for directory in emptied}, reverse=True):
        level = sorted(directory for directory in emptied if directory.count("/") == depth)
        await run_workers(level, remove, workers=context.config.io_concurrency, operation="remove_emptied")


async def _keep_records(context: StageContext) -> None:
    """Copies the job's records to a directory of its own in the diagnostics directory; a failure only warns.

    As in Hadoop; but it deletes nothing there: a directory of that name may be another user's.
    """
    layout, store, other = context.layout, context.store, None
    try:
        directory = StorePath.of(context.config.diagnostics_manifest_directory)
        kept_in = directory / layout.unique_name
        other = await store_of(context, directory)
        await other.make_directory(kept_in, parents=True)
        for source in (layout.manifests_frozen, layout.manifests, layout.attempts):
            await _copy_records(context, store, source, other, kept_in)
    except CommitterError as error:
        _log.warning("could not keep the records of job %s: %s", layout.job_id, error)
    finally:
        if other is not None and other is not store:
            await other.close()


async def _copy_records(
    context: StageContext, store: Store, source: StorePath, other: Store, kept_in: StorePath
) -> None:
    try:
        suffixes = (MANIFEST_SUFFIX, context.layout.record_suffix)
        records = [child.path async for child in walk(store, source) if child.path.name.endswith(suffixes)]
    except StoreNotFoundError:
        return

    async def copy(record: StorePath) -> None:
        data = await store.read(record, limit=context.config.record_size_limit)
        await other.put(kept_in / record.name, data)

    if records:
        await run_workers(records, copy, workers=context.config.io_concurrency, operation="keep_records")


async def clean_up_aborted(context: StageContext) -> None:
    """Everything after a decision against a job. Idempotent."""
    await release_lock(context)
    skipped = context.config.cleanup_skipped
    if not skipped:
        try:
            await CleanupJob(context).run(None)
        except JobNotFoundError:
            # Another driver did it, and the id is another job's by now.
            return
    elif context.store.capabilities.multipart:
        await AbortUploads(context).run(None)
    await save_report(context, success=False, published=None, error=None, only_if_absent=True)
    if not skipped:
        await RemoveFate(context).run(None)
