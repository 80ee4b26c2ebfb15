"""What a driver does at each step of the table in `standing`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from committer.committers import backward_steps, forward_steps, last_steps
from committer.committers.job_call import JobCall, Led
from committer.committers.look import Position
from committer.committers.standing import Step

_Taking: TypeAlias = Callable[[JobCall, Position], Awaitable[Led]]

_TAKING: Final[Mapping[Step, _Taking]] = {
    Step.TELL: last_steps.tell,
    Step.DECIDE: forward_steps.decide,
    Step.DECIDE_AS_INTENDED: forward_steps.decide_as_intended,
    Step.DECIDE_IF_FORCED: forward_steps.decide_if_forced,
    Step.DECIDE_AGAINST: backward_steps.decide_against,
    Step.REMOVE_REMAINS: backward_steps.remove_remains,
    Step.REMOVE_CLAIMED: last_steps.remove_claimed,
    Step.CLEAN_UP_ABORTED: backward_steps.clean_up_aborted,
    Step.REMOVE_EMPTIED: last_steps.remove_emptied,
    Step.PUBLISH: forward_steps.publish,
    Step.TAKE_BACK: backward_steps.take_back,
    Step.UNDO: backward_steps.undo,
    Step.FINISH: forward_steps.finish,
    Step.CLEAN_UP_TAKEN_BACK: backward_steps.clean_up_taken_back,
    Step.CLEAN_UP_KEPT: last_steps.clean_up_kept,
    Step.REMOVE_OUTCOME: last_steps.remove_outcome,
    Step.REMOVE_STALE: last_steps.remove_stale,
    Step.REMOVE_REPEATED: last_steps.remove_repeated,
    Step.REMOVE_MISTAKEN: last_steps.remove_mistaken,
    Step.LEAVE: last_steps.leave,
    Step.REFUSE_DECIDED: last_steps.refuse,
    Step.REFUSE_ABORTED: last_steps.refuse,
    Step.REFUSE_COMMITTED: last_steps.refuse,
    Step.REFUSE_ANEW: last_steps.refuse,
}


async def take(call: JobCall, step: Step, position: Position) -> Led:
    """Takes a step from where the job stands."""
    call.outcome = position.outcome or call.outcome
    return await _TAKING[step](call, position)
