"""The stage that moves task attempts' files out of reach of stale writers."""

from __future__ import annotations

from committer.errors import StoreExistsError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, looking_again
from committer.stages.durability import sync_directories


class SealTasks(Stage[CommitState, None]):
    """The stage that renames what the winners wrote to where only drivers of this setup of the job's id look for it.

    After that no write by a path of a task attempt's directory, however late, reaches the place that files are
    published from: a listing there shows all that a rename of the directory can bring along.

    Where delayed writes are refused, one rename moves all of `tasks`. It can only be this setup's, since the target's
    parent goes with the setup. Elsewhere a delayed write may have created that parent again, and a delayed rename
    could take another job's tasks; so each attempt's directory, which has a nonce in its name, is renamed singly.

    Every driver runs it before it publishes or rolls back. If a source is gone, it was sealed before, or the job was
    rolled back or is over; the driver notices when it looks for the files. A source beside its sealed directory was
    created by a delayed write, and no driver looks there.

    Postconditions: no winner's file is where task attempts write.
    Cost: one call; where delayed writes are possible one per winner, for which a recoverer reads the records.
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
    # The target's parent first: after a power loss the directory must not be in neither place.
    await sync_directories(context, [layout.work], missing_ok=True)
    await sync_directories(context, [layout.job_attempt_directory], missing_ok=True)


async def _rename(context: StageContext, source: StorePath, sealed: StorePath) -> None:
    async def rename() -> None:
        try:
            # What is at the place of a task attempt's directory does not matter: it is moved out of the way.
            await context.store.rename_directory(source, sealed, known=True)
        except (StoreNotFoundError, StoreExistsError):
            return

    await looking_again(rename)


def is_sealed_whole(context: StageContext) -> bool:
    """Whether one rename seals all task attempts of a job, instead of one rename each."""
    return context.store.capabilities.refuses_late_writes


def sealed_layout(context: StageContext) -> JobLayout:
    """Returns the layout of a job with a sealed decision."""
    layout = context.layout
    # Singly sealed attempts go to `superseded`, which setup created, and which a rollback fences against late renames.
    return layout.with_tasks_in(layout.sealed if is_sealed_whole(context) else layout.superseded)
