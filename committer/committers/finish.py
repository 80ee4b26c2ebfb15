"""What follows the end of a job: cleanup, the last records, and what a rollback or an abort leaves to do."""

from __future__ import annotations

from committer.committers.failures import saying_what_is_left, what_first
from committer.committers.reports import save_report
from committer.errors import CommitterError, JobNotFoundError
from committer.logs import job_logger
from committer.stages.abort_uploads import AbortUploads
from committer.stages.base import StageContext
from committer.stages.cleanup import (
    CleanupJob,
    RemoveDecision,
    RemoveLastRecords,
)
from committer.stages.end_job import mark_finished
from committer.stages.own_records import read_own_outcome
from committer.stages.release_lock import release_lock
from committer.stages.removal import Removal, removal_of

_log = job_logger("committer.committers")


async def finish_kept(context: StageContext) -> None:
    """Removes what stands beside a kept outcome: what came late, or what a cleanup that died left. Idempotent.

    Raises:
        CommitterError: With `outcome="committed"`: the output is complete; `recover` does the rest.
    """
    removal = removal_of(context)
    with saying_what_is_left(context):
        cleaned, _left_alone = await clean_up(context, removal)
        if cleaned:
            await remove_last_records(context, removal, kept=True)


async def finish_rolled_back(context: StageContext) -> list[str]:
    """Everything after a rollback was undone. Idempotent.

    Returns:
        The uploads that `AbortUploads` leaves alone: they may be another job's.

    Raises:
        CommitterError: With `outcome="partial"`: all was taken back, and `recover` or `cleanup` removes what is left.
    """
    step = context.recover_call(rollback=True)
    try:
        outcome = await read_own_outcome(context.store, context.layout)
        if outcome is not None and not outcome.finished:
            await mark_finished(context, outcome)
        await release_lock(context)
        step = context.cleanup_call()
        removal = removal_of(context)
        cleaned, left_alone = await clean_up(context, removal, skipped=context.config.cleanup_skipped)
        if cleaned:
            await remove_last_records(context, removal, kept=False)
    except CommitterError as error:
        error.outcome = "partial"
        error.next_step = f"the job is rolled back; {what_first(error)}, then call {step} to remove what is left of it"
        raise
    return left_alone


async def clean_up(
    context: StageContext, removal: Removal, *, skipped: bool = False, ended: bool = False
) -> tuple[bool, list[str]]:
    """Removes all but decision and outcome, which tell what is left of the job apart.

    Args:
        context: The job.
        removal: What removes it.
        skipped: The job wants none of it.
        ended: See `CleanupJob`.

    Returns:
        Whether it did, and it went well; and the uploads that `AbortUploads` leaves alone: they may be another
        job's.
    """
    try:
        if skipped:
            # What is left pending is paid for, and no listing of files shows it.
            return False, await AbortUploads(context).run([]) if context.store.capabilities.multipart else []
        return True, await CleanupJob(context, ended=ended).run(removal)
    except JobNotFoundError:
        # Another driver did the rest, and the id is another job's by now.
        return False, []
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)
        return False, []


async def remove_last_records(context: StageContext, removal: Removal, *, kept: bool) -> None:
    """Removes decision and outcome, or leaves an outcome that is kept; a failure is ignored where the job says so."""
    try:
        await (RemoveDecision(context) if kept else RemoveLastRecords(context)).run(removal)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)


async def finish_aborted(context: StageContext) -> None:
    """Everything after a decision against a job. Idempotent."""
    await release_lock(context)
    skipped = context.config.cleanup_skipped
    removal = removal_of(context)
    if not skipped:
        try:
            await CleanupJob(context).run(removal)
        except JobNotFoundError:
            # Another driver did it, and the id is another job's by now.
            return
    elif context.store.capabilities.multipart:
        await AbortUploads(context).run([])
    await save_report(context, success=False, published=None, error=None, only_if_absent=True)
    if not skipped:
        await RemoveLastRecords(context).run(removal)
