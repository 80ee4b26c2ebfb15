"""Inputs of a job's decision, and the withdrawal of a commit that was refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from committer.committers.failures import TO_BE_ABORTED, advise_records_moved, advise_undecided, refuse_undecided
from committer.committers.position import Position
from committer.committers.preparing import Prepared, find_refs, named_among, prepare
from committer.committers.results import JobReport, refuse_other_tasks
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    StoreOutcomeUnknownError,
    TargetExistsError,
    TaskMissingError,
)
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both_in_full
from committer.readable import count
from committer.records.job_state import Intent, NamedRecord
from committer.records.task_commit import TaskCommit
from committer.stages.base import RecordRef, StageContext
from committer.stages.check.preflight import refuse
from committer.stages.decide.entries import CommitIntent, withdraw
from committer.stages.load.winning_records import check_attempt_records, refs_of_messages
from committer.stages.state.job_directory import JobDirectory, look_at_job
from committer.stages.state.own_records import read_intent
from committer.stages.state.success_content import is_of_job, read_success


@dataclass(slots=True)
class CommitInputs:
    """Inputs of the commit decision.

    Attributes:
        messages: Task commits from the caller; None for a listing or a recovery.
        recovering: Whether another driver's intent counts.
        winners: The records that the intent names; None if a listing counts.
        began: Whether this call began to declare an intent: an earlier failure has nothing to withdraw.
    """

    messages: list[TaskCommit] | None
    tasks: int | None
    recovering: bool = False
    winners: list[NamedRecord] | None = field(default=None)
    began: bool = False

    @classmethod
    def as_intended(cls, intent: Intent | None) -> CommitInputs:
        """Builds the inputs from a dead driver's intent; without an intent a listing counts."""
        if intent is None:
            return cls(None, None, recovering=True)
        return cls(None, intent.tasks, recovering=True, winners=intent.winners)

    def check_decided(self, context: StageContext, position: Position) -> None:
        """Refuses another driver's decision whose tasks differ from this commit's."""
        decision, layout = position.decision, context.layout
        if decision is None or decision.driver == context.driver or self.recovering:
            return
        winners, tasks = {winner.task for winner in decision.winners}, self.tasks
        named = winners
        if self.messages is not None:
            tasks = tasks or len(self.messages)
            # Task ids in Hadoop's decisions may differ from this engine's.
            named = winners if decision.hadoop else {layout.task_id(message.task) for message in self.messages}
        if tasks in (None, len(winners)) and named == winners:
            return
        ended = position.outcome is not None
        other = min(named ^ winners, default="")
        raise TaskMissingError(
            f"job {layout.job_id} was decided by another driver with {count(len(winners), 'task')}, and this commit "
            f"has {tasks}" + (f"; {other} is in only one of the two" if other else ""),
            operation="commit_job",
            path=layout.job_directory,
            outcome="committed" if ended else "partial",
            next_step=f"{context.recover_call()} finishes the job as it was decided"
            + ("; run the other tasks as a new job" if ended else f"; {context.rollback_advice()}"),
        )

    def check_reported(self, context: StageContext, report: JobReport) -> None:
        """Refuses the report of a job that another driver ended with another number of tasks."""
        asked = self.tasks if self.messages is None else len(self.messages)
        refuse_other_tasks(report, context.layout.destination, asked)

    def intent_for(self, context: StageContext) -> CommitIntent:
        """Returns the intent: the winners that are known before anything is listed."""
        winners = self.winners
        if self.messages is not None:
            refs = refs_of_messages(context, self.messages)
            winners = [NamedRecord(ref.record, ref.digest or "") for ref in refs]
        return CommitIntent(winners, self.tasks)

    async def find(self, context: StageContext) -> list[RecordRef]:
        """Returns the winning records; refuses another number of them than the job has tasks."""
        if not self.recovering:
            return await find_refs(context, self.messages, self.tasks, taking=True)
        if self.winners is not None and context.spec.delivery == "message":
            return [RecordRef(winner.record, winner.digest) for winner in self.winners]
        listed = await find_refs(context, None, self.tasks, taking=True)
        if self.winners is None:
            return listed
        return named_among(listed, [RecordRef(winner.record, winner.digest) for winner in self.winners])

    async def prepare(self, context: StageContext, prove: Callable[[], Awaitable[None]]) -> Prepared:
        """Loads the winning records, excludes other jobs, inspects the destination and refuses conflicts.

        Checks at the same time that the records exist that messages name.
        """
        refs, by_listing = await self.find(context), context.spec.delivery == "listing"

        async def prepared_unless_refused() -> Prepared:
            prepared = await prepare(context, refs, copy_records=by_listing, prove=prove, excludes=True)
            try:
                refuse(context, prepared.conflicts)
            except CommitterError as refused:
                await prepared.aclose()
                if isinstance(refused, TargetExistsError):
                    await _say_committed_before(context, refused)
                raise
            return prepared

        if self.recovering or by_listing or not refs:
            return await prepared_unless_refused()
        _stand, prepared = await both_in_full(check_attempt_records(context, refs), prepared_unless_refused())
        return prepared


async def _say_committed_before(context: StageContext, refused: TargetExistsError) -> None:
    """Adds to a refusal that a job of this id may have committed before, such as a repeated notebook cell: one read."""
    with suppress(CommitterError):
        marker = await read_success(context)
        if marker is not None and is_of_job(marker, context.layout):
            refused.next_step = (
                f"_SUCCESS says that a job {marker.jobId} committed there before: if that was this work, it is done, "
                f"and this job {TO_BE_ABORTED} there; else {refused.next_step}"
            )


async def intent_of(context: StageContext, position: Position, *, force: bool) -> Intent | None:
    """Returns the intent of a driver that began to commit; None if `force` takes a listing."""
    intent = await read_intent(context.store, position.found) if position.found is not None else None
    if intent is None:
        check_forced(context, force=force)
    return intent


def check_forced(context: StageContext, *, force: bool) -> None:
    """Refuses to decide a job that no driver began to commit, unless `force` takes a listing."""
    if not (force and context.spec.delivery == "listing"):
        raise refuse_undecided(context)


async def withdraw_commit(context: StageContext, error: CommitterError, found: JobDirectory) -> None:
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
