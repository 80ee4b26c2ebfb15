"""The steps that decide against a job, or take it back.

Each may run again, or beside another driver of the job, and then does what is left to do. A step that fails says so by
its error; where the job stands then is for the loop in `job_commit` to find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from committer.committers.failures import (
    unsettled_refusal,
)
from committer.committers.finish import finish_aborted, finish_rolled_back
from committer.committers.job_call import JobCall, Led
from committer.committers.look import Position, standing_of
from committer.committers.reports import report_of
from committer.committers.results import JobReport
from committer.committers.standing import Standing, Wish
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobRolledBackError,
)
from committer.logs import job_logger
from committer.stages.decide import abort_decision, create_decision
from committer.stages.job_directory import refuse_links
from committer.stages.publish import Published
from committer.stages.roll_back import RollBackRequest

_log = job_logger("committer.committers")


async def decide_against(call: JobCall, position: Position) -> Led:
    """Creates the decision to abort, unless one to commit is faster."""
    context = call.context
    if position.found is not None:
        await refuse_links(context.store, position.found, operation="abort")
    try:
        decision = await create_decision(context, abort_decision(context))
    except JobNotFoundError:
        # Removed since it was listed: there is nothing left to abort.
        return await call.look()
    if decision.driver != context.driver:
        return await call.look()
    return Position(Standing.ABORTED, position.found, decision)


async def clean_up_aborted(call: JobCall, position: Position) -> Led:
    """Removes what an aborted job leaves."""
    if position.found is not None:
        await refuse_links(call.context.store, position.found, operation="abort")
    await finish_aborted(call.context)
    call.aborted = True
    _log.info("job %s is aborted", call.context.layout.job_id)
    return report_of(call.context, call.started, success=False, published=Published(), directories=0)


async def take_back(call: JobCall, position: Position) -> Led:
    """Creates the outcome; another driver may have committed the job meanwhile."""
    await call.make_ready(position)
    await call.prove_abilities()
    state = await call.state_of(position)
    refusal = call.refusal
    reason = refusal.message if refusal is not None else "on demand"
    # A driver that was refused ended all its calls. Of workers in other processes that cannot be known.
    force = call.force or (refusal is not None and call.context.pool is None)
    outcome = await call.action.roll_back(call.context).run(RollBackRequest(state, reason, force))
    return replace(position, standing=standing_of(outcome), outcome=outcome)


async def undo(call: JobCall, position: Position) -> Led:
    """Takes back what was published; each driver that meets the outcome helps."""
    await call.make_ready(position)
    state = await call.state_of(position)
    # Each driver that meets the outcome helps to undo: what this one published late is known to it alone.
    await call.action.roll_back(call.context).undo(state)
    await call.action.settle_rolled_back(call.context, state)
    return replace(position, standing=Standing.UNDONE)


async def clean_up_undone(call: JobCall, position: Position) -> Led:
    """Removes what a job leaves that is taken back, and says so."""
    try:
        uploads_left = await finish_rolled_back(call.context)
    except CommitterError as error:
        if call.refusal is not None:
            raise unsettled_refusal(call.context, call.refusal, error) from error
        raise
    return report_of_taken_back(call, uploads_left)


def report_of_taken_back(call: JobCall, uploads_left: Sequence[str] = ()) -> JobReport:
    """The report of a job that is rolled back, for a caller who wanted that; an error for any other."""
    if call.refusal is not None:
        call.refusal.outcome = "unchanged"
        call.refusal.next_step = call.refusal.next_step or "run the job again; what was published was taken back"
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
