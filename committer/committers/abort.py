"""Aborting a job: deciding against it, then removing it."""

from __future__ import annotations

from committer.committers.finish import save_report
from committer.errors import JobDecidedError, JobNotFoundError
from committer.events import audit, names
from committer.events.logs import job_logger
from committer.stages.abort_uploads import AbortUploads
from committer.stages.base import StageContext
from committer.stages.cleanup import CleanupJob, RemoveFate, remove_emptied
from committer.stages.decide import abort_decision, create_decision
from committer.stages.intent import release_lock
from committer.stages.job_directory import look_at_job, read_outcome, refuse_links

_log = job_logger("committer.committers")


async def abort_job(context: StageContext) -> bool:
    """Decides against the job and removes it; does nothing for a job that ended or is gone.

    Returns:
        Whether the job is decided against.

    Raises:
        JobDecidedError: It is decided to be committed; nothing was deleted.
    """
    with audit(ji=context.layout.job_id), context.statistics.timed(names.JOB_STAGE_ABORT):
        try:
            found = await look_at_job(context.store, context.layout)
        except JobNotFoundError:
            await release_lock(context)
            return False
        await refuse_links(context.store, found, operation="abort")
        if found.ended:
            outcome = await read_outcome(context.store, context.layout)
            if outcome is not None and outcome.outcome == "committed":
                # Its driver may have died, or been cancelled, before it gave the lock back.
                await release_lock(context)
            return False
        if not (found.set_up or found.decided or found.attempts):
            # What a cleanup leaves that died, or is, before its very last step.
            await release_lock(context)
            await remove_emptied(context)
            return False
        try:
            decision = await create_decision(context, abort_decision(context))
        except JobNotFoundError:
            # Cleaned up since it was listed: there is nothing left to abort.
            await release_lock(context)
            return False
        if decision.decision == "commit":
            raise JobDecidedError(
                f"job {context.layout.job_id} is decided to be committed: it was not aborted, nothing was deleted",
                operation="abort",
                path=context.layout.decision,
                outcome="partial",
                next_step=f"call {context.recover_call()} to finish it, or {context.recover_call(rollback=True)} to "
                "take it back",
            )
        await release_lock(context)
        if not context.config.cleanup_skipped:
            await CleanupJob(context).run(None)
        elif context.store.capabilities.multipart:
            await AbortUploads(context).run(None)
        await save_report(context, success=False, published=None, error=None, only_if_absent=True)
        if not context.config.cleanup_skipped:
            await RemoveFate(context).run(None)
        _log.info("job %s is aborted", context.layout.job_id)
        return True
