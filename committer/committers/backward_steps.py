"""Steps that abort, roll back, close or remove a job; each may run again, or beside another driver."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from committer.committers.failures import (
    advise_files_missing,
    refuse_aborted,
    refuse_committed,
    refuse_decided,
    unsettled_refusal,
    what_first,
)
from committer.committers.forward_steps import clean_up, remove_job
from committer.committers.job_call import JobCall, StepResult
from committer.committers.position import Position, standing_of
from committer.committers.reports import report_of, report_of_ended, report_of_finished, save_report
from committer.committers.results import JobReport
from committer.committers.standing import STEPS, Standing, Step, Wish
from committer.errors import CommitterError, JobNotFoundError, JobRolledBackError, RecordError, StoreNotFoundError
from committer.logs import job_logger
from committer.stages.base import StageContext
from committer.stages.decide.decide import abort_decision, create_decision
from committer.stages.publish.publish import Published
from committer.stages.remove.abort_uploads import AbortUploads
from committer.stages.remove.removal import (
    CleanupJob,
    RemoveJob,
    end_without_removal,
    keep_outcome,
    remove_leftovers,
    remove_temporary,
)
from committer.stages.setup.setup_job import create_opened
from committer.stages.state.job_directory import no_own_job, refuse_links
from committer.stages.undo.roll_back import RollBackRequest

_log = job_logger("committer.committers")


async def decide_against(call: JobCall, position: Position) -> StepResult:
    """Creates the decision to abort, unless another driver decides to commit first."""
    context = call.context
    if position.found is not None:
        await refuse_links(context.store, position.found, operation="abort")
    try:
        decision = await create_decision(context, abort_decision(context))
    except JobNotFoundError:
        # Another process removed the job since it was listed: nothing is left to abort.
        return await call.look()
    if decision.driver != context.driver:
        return await call.look()
    return call.adopt(Position(Standing.ABORTED, position.found, decision))


async def clean_up_aborted(call: JobCall, position: Position) -> StepResult:
    """Removes the files of an aborted job."""
    context = call.context
    if position.found is not None:
        await refuse_links(context.store, position.found, operation="abort")
    skipped = context.config.cleanup_skipped
    if not skipped:
        await CleanupJob(context).run(None)
    elif context.store.capabilities.multipart:
        await AbortUploads(context).run(None)
    await save_report(context, success=False, published=None, error=None, only_if_absent=True)
    await (end_without_removal(context) if skipped else RemoveJob(context).run(None))
    _log.info("job %s is aborted", context.layout.job_id)
    return report_of(context, call.started, success=False, published=Published(), directories=0)


async def create_rollback(call: JobCall, position: Position) -> StepResult:
    """Creates the outcome "rolled-back", unless another driver commits the job first."""
    await call.make_ready(position)
    await call.probe_abilities()
    state = await call.state_of(position)
    refusal = call.refusal
    reason = refusal.message if refusal is not None else "on demand"
    # A refused driver has no call under way. Worker processes may have.
    force = call.force or (refusal is not None and call.context.pool is None)
    outcome = await call.action.roll_back(call.context).run(RollBackRequest(state, reason, force))
    return replace(position, standing=standing_of(outcome), outcome=outcome)


async def undo_published(call: JobCall, position: Position) -> StepResult:
    """Undoes what was published. Every driver that reads the outcome does this."""
    await call.make_ready(position)
    state = await call.state_of(position)
    # Every driver undoes: only this one knows what it published after another driver's rollback.
    await call.action.roll_back(call.context).undo(state)
    await call.action.settle_rolled_back(call.context, state)
    return replace(position, standing=Standing.UNDONE)


async def clean_up_undone(call: JobCall, position: Position) -> StepResult:
    """Removes the files of a job that was rolled back, and reports it."""
    context = call.context
    try:
        cleaned, uploads_left = await clean_up(context)
        await remove_job(context, None, cleaned=cleaned)
    except CommitterError as error:
        error.outcome = "partial"
        step = (
            context.cleanup_call()
            if error.path.startswith(str(context.layout.removed))
            else context.recover_call(rollback=True)
        )
        error.next_step = f"the job is rolled back; {what_first(error)}, then call {step} to remove what is left of it"
        if call.refusal is not None:
            raise unsettled_refusal(context, call.refusal, error) from error
        raise
    return rollback_report(call, uploads_left)


def rollback_report(call: JobCall, uploads_left: Sequence[str] = ()) -> JobReport:
    """Returns the report of a rolled-back job to a caller who asked for the rollback; raises for any other."""
    if call.refusal is not None:
        call.refusal.outcome = "unchanged"
        call.refusal.next_step = call.refusal.next_step or "run the job again; what was published was rolled back"
        raise call.refusal
    if call.wish is not Wish.ROLL_BACK:
        reason = call.outcome.reason if call.outcome is not None else "on demand"
        raise JobRolledBackError(
            f"job {call.context.layout.job_id} was rolled back: {reason}",
            operation="commit_job",
            path=call.context.layout.destination,
            next_step="run the job again",
        )
    return report_of(
        call.context, call.started, success=False, published=Published(), directories=0, uploads_left=uploads_left
    )


async def report_end(call: JobCall, position: Position) -> JobReport:
    """Reports how a job ended that has no directory any more, or keeps only its outcome."""
    if position.outcome is not None:
        # A removal that died left other records beside the outcome.
        await keep_outcome(call.context)
    committed = False
    decided = call.decision is not None and call.decision.decision == "commit"
    try:
        report = await report_of_finished(call.context, call.started, position.outcome, decided=decided)
        committed = report.success
        return report
    except (JobNotFoundError, RecordError) as error:
        known = call.overtaken
        if isinstance(known, JobNotFoundError) or (known is not None and known.outcome == "committed"):
            raise known from None
        if call.outcome is not None and call.outcome.outcome == "rolled-back":
            # Another driver of the job rolled it back and removed it first.
            return rollback_report(call)
        if call.outcome is not None:
            # The directory existed a moment ago: a removal had died before it deleted it.
            committed = True
            return report_of_ended(call.context, call.outcome, call.started)
        call.is_end_unknown = isinstance(error, RecordError)
        raise
    except CommitterError as error:
        if decided:
            advise_files_missing(call.context, error)
        raise
    finally:
        # Most likely the job was rolled back and removed while this driver still created directories.
        if call.publishing and call.state is not None and not committed:
            await call.action.roll_back(call.context).put_back_late(call.state)


async def close(call: JobCall, position: Position) -> StepResult:
    """Closes a job that was never opened, unless its driver opens it at this moment."""
    await close_job(call.context)
    return await call.look()


async def close_job(context: StageContext) -> None:
    """Creates the record `opened` as closed, unless it exists: one call."""
    with suppress(StoreNotFoundError):
        await create_opened(context, context.layout, "closed")


async def remove_rest(call: JobCall, position: Position) -> StepResult:
    """Deletes what an interrupted removal or a closed setup left, unless the ended job skips cleanup."""
    context, decision = call.context, position.decision
    found = position.found
    if found is not None and (found.is_foreign or (found.may_be_s3a_job and call.wish in (Wish.COMMIT, Wish.RECOVER))):
        # An earlier run of the id may have committed; what its late tasks left among the output is removed below.
        try:
            report = await report_end(call, Position(Standing.GONE))
        except JobNotFoundError:
            raise no_own_job(found) from None
        if found.is_foreign or not report.success:
            return report
    if found is not None:
        await refuse_links(context.store, found, operation="cleanup")
    if decision is not None and position.outcome is not None:
        call.outcome = position.outcome
        if call.wish is Wish.ROLL_BACK and position.outcome.outcome == "committed":
            raise refuse_committed(context)
    if call.outcome is None or decision is None or not decision.config.cleanup_skipped:
        await CleanupJob(context).run(None)
        await RemoveJob(context).run(None)
    else:
        # The driver that ended the job may have died before it deleted its entry.
        await end_without_removal(context)
    return None if call.wish is Wish.ABORT else Position(Standing.GONE)


async def leave(call: JobCall, position: Position) -> StepResult:
    """Leaves a job that ended unchanged; removes the leftovers of a job without records."""
    if position.standing is Standing.GONE:
        # Its last driver may have died, or failed, before it deleted the renamed directory and the entries.
        await remove_leftovers(call.context)
        await remove_temporary(call.context)
    return None


async def refuse(call: JobCall, position: Position) -> StepResult:
    """Raises the refusal that the table names."""
    refuse = {
        Step.REFUSE_ABORTED: refuse_aborted,
        Step.REFUSE_COMMITTED: refuse_committed,
        Step.REFUSE_DECIDED: refuse_decided,
    }[STEPS[position.standing][call.wish]]
    raise refuse(call.context)
