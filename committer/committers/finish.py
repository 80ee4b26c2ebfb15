"""What follows the end of a job: cleanup, the last records, and what a rollback or an abort leaves to do."""

from __future__ import annotations

from committer.committers.failures import what_first
from committer.committers.reports import save_report
from committer.errors import CommitterError
from committer.logs import job_logger
from committer.records.job_state import JobOutcome
from committer.stages.abort_uploads import AbortUploads
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveJob, put_kept
from committer.stages.removal import end_without_removal

_log = job_logger("committer.committers")


async def finish_rolled_back(context: StageContext) -> list[str]:
    """Everything after a rollback was undone. Idempotent.

    Returns:
        The uploads that `AbortUploads` leaves alone: they may be another job's.

    Raises:
        CommitterError: With `outcome="partial"`: all was taken back, and `recover` or `cleanup` removes what is left.
    """
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
    """Removes what tasks wrote; the records that say how the job ended stay.

    Returns:
        Whether the job is to be removed; and the uploads that `AbortUploads` leaves alone: they may be
        another job's.
    """
    try:
        if context.config.cleanup_skipped:
            # What is left pending is paid for, and no listing of files shows it.
            return False, await AbortUploads(context).run(None) if context.store.capabilities.multipart else []
        return True, await CleanupJob(context).run(None)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)
        return False, []


async def remove_job(context: StageContext, kept: JobOutcome | None, *, cleaned: bool) -> None:
    """Runs `RemoveJob`, or only ends the job where `clean_up` left it; a failure is ignored where the job says so."""
    try:
        if cleaned:
            await RemoveJob(context).run(kept)
        else:
            if kept is not None:
                await put_kept(context, kept)
            await end_without_removal(context)
            if not context.layout.setup_name:
                # The task directory stays, so the job would look live. An outcome without a decision is over.
                await context.store.delete_file(context.layout.decision)
    except CommitterError as error:
        if not context.config.cleanup_failures_ignored:
            raise
        _log.warning("cleanup of job %s failed and is ignored: %s", context.layout.job_id, error)


async def finish_aborted(context: StageContext) -> None:
    """Everything after a decision against a job. Idempotent."""
    skipped = context.config.cleanup_skipped
    if not skipped:
        await CleanupJob(context).run(None)
    elif context.store.capabilities.multipart:
        await AbortUploads(context).run(None)
    await save_report(context, success=False, published=None, error=None, only_if_absent=True)
    await (end_without_removal(context) if skipped else RemoveJob(context).run(None))
