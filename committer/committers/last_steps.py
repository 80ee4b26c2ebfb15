"""The steps for a job that is over, or that is not what the caller takes it for.

Each may run again, or beside another driver of the job, and then does what is left to do. A step that fails says so by
its error; where the job stands then is for the loop in `job_commit` to find out.
"""

from __future__ import annotations

from committer.committers.backward_steps import decide_against, report_of_taken_back
from committer.committers.failures import (
    refuse_aborted,
    refuse_anew,
    refuse_committed,
    refuse_decided,
    say_unseen,
)
from committer.committers.finish import finish_kept
from committer.committers.job_call import JobCall, Led
from committer.committers.look import Position
from committer.committers.reports import report_of_ended, report_of_finished
from committer.committers.standing import Standing, Step, step_for
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    OutcomeUnknownError,
)
from committer.logs import job_logger
from committer.records.job_state import JobOutcome
from committer.stages.cleanup import CleanupJob, RemoveLastRecords
from committer.stages.decide import remove_side_files
from committer.stages.decided_facts import RecordedFacts
from committer.stages.job_directory import refuse_links
from committer.stages.other_setup import remove_mistaken as remove_mistaken_records
from committer.stages.release_lock import release_lock
from committer.stages.removal import removal_of, remove_dead_removals, remove_records

_log = job_logger("committer.committers")


async def tell(call: JobCall, position: Position) -> Led:
    """Reports how a job ended that has no directory any more, or nothing but what is left of its removal."""
    committed = False
    if position.found is not None and position.standing is Standing.REMAINS:
        await remove_dead_removals(call.context, position.found)
    decided = call.decision is not None and call.decision.decision == "commit"
    try:
        report = await report_of_finished(call.context, call.started, decided=decided)
        committed = report.success
        return report
    except JobNotFoundError:
        known = call.overtaken
        if isinstance(known, JobNotFoundError) or (known is not None and known.outcome == "committed"):
            raise known from None
        if call.outcome is not None and call.outcome.outcome == "rolled-back":
            # Another driver of the job undid it, and cleaned up, before this one could.
            await _refuse_published(call, call.outcome)
            return report_of_taken_back(call)
        if call.outcome is not None and call.outcome.finished:
            # It stood until a moment ago: a cleanup had stopped before it removed it.
            committed = True
            return report_of_ended(call.context, call.outcome, call.started)
        raise
    except CommitterError as error:
        if decided:
            say_unseen(call.context, error)
        raise
    finally:
        # It was rolled back and cleaned up, most likely, while this driver was still making directories.
        if call.publishing and call.state is not None and not committed:
            await call.action.roll_back(call.context).put_back_late(call.state)


async def _refuse_published(call: JobCall, outcome: JobOutcome) -> None:
    """Refuses to call a job taken back whose records another process removed before it was, by a forced cleanup or by
    hand, while files of it stand.

    Looks only where this driver holds the list of the job's files and of what stood at their names, which else went
    with the job's directory, and saw no driver finish the rollback.
    """
    state = call.state
    if outcome.finished or state is None or state.files.in_memory is None or isinstance(state.targets, RecordedFacts):
        return
    published = await call.action.roll_back(call.context).find_published(state)
    if published:
        layout = call.context.layout
        raise OutcomeUnknownError(
            f"the records of job {layout.job_id} were removed before it was taken back: {len(published)} of its files "
            f"stand at {layout.destination}, the first: {published[0]}",
            operation="roll_back",
            path=layout.target(published[0]),
            next_step="look at these files, and delete those that are not wanted; old files that the job moved aside "
            "went with its records",
            causes=[call.refusal] if call.refusal is not None else [],
        )


async def leave(call: JobCall, position: Position) -> Led:
    """Leaves a job that ended to its end."""
    ended = position.outcome is None or position.outcome.outcome == "committed"
    if ended and position.standing is not Standing.ANEW:
        # Its driver may have died, or been cancelled, before it gave the lock back.
        await release_lock(call.context)
    return None


async def clean_up_kept(call: JobCall, position: Position) -> Led:
    """Removes what stands beside a kept outcome."""
    await finish_kept(call.context)
    return await tell(call, position)


async def remove_outcome(call: JobCall, position: Position) -> Led:
    """Removes an outcome that a cleanup left, and what that took out before."""
    await _remove_rest(call)
    return Position(Standing.GONE)


async def remove_claimed(call: JobCall, position: Position) -> Led:
    """Removes what a cleanup claimed that may be alive, or have died; a claim says nothing of how the job ended."""
    against_hadoops = call.context.spec.hadoop and position.decision is not None
    if not (call.context.claimed or against_hadoops):
        # To this driver the job was gone. Who claimed its id since removes what is left of it.
        return Position(Standing.GONE)
    if position.decision is None:
        led = await decide_against(call, position)
        if not isinstance(led, Position) or led.standing is not Standing.ABORTED:
            return led
    elif position.found is not None:
        await refuse_links(call.context.store, position.found, operation="abort")
    try:
        await release_lock(call.context)
        await _remove_rest(call)
    except JobNotFoundError:
        # Another process did it, and the id is another job's by now.
        return await call.look()
    return Position(Standing.GONE)


async def _remove_rest(call: JobCall) -> None:
    removal = removal_of(call.context)
    await CleanupJob(call.context).run(removal)
    await RemoveLastRecords(call.context).run(removal)


async def remove_emptied(call: JobCall, position: Position) -> Led:
    """Removes what an abort left that died in its cleanup, or one that came when the job had ended: the two look alike,
    so nothing is said of how the job ended but what a report or `_SUCCESS` says.
    """
    try:
        await _remove_rest(call)
    except JobNotFoundError:
        # Another process did it, and the id is another job's by now.
        return await call.look()
    return Position(Standing.GONE)


async def remove_repeated(call: JobCall, position: Position) -> Led:
    """With a setup record or a directory that arrived as late, it looks like a job that died; but `_SUCCESS` speaks
    of it, and the outcome, which came before that, is gone, and goes last.
    """
    await _remove_rest(call)
    return Position(Standing.GONE)


async def remove_stale(call: JobCall, position: Position) -> Led:
    """Its driver looks for the setup record once it decided; this is for one that died before it could."""
    context = call.context
    outcome = [context.layout.outcome] if position.outcome is not None else []
    await remove_records(context, [context.layout.decision, *outcome])
    if position.found is not None:
        await remove_side_files(context, position.found)
    return Position(Standing.GONE)


async def remove_mistaken(call: JobCall, position: Position) -> Led:
    """Removes a decision, or an outcome, that is of another setup of the job."""
    await remove_mistaken_records(call.context)
    return await call.look()


async def refuse(call: JobCall, position: Position) -> Led:
    """Raises what the table says."""
    refuse = {
        Step.REFUSE_ABORTED: refuse_aborted,
        Step.REFUSE_COMMITTED: refuse_committed,
        Step.REFUSE_DECIDED: refuse_decided,
        Step.REFUSE_ANEW: refuse_anew,
    }[step_for(position.standing, call.wish)]
    raise refuse(call.context)
