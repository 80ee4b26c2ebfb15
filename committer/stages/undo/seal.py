"""SealTasks: puts what task attempts wrote out of reach of all that still writes by their paths."""

from __future__ import annotations

from committer.errors import StoreExistsError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, looking_again
from committer.stages.durability import sync_directories
from committer.stores.directory_abilities import rename_known_directory


class SealTasks(Stage[CommitState, None]):
    """Renames what the winners wrote to where only drivers of this setup of the job's id look for it.

    After that no write that goes by a path of a task attempt's directory, however late, comes to where files are
    published from: what a listing finds there then is all that a rename of the directory can bring along. A file that
    came before is in the listing.

    Where a late write is refused, all of `tasks` goes by one rename. It can only be this setup's: the directory that it
    is renamed into goes with the setup. Where late writes are taken, they may have made that directory again, and a
    late rename could take another job's tasks; so each attempt's directory goes by itself, which has a nonce in its
    name.

    Every driver runs it before it publishes, or takes back. A source that is gone was sealed before, or the job was
    taken back, or is over: that shows where its files are looked for. One that stands beside what was sealed was made
    by a late write since, and no driver looks there.

    Preconditions: a decision that says that the job is sealed.
    Postconditions: no winner's file is where task attempts write.
    Cost: one call; where late writes are taken one a winner, for which a recoverer reads the records.
    """

    name = "job_stage_seal_tasks"

    async def execute(self, value: CommitState) -> None:
        """Renames, whatever was renamed before."""
        context, layout = self.context, self.context.layout
        if is_sealed_whole(context):
            await seal_whole(context)
            return
        attempts = value.attempts
        if attempts is None:
            attempts = {file.source.partition("/")[0] async for file in value.files}

        async def seal(attempt: str) -> None:
            await _rename(context, layout.recorded_tasks / attempt, layout.tasks / attempt)

        await run_workers(sorted(attempts), seal, workers=context.config.io_concurrency, operation=self.name)


async def seal_whole(context: StageContext) -> None:
    """Seals all task attempts of a job by one rename, where `is_sealed_whole`."""
    layout = context.layout
    await _rename(context, layout.recorded_tasks, layout.sealed)
    # Where it went before where it was: a power loss in between must not leave it in neither place.
    await sync_directories(context, [layout.drivers], missing_ok=True)
    await sync_directories(context, [layout.job_attempt_directory], missing_ok=True)


async def _rename(context: StageContext, source: StorePath, sealed: StorePath) -> None:
    async def rename() -> None:
        try:
            # What stands at the place of a task attempt's directory need not be known: it is put out of the way.
            await rename_known_directory(context.store, source, sealed)
        except (StoreNotFoundError, StoreExistsError):
            return

    await looking_again(rename)


def is_sealed_whole(context: StageContext) -> bool:
    """Whether all task attempts of a job are sealed by one rename; else each is by one of its own."""
    return context.store.capabilities.refuses_late_writes


def sealed_layout(context: StageContext) -> JobLayout:
    """The layout of a job whose decision says that it is sealed."""
    layout = context.layout
    # One by one they go to `superseded`, which setup made, and which a rollback puts out of reach of late renames.
    return layout.with_tasks_in(layout.sealed if is_sealed_whole(context) else layout.superseded)
