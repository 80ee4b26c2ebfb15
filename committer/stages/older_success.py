"""Of jobs that end at once the one that committed last has its `_SUCCESS` stand: an older one is moved away for it.

What is moved may be a newer one, where a rename is not told what to move. That is given back.
"""

from __future__ import annotations

from committer.errors import OutcomeUnknownError, StoreError, StoreExistsError, StoreOutcomeUnknownError
from committer.paths import StorePath
from committer.records.job_state import JobOutcome
from committer.records.success import SuccessData
from committer.stages.base import StageContext
from committer.stages.identity import is_regular
from committer.stages.own_records import is_unfinished
from committer.stages.replace_lock import is_held_since_decision
from committer.stages.success_content import DECIDED_BY, is_same_decision, marker_at
from committer.stages.take_away import (
    NotGivenBackError,
    give_back,
    is_taken_place,
    is_told,
    move_away,
    taken_place,
)
from committer.stores.helpers import children_of, status_or_none

_ROUNDS = 5


async def make_room_for(
    context: StageContext,
    value: SuccessData,
    outcome: JobOutcome | None,
    *,
    replacing: bool = False,
    of_this_engine: bool = False,
) -> bool:
    """Moves an older `_SUCCESS` than this one into a directory of the job; False when what stands there stays.

    Only while the job is not finished, looked at after what stands there: what came later than that is not moved.

    Args:
        context: The job that writes `_SUCCESS`, or puts it back.
        value: What is to stand there.
        outcome: The job's outcome as this driver knows it; None when it is gone.
        replacing: The job took the replace lock. While it holds the one that it was decided with, no other job can have
            ended since, so what stands there is older, whatever it says.
        of_this_engine: Only what a driver of this engine wrote makes room: a committer of Hadoop's, whose `_SUCCESS`
            may say nothing, replaces an older one when its job ends, and never comes late.
    """
    layout, store = context.layout, context.store
    standing = await status_or_none(store, layout.success)
    if standing is None:
        return True
    found = await marker_at(context, layout.success)
    if outcome is None or is_same_decision(found, value) or (of_this_engine and not _is_of_this_engine(found)):
        return False
    decided_by = value.diagnostics.get(DECIDED_BY, "")
    if not (_is_older(found, value) or (replacing and await is_held_since_decision(context, decided_by))):
        return False
    if not await is_unfinished(store, layout, outcome):
        return False
    # Where it is not taken another driver was faster, and what stands there now is looked at again. It goes to a
    # directory that no job leaves: one that keeps its outcome keeps its own, and a move that comes late could go there.
    place = taken_place(context, layout.drivers)
    try:
        await move_away(context, layout.success, place, identity=standing.identity)
    except StoreExistsError:
        await _give_back_newest(context, [place], of_this_engine=of_this_engine)
    except StoreOutcomeUnknownError:
        pass
    return True


async def give_back_moved(
    context: StageContext, value: SuccessData, outcome: JobOutcome | None, *, of_this_engine: bool = False
) -> None:
    """Gives back a newer `_SUCCESS` than this one, which another driver of the job moved by mistake before it died.

    For a driver that goes on in its place, while the job is not finished. One listing where a rename is not told what
    to move, some 6 calls more for what lies there; else, and for the driver that ended the job, no call.

    Args:
        context: The job.
        value: What is to stand there. What is older was taken away on purpose.
        outcome: The job's outcome as this driver knows it; None when it is gone.
        of_this_engine: As for `make_room_for`.

    Raises:
        OutcomeUnknownError: It could not be given back. Nothing was deleted.
    """
    if is_told(context.store) or outcome is None or outcome.driver == context.driver:
        return
    held: list[StorePath] = []
    for child in await children_of(context.store, context.layout.drivers):
        if is_taken_place(child.path) and is_regular(child):
            marker = await marker_at(context, child.path)
            if marker is not None and marker.timestamp > value.timestamp:
                held.append(child.path)
    # Once the job is finished another one may have replaced what a newer marker names, and have left none.
    if held and await is_unfinished(context.store, context.layout, outcome):
        await _give_back_newest(context, held, of_this_engine=of_this_engine)


async def _give_back_newest(context: StageContext, taken_to: list[StorePath], *, of_this_engine: bool) -> None:
    """Gives back the newest of markers that were taken by mistake, unless a newer one stands in its place by now.

    Where a rename is not told what to move, and several jobs end at once. What is taken away for that may be another's
    by mistake, too: the newest of all stands in the end.

    Args:
        context: The job.
        taken_to: Where they were taken to.
        of_this_engine: As for `make_room_for`.

    Raises:
        OutcomeUnknownError: It could not be given back: others kept coming, or a call was refused. Nothing was deleted.
    """
    store, success = context.store, context.layout.success
    held, failure, place = [*taken_to], list[StoreError](), taken_to[0]
    try:
        # The last round only looks: what was taken in the one before may be the newest.
        for tries_left in reversed(range(_ROUNDS + 1)):
            found = [(await marker_at(context, taken), taken) for taken in held]
            markers = [(marker, taken) for marker, taken in found if marker is not None]
            if not markers:
                return
            newest, place = max(markers, key=lambda each: each[0].timestamp)
            standing, another = await status_or_none(store, success), taken_place(context, context.layout.drivers)
            if standing is not None:
                there = await marker_at(context, success)
                if not _is_older(there, newest) or (of_this_engine and not _is_of_this_engine(there)):
                    return
            if not tries_left:
                raise NotGivenBackError(place, success, failure[0], or_older=True) from failure[0]
            try:
                if standing is not None:
                    await move_away(context, success, another, identity=standing.identity)
                await give_back(store, place, success, or_older=True)
                return
            except (StoreExistsError, StoreOutcomeUnknownError) as error:
                held.append(another)
                failure = [error]
    except (StoreError, OutcomeUnknownError) as error:
        if isinstance(error, NotGivenBackError) and error.place == place:
            raise
        raise NotGivenBackError(place, success, error, or_older=True) from error


def _is_older(found: SuccessData | None, value: SuccessData) -> bool:
    """Whether a marker is of a job that committed before. What does not say is no job's of this engine."""
    return found is None or found.timestamp < value.timestamp


def _is_of_this_engine(found: SuccessData | None) -> bool:
    return found is not None and DECIDED_BY in found.diagnostics
