"""Stages before the decision: a driver declares what it will commit, then which directories that affects.

An intent lets a recovery continue with the same winners; an entry keeps other jobs from committing there.
"""

from __future__ import annotations

from dataclasses import dataclass

from committer.errors import StoreNotFoundError
from committer.flow.together import both_in_full
from committer.records.job_state import Intent, NamedRecord, encode_record
from committer.stages.base import Stage, StageContext
from committer.stages.decide.entries import (
    Scope,
    create_entry,
    make_directory_of_entries,
    refuse_neighbours,
)
from committer.stages.state.job_liveness import job_vanished


@dataclass(frozen=True, slots=True)
class CommitIntent:
    """Input of a commit: records named by messages (None for a listing), and the number of tasks (None if unknown)."""

    winners: list[NamedRecord] | None
    tasks: int | None


class DeclareIntent(Stage[CommitIntent, None]):
    """The stage that writes this driver's intent, beside those of the job's other drivers.

    Preconditions: the job exists, undecided.
    Postconditions: the intent exists.
    Failure modes: `JobNotFoundError` if the job's directory vanished.
    Cost: 1 call, where directories are real 2 at once.
    """

    name = "job_stage_declare_intent"

    async def execute(self, value: CommitIntent) -> None:
        """Writes the intent."""
        context, layout = self.context, self.context.layout
        intent = Intent(
            job_id=layout.job_id,
            driver=context.driver,
            created=context.timestamp(),
            winners=value.winners,
            tasks=value.tasks,
            process=await context.process(),
        )
        path = layout.intent(context.driver)
        temporary = layout.temporary_of(path, context.driver)
        writing = context.store.put(path, encode_record(intent), temporary=temporary, durable=context.durable)
        try:
            # The entry's directory is created here, so that the entry takes one call.
            await both_in_full(writing, make_directory_of_entries(context))
        except StoreNotFoundError as error:
            raise job_vanished(context, self.name, error) from error


class DeclareScope(Stage[Scope, None]):
    """The stage that creates this driver's entry.

    Preconditions: the intent exists; the winning records are loaded.
    Postconditions: the entry exists. It is deleted after the job's directory (`drop_entries`), or by `withdraw`.
    Failure modes: `JobNotFoundError` if the job's directory vanished.
    Cost: 1 call; 2 more if another job has just removed the directory of all entries.
    """

    name = "job_stage_declare_scope"

    async def execute(self, value: Scope) -> None:
        """Creates the entry."""
        try:
            await create_entry(self.context, value)
        except StoreNotFoundError as error:
            raise job_vanished(self.context, self.name, error) from error


class RefuseNeighbours(Stage[Scope, None]):
    """The stage that refuses to commit beside another job whose scope meets this one.

    Preconditions: this driver's entry exists. Old files, and directories that must be empty, are listed afterwards.
    Postconditions: no other job commits where this one does until its entry is gone.
    Failure modes: `DestinationBusyError` names the owners; the caller withdraws.
    Cost: one listing; one call for each entry that may meet, 3 more for one that does.
    """

    name = "job_stage_refuse_neighbours"

    async def execute(self, value: Scope) -> None:
        """Lists the other jobs' entries."""
        try:
            await refuse_neighbours(self.context, value)
        except StoreNotFoundError as error:
            raise job_vanished(self.context, self.name, error) from error


async def withdraw(context: StageContext) -> None:
    """Deletes the entry and the intent of a driver that sent no decision: no other driver uses these names. 2 calls."""
    for replaces in (False, True):
        entry = context.layout.entry(context.driver, replaces=replaces)
        if entry in context.known.entries:
            await context.store.delete_file(entry)
    await context.store.delete_file(context.layout.intent(context.driver))
