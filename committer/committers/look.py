"""Looking where a job stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from committer.committers.standing import Standing
from committer.committers.trusted_config import trusted_config
from committer.errors import JobNotFoundError, StoreNotFoundError
from committer.flow.together import both
from committer.records.job_state import Decision, JobOutcome, is_of
from committer.stages.base import StageContext
from committer.stages.commit_state import is_fenced
from committer.stages.end_job import Ended
from committer.stages.job_directory import JobDirectory, look_at_job
from committer.stages.origin import holds_no_job
from committer.stages.other_setup import is_anew
from committer.stages.own_records import read_decision, read_outcome, read_own_outcome, read_setup
from committer.stages.success_content import read_success, was_completed

_GONE: Final = frozenset({Standing.GONE, Standing.REMAINS, Standing.CLAIMED})


@dataclass(frozen=True, slots=True)
class Position:
    """Where a job stands, and the records that say so.

    Attributes:
        standing: Where.
        found: What stands in its directory; None where that is gone, or was not listed.
        decision: The decision, where one stands.
        outcome: The outcome, where one stands.
        ended: What this driver's `EndJob` found; None where another one ended the job.
    """

    standing: Standing
    found: JobDirectory | None = None
    decision: Decision | None = None
    outcome: JobOutcome | None = None
    ended: Ended | None = None


async def look_where_it_stands(context: StageContext) -> Position:
    """Looks where a job stands: 1 call for one that is not decided, 4 to 7 for a decided one.

    Raises:
        RecordError: What stands in the place of a record is none.
    """
    position = await _look(context)
    if not context.stood and position.standing not in _GONE:
        return Position(Standing.ANEW, position.found)
    return position


async def _look(context: StageContext) -> Position:
    layout, store = context.layout, context.store
    try:
        found = await look_at_job(store, layout)
    except JobNotFoundError:
        return Position(Standing.GONE)
    if await is_anew(context, found.children):
        return Position(Standing.ANEW, found)
    if not (found.decided or found.ended):
        if context.claimed:
            # Once the claim's own record is gone it is over: what stands there came late.
            return Position(Standing.CLAIMED if found.set_up else Standing.REMAINS, found)
        if holds_no_job(context, found) or await _ended_before(context, found):
            return Position(Standing.REMAINS, found)
        directories = store.capabilities.directories
        began = any(not found.outlived(name, directories=directories) for name in found.intents)
        return Position(Standing.INTENDED if began else Standing.OPEN, found)
    decision = await read_decision(store, layout)
    if decision is None:
        # Gone since the directory was listed, or removed by a cleanup that died before it removed the outcome.
        outcome = await read_outcome(store, layout)
        if outcome is None:
            return Position(Standing.GONE)
        if not is_of(outcome.setup, layout.setup_name):
            return await _other_setups(context, found)
        return Position(Standing.KEPT if outcome.kept else Standing.ONLY_OUTCOME, found, outcome=outcome)
    if not is_of(decision.setup, layout.setup_name):
        own = await read_own_outcome(store, layout) if found.ended else None
        # Beside an outcome that is kept nothing but what came late can stand.
        if own is not None and own.kept:
            return Position(Standing.KEPT, found, None, own)
        return await _other_setups(context, found, decision)
    if decision.decision == "abort":
        return await _look_at_decided_against(context, found, decision)
    return await _look_at_decided(context, decision)


async def _look_at_decided_against(context: StageContext, found: JobDirectory, decision: Decision) -> Position:
    layout = context.layout
    if decision.remains:
        return Position(Standing.CLAIMED, found, decision)
    if not decision.setup and await _ended_before(context, found):
        # A cleanup decided against what a late task left, which may have been a job of Hadoop's.
        return Position(Standing.REMAINS, found)
    outcome = await read_outcome(context.store, layout)
    if outcome is not None and not is_of(outcome.setup, layout.setup_name):
        return await _other_setups(context, found)
    # An abort that looked before the job committed may decide only now, and is about to find out.
    if outcome is not None and outcome.kept:
        return Position(Standing.KEPT, found, decision, outcome)
    return Position(await _standing_against(context, found, decision), found, decision, outcome)


async def _standing_against(context: StageContext, found: JobDirectory, decision: Decision) -> Standing:
    """Where a job stands that is decided against: where late writes are taken 1 call.

    There the decision may have come when the job had committed and was cleaned up. A cleanup removes the setup record
    before the decision, so without that record a decision says nothing.
    """
    if context.store.capabilities.refuses_late_writes or not decision.setup:
        return Standing.ABORTED
    try:
        setup = await read_setup(context.store, context.layout) if found.set_up else None
    except StoreNotFoundError:
        setup = None
    if setup is None:
        return Standing.EMPTIED
    return Standing.ABORTED if is_of(setup.spec.setup, decision.setup) else Standing.ANEW


async def _other_setups(
    context: StageContext, found: JobDirectory | None, decision: Decision | None = None
) -> Position:
    """Where a job stands beside whose records is one of another setup of its id: one call.

    Its own setup record says which of the two is over: this driver's, or the one that the other record is of.

    Args:
        context: The job.
        found: What stands in its directory; None where that was not listed.
        decision: The record of another setup, where it is a decision.
    """
    try:
        setup = await read_setup(context.store, context.layout)
    except StoreNotFoundError:
        if decision is not None and decision.remains:
            # A cleanup's, against what it found without setup record.
            return Position(Standing.CLAIMED, found, decision)
        return Position(Standing.ANEW, found)
    mistaken = setup.spec.setup == context.layout.setup_name
    return Position(Standing.MISTAKEN if mistaken else Standing.ANEW, found)


async def _look_at_decided(context: StageContext, decision: Decision) -> Position:
    """Where a job stands whose decision to commit it was read: the first that holds.

    ==========================================================  ===================================================
    an outcome of another setup of the id stands                as `_other_setups` says
    no job's directory is left around the decision              gone, or stale: as `_without_job` says
    an outcome stands                                           as that says
    `_SUCCESS` came from this very decision                     repeated: it committed, and was cleaned up
    a rollback renamed the sources' directory                   fenced
    nothing of that                                             decided
    ==========================================================  ===================================================

    A late request can have made the decision again, after a cleanup: that is what the second and the fourth are for.
    """
    layout = context.layout
    outcome, fenced = await both(read_outcome(context.store, layout), is_fenced(context))
    if outcome is not None and not is_of(outcome.setup, layout.setup_name):
        return await _other_setups(context, None)
    found: JobDirectory | None = None
    if _may_be_late(context, outcome):
        # After the decision was read: a driver looks for the setup record once it decided, too.
        try:
            found = await look_at_job(context.store, layout)
        except JobNotFoundError:
            return Position(Standing.GONE)
        over, outcome = await _without_job(context, found, decision, outcome)
        if over is not None:
            return over
    if outcome is None:
        adopted = replace(context, config=trusted_config(decision.config, context.config))
        if not await was_completed(adopted, decision):
            return Position(Standing.FENCED if fenced else Standing.DECIDED, found, decision)
        # Its driver may have ended it since the outcome was looked for.
        outcome = await read_outcome(context.store, layout)
        if outcome is None:
            return Position(Standing.REPEATED, found, decision)
    return Position(standing_of(outcome), found, decision, outcome)


def _may_be_late(context: StageContext, outcome: JobOutcome | None) -> bool:
    """Whether a decision may be one that a late request made again.

    Not beside an outcome, where the store refuses writes into directories that are gone. Elsewhere not beside one that
    is finished: then only cleaning is left, whichever request made the decision.
    """
    return outcome is None or not (context.store.capabilities.refuses_late_writes or outcome.finished)


async def _without_job(
    context: StageContext, found: JobDirectory, decision: Decision, outcome: JobOutcome | None
) -> tuple[Position | None, JobOutcome | None]:
    """Where a job stands of which nothing is left around its decision, None where something is; and the outcome then.

    No call, or one: where an outcome was read beside nothing, it is read again. The job may have been finished since,
    and have kept it.
    """
    late = not context.store.capabilities.refuses_late_writes
    if outcome is not None and found.is_stale(decision, outcome, late=late):
        outcome = await read_outcome(context.store, context.layout)
        if outcome is None:
            return Position(Standing.GONE), None
    if found.is_stale(decision, outcome, late=late):
        return Position(Standing.STALE, found, decision, outcome), outcome
    return None, outcome


def standing_of(outcome: JobOutcome) -> Standing:
    """Where a job stands whose outcome and decision both stand."""
    if outcome.outcome == "rolled-back":
        return Standing.TAKEN_BACK if outcome.finished else Standing.ROLLED_BACK
    return Standing.FINISHED if outcome.finished else Standing.COMMITTED


async def _ended_before(context: StageContext, found: JobDirectory) -> bool:
    """Whether a directory without setup record is left over: a late Java task makes its job's directory again.

    Only Hadoop's jobs have no setup record, and Hadoop's job setup deletes `_SUCCESS`; so one that names this job
    says that it is over, and what stands here came afterwards.
    """
    if found.set_up:
        return False
    marker = await read_success(context)
    return marker is not None and marker.success and marker.jobId == context.layout.job_id
