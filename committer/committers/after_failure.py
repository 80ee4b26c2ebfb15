"""Handling of a failed step: returns the job's new state if another driver advanced it, else raises the error.

==================================================  =================================================
the failed step                                     what follows
==================================================  =================================================
decides, and this driver knows no decision          `_after_undecided`
decides, and the decision exists                    the error, which names the call that continues
carries out a decision                              `_after_decided`
any other step, or an unforeseen error              the error
==================================================  =================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn

from committer.committers.failures import (
    Refusal,
    advise_records_moved,
    advise_recovery,
    advise_undecided,
    definite_refusal,
    leave_rest,
    typed,
    unsettled_refusal,
)
from committer.committers.job_call import JobCall
from committer.committers.position import Position
from committer.committers.standing import CARRYING_OUT, DECIDING, Standing, Step, Wish
from committer.errors import CommitterError, JobNotFoundError, OutcomeUnknownError, StoreError, StoreOutcomeUnknownError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.logs import job_logger
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import is_forward_only
from committer.stages.decide.decide import DecideCommit
from committer.stages.decide.entries import withdraw
from committer.stages.publish.move_aside import is_not_given_back
from committer.stages.remove.removal import remove_directory
from committer.stages.state.job_directory import JobDirectory, look_at_job

_log = job_logger("committer.committers")

_UNDECIDED: Final = frozenset({Standing.OPEN, Standing.INTENDED})

# States in which a driver finds a job that it saw decided, after another driver ended it.
_NO_JOB: Final = frozenset({Standing.ARRIVING, Standing.OVER})
_OVER: Final = _UNDECIDED | _NO_JOB

# States that a job may still have after this driver's step failed, if no other driver was at work.
_NOT_ADVANCED: Final[Mapping[Step, frozenset[Standing]]] = {
    Step.PUBLISH: frozenset({Standing.DECIDED}),
    Step.TAKE_BACK: frozenset({Standing.DECIDED}),
    Step.UNDO: frozenset({Standing.DECIDED, Standing.ROLLED_BACK}),
    # This driver's own cleanup changes the state as well; the record that it deletes last holds the outcome.
    Step.FINISH: frozenset(Standing) - {Standing.GONE, Standing.KEPT},
}


async def after_failure(call: JobCall, step: Step, position: Position, error: Exception) -> Position:
    """Returns the job's state if another driver advanced it or it must be rolled back; else raises."""
    if step in DECIDING and call.decision is None and call.inputs.began:
        return await _after_undecided(call, typed(error))
    if step in DECIDING and call.decision is not None and isinstance(error, CommitterError):
        raise advise_recovery(call.context, error)
    if step in CARRYING_OUT and isinstance(error, CommitterError):
        return await _after_decided(call, step, position, error)
    raise error


async def _after_decided(call: JobCall, step: Step, position: Position, error: CommitterError) -> Position:
    """Handles the failure of a step that carries out a decision, by the first row that holds.

    ======================================================  ==================================================
    another job's file may be where a cleanup deletes       raises the error
    deleting the renamed job directory failed               raises the error
    the state cannot be read                                raises the error
    the job is over                                         the job is gone
    another decision exists                                 raises the error
    another driver advanced the job, or rolled it back      the state that was read
    the publish was refused for good                        the job is refused: this driver rolls it back
    else                                                    raises the error
    ======================================================  ==================================================
    """
    if is_not_given_back(error):
        _raise_told(call, step, error, recover=call.context.recover_call())
    if step is Step.FINISH and error.path.startswith(str(call.context.layout.removed)):
        _raise_told(call, step, error)
    try:
        now = await call.look()
    except CommitterError as unseen:
        error.causes = (*error.causes, unseen)
        _raise_told(call, step, error)
    carried = call.decision
    if carried is not None and carried.decision != "commit":
        carried = None
    if carried is not None and now.standing in _OVER:
        if step is Step.FINISH:
            _log.warning("could not remove all of job %s: %s", call.context.layout.job_id, error)
        call.outcome = now.outcome or call.outcome
        return Position(Standing.GONE)
    if carried is not None and now.decision is not None and now.decision.driver != carried.driver:
        # This driver never read that decision's inputs, so it may neither publish nor roll back.
        _raise_told(call, step, error)
    if _is_advanced(call, step, now):
        if step is Step.FINISH:
            call.overtaken = _told(call, step, error)
        return now
    refusal = _to_be_taken_back(call, step, error)
    if refusal is None:
        _raise_told(call, step, error)
    _log.warning("job %s is rolled back: %s", call.context.layout.job_id, refusal.message)
    call.refusal = refusal
    return replace(position, standing=Standing.REFUSED)


def _is_advanced(call: JobCall, step: Step, now: Position) -> bool:
    """Returns whether another driver of the job took this step, or rolled the job back."""
    own = now.standing is Standing.ROLLED_BACK and now.outcome is not None and now.outcome.driver == call.context.driver
    return not own and now.standing not in _NOT_ADVANCED[step]


def _to_be_taken_back(call: JobCall, step: Step, error: CommitterError) -> Refusal | None:
    """Returns the refusal for which a job being published is rolled back, if it still can be."""
    if step is not Step.PUBLISH or call.state is None or is_forward_only(call.context, call.state):
        return None
    return definite_refusal(error)


def _raise_told(call: JobCall, step: Step, error: CommitterError, *, recover: str = "") -> NoReturn:
    told = _told(call, step, error)
    if recover not in told.next_step:
        told.next_step = f"{told.next_step}, then call {recover}"
    if told is error:
        # `raise told from told` would lose the original cause.
        raise told
    raise told from error


def _told(call: JobCall, step: Step, error: CommitterError) -> CommitterError:
    """Returns the error that the caller gets for a failed step."""
    context = call.context
    if call.refusal is not None and step in (Step.TAKE_BACK, Step.UNDO):
        return unsettled_refusal(context, call.refusal, error)
    if step is Step.PUBLISH:
        return advise_recovery(context, error, otherwise=_end_advice(call))
    if step in (Step.TAKE_BACK, Step.UNDO):
        return advise_recovery(context, error, rollback=step is Step.TAKE_BACK or call.wish is Wish.ROLL_BACK)
    if error.outcome != "committed":
        # What is left to do could not be read.
        leave_rest(context, error)
    return error


def _end_advice(call: JobCall) -> str:
    """Returns the advice that ends a job which cannot be published further; empty if its state was not read."""
    context, state = call.context, call.state
    if state is None:
        return ""
    return context.abandon_advice() if is_forward_only(context, state) else context.rollback_advice()


async def _after_undecided(call: JobCall, error: CommitterError) -> Position:
    """Handles the failure of a step that was to decide, by the first row that holds.

    =======================================================  ===================================================
    it is unknown whether this driver created the decision   raises the error
    the state cannot be read                                 raises the error: a recovery may commit the job
    the job is not decided                                   raises the error, withdraws this driver's intent
    another driver decided or ended the job                  the state that was read
    =======================================================  ===================================================

    The last row is no error: in preflight, a file that the other driver published looks like another job's. Nothing
    is given back before the state is known: what this driver took counts for all drivers of the job.
    """
    context = call.context
    if isinstance(error, OutcomeUnknownError) and error.operation == DecideCommit.name:
        raise error
    try:
        now = await call.look()
    except (StoreError, MemoryError) as unseen:
        advise_undecided(context, error, "another driver may have decided it, and that could not be looked up", unseen)
        raise error from None
    found = now.found
    if now.standing in _UNDECIDED and found is not None:
        await _withdraw(context, error, found)
        raise error
    call.overtaken = error
    if now.standing in (Standing.GONE, *_NO_JOB):
        # On stores where a write creates directories, this driver's intent recreated the job's directory.
        await run_shielded(lambda: _remove_made_again(context), bound_s=UNDO_BOUND_S)
        return Position(Standing.GONE)
    return now


async def _remove_made_again(context: StageContext) -> None:
    if context.store.capabilities.refuses_late_writes:
        return
    try:
        await remove_directory(context)
    except CommitterError as error:
        _log.warning("could not remove what is left of job %s: %s", context.layout.job_id, error)


async def _withdraw(context: StageContext, error: CommitterError, found: JobDirectory) -> None:
    """Deletes the intent and entry of a refused commit, and moves task output back; a failure changes `error`.

    Output is given back only if no other driver's intent exists: that driver may be alive. Drivers that are refused at
    once see each other's intents; so each lists again after it deleted its own, and the last one gives back.
    """
    failure: Exception | None = None
    withdrawn = False

    async def undo() -> None:
        nonlocal failure, withdrawn
        try:
            own = context.layout.intent(context.driver).name
            if own not in found.intents:
                return
            took = context.spec.delivery == "listing" and context.forms.takes_records
            alone = found.intents == [own]
            if took and alone:
                await context.forms.give_back(context)
            await withdraw(context)
            withdrawn = True
            if took and not alone and await _is_left_open(context):
                await context.forms.give_back(context)
        except Exception as hidden:
            failure = hidden

    in_time = await run_shielded(undo, bound_s=UNDO_BOUND_S)
    if withdrawn and (failure is not None or not in_time):
        advise_records_moved(context, error, failure)
    elif failure is not None or not in_time:
        advise_undecided(context, error, "its intent could not be deleted", failure)
    elif isinstance(error, StoreOutcomeUnknownError):
        # Whatever the lost request did, the job is not decided, and no driver uses the intent.
        error.outcome = "unchanged"
        error.next_step = error.next_step or "commit the job again"


async def _is_left_open(context: StageContext) -> bool:
    """Returns whether the job exists and no driver's intent is left: one call."""
    try:
        found = await look_at_job(context.store, context.layout)
    except JobNotFoundError:
        return False
    return not (found.decided or found.ended or found.intents)
