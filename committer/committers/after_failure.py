"""What follows a step that failed: where its job stands by now, if another driver brought it on; else the error.

It depends on how far the job was when the step began:

==============================================  ======================================================
the step                                        what follows
==============================================  ======================================================
decides, and no decision is known               `_after_undecided`
decides, and its decision stands by now         the error, which names the call that goes on
carries a decision out                          `_after_decided`
is another one, or broke off unforeseen         the error
==============================================  ======================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NoReturn

from committer.committers.deciding import withdraw_or_say
from committer.committers.failures import (
    Refusal,
    advise_recovery,
    definite_refusal,
    leave_rest,
    say_undecided,
    typed,
    unsettled_refusal,
)
from committer.committers.job_call import JobCall
from committer.committers.look import Position
from committer.committers.standing import CARRYING_OUT, DECIDING, Standing, Step, Wish
from committer.errors import CommitterError, OutcomeUnknownError, StoreError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.logs import job_logger
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import is_forward_only
from committer.stages.decide.decide import DecideCommit
from committer.stages.publish.move_aside import is_not_given_back
from committer.stages.remove.removal import remove_directory

_log = job_logger("committer.committers")

_UNDECIDED: Final = frozenset({Standing.OPEN, Standing.INTENDED})

# Where a driver finds a job that it saw decided, when another one ended it.
_NO_JOB: Final = frozenset({Standing.ARRIVING, Standing.OVER})
_OVER: Final = _UNDECIDED | _NO_JOB

# Where a job may still stand when a step of this driver failed and no other driver was at work.
_NOT_BROUGHT_ON: Final[Mapping[Step, frozenset[Standing]]] = {
    Step.PUBLISH: frozenset({Standing.DECIDED}),
    Step.TAKE_BACK: frozenset({Standing.DECIDED}),
    Step.UNDO: frozenset({Standing.DECIDED, Standing.ROLLED_BACK}),
    # This driver's own cleanup changes where it stands, too; what it leaves to the last says how it ended.
    Step.FINISH: frozenset(Standing) - {Standing.GONE, Standing.KEPT},
}


async def after_failure(call: JobCall, step: Step, position: Position, error: Exception) -> Position:
    """Where the job stands by now, when another driver brought it on, or is to be taken back; else raises.

    Args:
        call: What was to be done.
        step: The step that failed.
        position: From where it was taken.
        error: How.
    """
    if step in DECIDING and call.decision is None and call.deciding.began:
        return await _after_undecided(call, typed(error))
    if step in DECIDING and call.decision is not None and isinstance(error, CommitterError):
        raise advise_recovery(call.context, error)
    if step in CARRYING_OUT and isinstance(error, CommitterError):
        return await _after_decided(call, step, position, error)
    raise error


async def _after_decided(call: JobCall, step: Step, position: Position, error: CommitterError) -> Position:
    """What follows a step that was carrying a decision out: the first that holds.

    ====================================================  =======================================
    another job's file may lie where a clean-up deletes   the error
    the job's directory is renamed, and its delete fails  the error
    where the job stands cannot be seen                   the error
    it is over                                            it is gone
    another decision stands                               the error
    another driver brought it on, or took it back         where it stands
    the publish was refused for good                      it is refused: the driver takes it back
    nothing of that                                       the error
    ====================================================  =======================================
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
    if _is_over(call, now):
        if step is Step.FINISH:
            _log.warning("could not remove all of job %s: %s", call.context.layout.job_id, error)
        call.outcome = now.outcome or call.outcome
        return Position(Standing.GONE)
    if _is_of_another_decision(call, now):
        # This driver may neither publish nor take back by it: what it rests on was never read here.
        _raise_told(call, step, error)
    if _is_brought_on(call, step, now):
        if step is Step.FINISH:
            call.overtaken = _told(call, step, error)
        return now
    refusal = _to_be_taken_back(call, step, error)
    if refusal is None:
        _raise_told(call, step, error)
    _log.warning("job %s is rolled back: %s", call.context.layout.job_id, refusal.message)
    call.refusal = refusal
    return replace(position, standing=Standing.REFUSED)


def _is_over(call: JobCall, now: Position) -> bool:
    """Whether another driver ended a job that this one saw decided."""
    carried = call.decision
    return carried is not None and carried.decision == "commit" and now.standing in _OVER


def _is_of_another_decision(call: JobCall, now: Position) -> bool:
    """Whether the decision that stands there is not the one that this driver carries out."""
    carried = call.decision
    if carried is None or carried.decision != "commit":
        return False
    return now.decision is not None and now.decision.driver != carried.driver


def _is_brought_on(call: JobCall, step: Step, now: Position) -> bool:
    """Whether another driver of the job did what a step was about to do, or the contrary."""
    own = now.standing is Standing.ROLLED_BACK and now.outcome is not None and now.outcome.driver == call.context.driver
    return not own and now.standing not in _NOT_BROUGHT_ON[step]


def _to_be_taken_back(call: JobCall, step: Step, error: CommitterError) -> Refusal | None:
    """For what a job is to be taken back that was being published: a refusal for good, where that is still possible."""
    if step is not Step.PUBLISH or call.state is None or is_forward_only(call.context, call.state):
        return None
    return definite_refusal(error)


def _raise_told(call: JobCall, step: Step, error: CommitterError, *, recover: str = "") -> NoReturn:
    told = _told(call, step, error)
    if recover not in told.next_step:
        told.next_step = f"{told.next_step}, then call {recover}"
    if told is error:
        # From itself it would lose what caused it.
        raise told
    raise told from error


def _told(call: JobCall, step: Step, error: CommitterError) -> CommitterError:
    """The error of a step as its caller is told of it."""
    context = call.context
    if call.refusal is not None and step in (Step.TAKE_BACK, Step.UNDO):
        return unsettled_refusal(context, call.refusal, error)
    if step is Step.PUBLISH:
        return advise_recovery(context, error, otherwise=_other_end(call))
    if step in (Step.TAKE_BACK, Step.UNDO):
        return advise_recovery(context, error, rollback=step is Step.TAKE_BACK or call.wish is Wish.ROLL_BACK)
    if error.outcome != "committed":
        # It could not be read what is left to do.
        leave_rest(context, error)
    return error


def _other_end(call: JobCall) -> str:
    """What ends a job that cannot be published any further; empty where that was not read."""
    context, state = call.context, call.state
    if state is None:
        return ""
    return context.giving_up() if is_forward_only(context, state) else context.taking_back()


async def _after_undecided(call: JobCall, error: CommitterError) -> Position:
    """What follows a step that was to decide, where this driver saw no decision: the first that holds.

    ==========================================================  ====================================================
    it cannot be told whether the decision was created          the error
    where the job stands cannot be seen                         the error, which says that a recovery may commit it
    it is not decided                                           the error; what this driver declared goes
    another driver decided it, or ended it                      where it stands
    ==========================================================  ====================================================

    The last is no error: a file which that driver published looks like another job's to a preflight. And before it is
    known that none decided nothing is taken back: what was taken counts for all drivers of the job.
    """
    context = call.context
    if isinstance(error, OutcomeUnknownError) and error.operation == DecideCommit.name:
        raise error
    try:
        now = await call.look()
    except (StoreError, MemoryError) as unseen:
        say_undecided(context, error, "another driver may have decided it, and that could not be looked up", unseen)
        raise error from None
    found = now.found
    if now.standing in _UNDECIDED and found is not None:
        await withdraw_or_say(context, error, found)
        raise error
    call.overtaken = error
    if now.standing in (Standing.GONE, *_NO_JOB):
        # Where a write makes directories, what this driver declared made the job's again.
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
