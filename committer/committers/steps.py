"""What a driver does at each step of the table in `standing`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from committer.committers import backward_steps, forward_steps, last_steps
from committer.committers.job_call import JobCall, Led
from committer.committers.look import Position
from committer.committers.standing import Standing, Step

_Taking: TypeAlias = Callable[[JobCall, Position], Awaitable[Led]]

_TAKING: Final[Mapping[Step, _Taking]] = {
    Step.REPORT: last_steps.tell,
    Step.CLOSE: last_steps.close,
    Step.REMOVE_REST: last_steps.remove_rest,
    Step.DECIDE: forward_steps.decide,
    Step.DECIDE_AS_INTENDED: forward_steps.decide_as_intended,
    Step.DECIDE_IF_FORCED: forward_steps.decide_if_forced,
    Step.DECIDE_AGAINST: backward_steps.decide_against,
    Step.CLEAN_UP_ABORTED: backward_steps.clean_up_aborted,
    Step.PUBLISH: forward_steps.publish,
    Step.TAKE_BACK: backward_steps.take_back,
    Step.UNDO: backward_steps.undo,
    Step.CLEAN_UP_UNDONE: backward_steps.clean_up_undone,
    Step.FINISH: forward_steps.finish,
    Step.LEAVE: last_steps.leave,
    Step.REFUSE_DECIDED: last_steps.refuse,
    Step.REFUSE_ABORTED: last_steps.refuse,
    Step.REFUSE_COMMITTED: last_steps.refuse,
}


async def take(call: JobCall, step: Step, position: Position) -> Led:
    """Takes a step from where the job stands."""
    if position.standing is not Standing.OVER:
        call.outcome = position.outcome or call.outcome
    return await _TAKING[step](call, position)
