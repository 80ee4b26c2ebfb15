"""How a refused job commit gives back the directories of tasks that it took (`committer.committers.file.taking`).

Another driver may have begun since, so nothing that was taken moves one by one:

1. All of it moves away, from `tasks` to `returning`, in one rename. Of several drivers that give back one does.
2. The driver looks whether another one counts on it: the job is decided, or another driver's intent stands. Then the
   same rename the other way undoes the first one. A driver writes its intent before it takes, so one of the two sees
   the other.
3. Each directory goes back to its task's name or, where the task committed again meanwhile, to where a task moves what
   it replaces.
4. `returning` goes, which was in the way of the next rename to that name.

A driver that finds it half done, because another one died in it, undoes it (`restore`).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto

from committer.committers.file.layout import CommittedLayout
from committer.errors import (
    JobStateError,
    StoreExistsError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.durability import sync_directories
from committer.stages.job_directory import look_at_job
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, exists

# Another round begins because another job removed the shared directories since the one before.
_ROUNDS = 10


class _Claim(Enum):
    """Who counts on what was taken."""

    ANOTHER_DRIVER = auto()
    NONE = auto()


async def put_back(context: StageContext, layout: CommittedLayout) -> None:
    """Puts back what was taken, of a job that stays undecided. A task that committed meanwhile keeps what it did.

    Raises:
        JobStateError: Some could not be put back. Nothing is lost: the next driver finds them.
    """
    if not await move_directory(context, layout.tasks, layout.returning):
        # Another driver gives back.
        return
    claim = await _claim(context, layout)
    if claim is _Claim.ANOTHER_DRIVER:
        await restore(context, layout)
        return
    await _put_each_back(context, layout)
    with suppress(StoreNotEmptyError):
        await context.store.delete_directory(layout.returning, recursive=False)
    # A power loss must not bring back what was taken: it would win over what a task commits from now on.
    await sync_directories(context, [layout.drivers], missing_ok=True)


async def restore(context: StageContext, layout: CommittedLayout) -> None:
    """Undoes a `put_back` that was not done to its end: one call, where there was none."""
    if await move_directory(context, layout.returning, layout.tasks):
        return

    async def move(child: FileStatus) -> None:
        await move_directory(context, child.path, layout.tasks / child.path.name)

    # Both stand: a call whose answer was lost made one of them.
    left = await children_of(context.store, layout.returning)
    await run_workers(left, move, workers=context.config.io_concurrency, operation="take_tasks")


async def move_directory(context: StageContext, source: StorePath, target: StorePath) -> bool:
    """Renames a directory, unless another one stands there.

    Returns:
        Whether it has gone from where it was: renamed by this driver, or gone before.

    Raises:
        StoreOutcomeUnknownError: The answer was lost, and it stands where it was.
    """
    try:
        await context.store.rename_directory(source, target)
    except StoreExistsError:
        return False
    except StoreNotFoundError:
        # Another driver took it, or a task replaced it.
        return True
    except StoreOutcomeUnknownError:
        if await exists(context.store, source):
            raise
    return True


async def _claim(context: StageContext, layout: CommittedLayout) -> _Claim:
    found = await look_at_job(context.store, layout)
    return _Claim.ANOTHER_DRIVER if found.decided or found.ended or len(found.intents) > 1 else _Claim.NONE


async def _put_each_back(context: StageContext, layout: CommittedLayout) -> None:
    async def move(child: FileStatus) -> None:
        if not await move_directory(context, child.path, layout.manifests / child.path.name):
            # The task committed again.
            await move_directory(context, child.path, layout.replaced(child.path.name, context.driver))

    for _round in range(_ROUNDS):
        taken = await children_of(context.store, layout.returning)
        if not taken:
            return
        # Another job that ends removes these where they are empty, perhaps right after they were made.
        with suppress(StoreNotFoundError):
            await context.store.make_directory(layout.manifests, parents=False)
            await context.store.make_directory(layout.runs, parents=False)
        # Their own names before what goes there: a power loss must not leave a task in a directory without one.
        await sync_directories(context, [layout.temporary, layout.manifests], missing_ok=True)
        await run_workers(taken, move, workers=context.config.io_concurrency, operation="put_back_tasks")
        await sync_directories(context, [layout.manifests, layout.runs], missing_ok=True)
    # The driver's intent stays then, so that no task commits what a later driver would pass over for these.
    raise JobStateError(
        f"tasks of job {layout.job_id} could not be put back where they had committed in {_ROUNDS} tries: another "
        f"process removes {layout.manifests} each time",
        operation="put_back_tasks",
        path=layout.returning,
        next_step="find out which one does; then commit the job with what its tasks committed, or abort it",
    )
