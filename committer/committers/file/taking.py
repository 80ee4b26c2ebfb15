"""How a job commit puts the directories that tasks committed out of reach of late tasks, and gives them back.

A task that commits again first moves the earlier directory of its task aside, then its own into place. In between
nothing stands under the task's name. But what was moved aside stays until the job ends, so a driver that looks for
tasks first where they commit, and then among what was moved aside, misses no task. Its commit goes by what it found
then: when it looks again, that may be on its way back.

Each task directory is taken by one rename, which either happens or not, so any number of drivers may take at once, and
one that died is followed by another. A directory that a late task makes after that is never read. A driver is done when
it found nothing to take between two listings of what was taken that are the same.

A refused commit gives all back. Another driver may have begun since, so nothing that was taken moves one by one: all of
it moves away in one rename, and the driver looks again. If it is not alone, or the job is decided, the same rename the
other way undoes that; and any driver that finds it half done undoes it. A driver writes its intent before it takes, so
one of the two sees the other.
"""

from __future__ import annotations

from contextlib import suppress

from committer.committers.file.layout import CommittedLayout
from committer.committers.file.walking import record_of_directory
from committer.errors import (
    JobNotFoundError,
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
from committer.stages.job_stands import check_job_stands
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, exists

# Each round begins because a task committed, or another driver took, since the one before.
_ROUNDS = 10


async def take(context: StageContext, layout: CommittedLayout) -> set[str]:
    """Takes the directory of each task that committed, and says which these are.

    Raises:
        JobNotFoundError: The job was cleaned up.
        JobStateError: Its tasks do not stop committing; or tasks with names of another stage of the job committed.
    """
    before: set[str] | None = None
    for _round in range(_ROUNDS):
        taken = await _taken(context, layout)
        if taken == before:
            if not taken:
                _refuse_other_stages(layout, await children_of(context.store, layout.manifests))
            # Where they went before where they were: a power loss in between leaves each in both places, or one.
            await sync_directories(context, [layout.drivers, layout.tasks])
            await sync_directories(context, [layout.manifests, layout.runs], missing_ok=True)
            return taken
        committed = await children_of(context.store, layout.manifests)
        to_take = {
            child.path.name: child.path
            for child in committed
            if layout.is_record(child.path.name) and child.path.name not in taken
        }
        for name, path in (await _replaced(context, layout)).items():
            if name not in taken:
                to_take.setdefault(name, path)
        before = None if to_take else taken

        async def move(item: tuple[str, StorePath]) -> None:
            await _move(context, item[1], layout.tasks / item[0])

        workers = context.config.io_concurrency
        await run_workers(to_take.items(), move, workers=workers, operation="take_tasks")
    raise JobStateError(
        f"tasks of job {layout.job_id} committed again at each of {_ROUNDS} looks",
        operation="take_tasks",
        path=layout.manifests,
        next_step="commit the job once its tasks are over; nothing was published",
    )


async def put_back(context: StageContext, layout: CommittedLayout) -> None:
    """Puts back what `take` took, of a job that stays undecided. A task that committed meanwhile keeps what it did.

    Raises:
        JobStateError: Some could not be put back. Nothing is lost: the next driver finds them.
    """
    if not await _move(context, layout.tasks, layout.returning):
        return
    found = await look_at_job(context.store, layout)
    if layout.setup_name and layout.drivers.name not in found.children:
        # The job is over, and what stands there is another one's, set up under its id since.
        return
    if found.decided or found.ended or len(found.intents) > 1:
        # Another driver of the job counts on them.
        await restore(context, layout)
        return

    async def move(child: FileStatus) -> None:
        place = layout.manifests / child.path.name
        if not await _move(context, child.path, place):
            await _move(context, child.path, layout.replaced(child.path.name, context.driver))

    for _round in range(_ROUNDS):
        taken = await children_of(context.store, layout.returning)
        if not taken:
            break
        # Another job that ends removes these where they are empty, perhaps right after they were made.
        with suppress(StoreNotFoundError):
            await context.store.make_directory(layout.manifests, parents=False)
            await context.store.make_directory(layout.runs, parents=False)
        # Their own names before what goes there: a power loss must not leave a task in a directory without one.
        await sync_directories(context, [layout.temporary, layout.manifests], missing_ok=True)
        await run_workers(taken, move, workers=context.config.io_concurrency, operation="put_back_tasks")
        await sync_directories(context, [layout.manifests, layout.runs], missing_ok=True)
    else:
        # The driver's intent stays then, so that no task commits what a later driver would pass over for these.
        raise JobStateError(
            f"tasks of job {layout.job_id} could not be put back where they had committed in {_ROUNDS} tries: another "
            f"process removes {layout.manifests} each time",
            operation="put_back_tasks",
            path=layout.returning,
            next_step="find out which one does; then commit the job with what its tasks committed, or abort it",
        )
    with suppress(StoreNotEmptyError):
        await context.store.delete_directory(layout.returning, recursive=False)
    # A power loss must not bring back what was taken: it would win over what a task commits from now on.
    await sync_directories(context, [layout.drivers], missing_ok=True)


async def restore(context: StageContext, layout: CommittedLayout) -> None:
    """Undoes a `put_back` that was not done to its end: one call, where there was none."""
    if await _move(context, layout.returning, layout.tasks):
        return

    async def move(child: FileStatus) -> None:
        await _move(context, child.path, layout.tasks / child.path.name)

    # Both stand: a call whose answer was lost made one of them.
    left = await children_of(context.store, layout.returning)
    await run_workers(left, move, workers=context.config.io_concurrency, operation="take_tasks")


async def _move(context: StageContext, source: StorePath, target: StorePath) -> bool:
    """Renames a directory unless another stands there; whether none did, or it was gone already."""
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


async def _taken(context: StageContext, layout: CommittedLayout) -> set[str]:
    await restore(context, layout)
    try:
        return {child.path.name async for child in context.store.list(layout.tasks)}
    except StoreNotFoundError:
        await _make_tasks(context, layout)
        return set()


async def _make_tasks(context: StageContext, layout: CommittedLayout) -> None:
    """Makes the directory again that went when a driver gave back what it had taken.

    Where directories above one are made too, one that is made for a job that is over stands in another job's, perhaps:
    so the job is looked for again. Nothing is taken before.
    """
    try:
        await check_job_stands(context, operation="take_tasks")
        await context.store.make_directory(layout.tasks, parents=False)
        await check_job_stands(context, operation="take_tasks")
    except (JobNotFoundError, StoreNotFoundError) as error:
        raise JobNotFoundError(
            f"job {layout.job_id} has no directory to take its tasks' output to: it was cleaned up, by itself or by a "
            "Hadoop committer that deletes all of _temporary",
            operation="take_tasks",
            path=layout.tasks,
            next_step="run the job again; nothing was published",
        ) from error


async def _replaced(context: StageContext, layout: CommittedLayout) -> dict[str, StorePath]:
    """What was moved aside for a later commit, by task; of several what committed last."""
    found: dict[str, list[StorePath]] = {}
    for child in await children_of(context.store, layout.runs):
        task = layout.task_replaced(child.path.name)
        if task is not None:
            found.setdefault(task, []).append(child.path)
    return {
        task: paths[0] if len(paths) == 1 else await _last(context, layout, task, paths)
        for task, paths in found.items()
    }


async def _last(context: StageContext, layout: CommittedLayout, task: str, paths: list[StorePath]) -> StorePath:
    """Of several directories of a task that whose attempt said last that it commits: a directory tells no time.

    A call that moves a directory aside may arrive late, and move a later commit.
    """
    said: dict[bytes, float] = {}
    for child in await children_of(context.store, layout.attempts):
        run = layout.parse_attempt_record(child.path.name)
        if run is not None and layout.task_id(run[0]) == task:
            data = await context.store.read(child.path, limit=context.config.record_size_limit)
            said[data] = max(said.get(data, 0.0), child.modified or 0.0)
    records = [await record_of_directory(context, path, task_name=task) for path in paths]
    return max(zip(records, paths, strict=True), key=lambda one: said.get(one[0], 0.0))[1]


def _refuse_other_stages(layout: CommittedLayout, committed: list[FileStatus]) -> None:
    """Refuses a job of Spark's by another number than its tasks have, which would be committed without a file.

    Asked where no task of the job committed.
    """
    tracker = layout.tracker
    if not tracker:
        return
    other = sorted(child.path.name for child in committed if child.path.name.startswith(tracker))
    if other:
        number = other[0].removeprefix("task_").partition("_m_")[0]
        raise JobStateError(
            f"{other[0]} committed at {layout.destination}, and is no task of {layout.job_id}",
            operation="take_tasks",
            path=layout.manifests / other[0],
            next_step=f"Spark names tasks by their stage: join the job as 'job_{number}'; nothing was published",
        )
