"""Reads a job's position from the records in its directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from committer.committers.standing import Seen, Standing, classify
from committer.errors import JobNotFoundError, JobStateError
from committer.flow.together import both
from committer.records.job_state import Decision, JobOutcome
from committer.stages.base import StageContext
from committer.stages.finish.end_job import Ended
from committer.stages.state.job_directory import JobDirectory, look_at_job
from committer.stages.state.job_liveness import has_setup, is_marked_over, may_vanish
from committer.stages.state.own_records import is_open, read_decision, read_kept, read_outcome

_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class Position:
    """The standing of a job and the records that prove it; `ended` is the result of this driver's `EndJob`."""

    standing: Standing
    found: JobDirectory | None = None
    decision: Decision | None = None
    outcome: JobOutcome | None = None
    ended: Ended | None = None


async def read_position(context: StageContext) -> Position:
    """Reads a job's position: 1 call for an undecided job, 3 or 4 for a decided one.

    The setup record is read last: a removal deletes it first. If it vanished since the listing everything is
    read again: the rest may be of a job that has ended since.
    """
    for _look in range(_LOOKS):
        position = await _read_once(context)
        if position is not None:
            return position
    raise JobStateError(
        f"the records of job {context.layout.job_id} changed at each of {_LOOKS} looks",
        operation="look_at_job",
        path=context.layout.job_directory,
        outcome="unknown",
        next_step="find out who changes them, then make the call again",
    )


async def _read_once(context: StageContext) -> Position | None:
    layout, store = context.layout, context.store
    try:
        found = await look_at_job(store, layout)
    except JobNotFoundError:
        return Position(Standing.GONE)
    if found.keeps_outcome:
        return Position(Standing.KEPT, found, outcome=await read_kept(store, layout))
    set_up = await has_setup(context, found)
    decision, outcome = None, None
    if found.decided or found.ended:
        decision, outcome = await both(read_decision(store, layout), read_outcome(store, layout))
        if set_up and may_vanish(context) and not await has_setup(context):
            return None
        if (found.decided and decision is None) or (found.ended and outcome is None):
            return None
    if found.opened and context.known.is_open is None:
        context.known.is_open = bool(await is_open(store, layout))
    seen = Seen(
        anything=bool(found.children),
        setup=set_up,
        opened=None if not found.opened else "open" if context.known.is_open else "closed",
        intent=bool(found.intents),
        decision=decision.decision if decision is not None else None,
        outcome=outcome.outcome if outcome is not None else None,
        kept=found.kept,
    )
    standing = classify(seen)
    if standing in (Standing.OPEN, Standing.INTENDED) and await is_marked_over(context, found):
        standing = Standing.OVER
    # A removal deletes `opened` before the outcome: an outcome without it may have been created after the removal.
    return Position(standing, found, decision, outcome if found.opened else None)


def standing_of(outcome: JobOutcome) -> Standing:
    """Returns the standing of a decided job with this outcome."""
    return Standing.COMMITTED if outcome.outcome == "committed" else Standing.ROLLED_BACK
