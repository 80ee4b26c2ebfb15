"""How a job commit puts the directories that tasks committed out of reach of late tasks.

What a task committed is a directory in one of four places, and each goes from one to another by one rename, which
either happens or not. So any number of drivers may take at once, and one that died is followed by another.

============================  ===================================================================================
where                         what moves it there
============================  ===================================================================================
`manifests`: its task's name  its attempt, when it commits; a driver that gives it back
`runs`: what was replaced     an attempt that commits later, right before it moves its own to the task's name; a
                              driver that gives it back, where the task committed again meanwhile
`tasks`: what was taken       a driver that commits the job (`take`); one that finds a giving back half done
`returning`                   a driver whose commit was refused: all of `tasks` in one rename
                              (`committer.committers.file.giving_back`)
============================  ===================================================================================

A directory that a late task makes under its name after it was taken is never read.
"""

from __future__ import annotations

from committer.committers.file.giving_back import move_directory, restore
from committer.committers.file.layout import CommittedLayout
from committer.committers.file.walking import record_of_directory
from committer.errors import JobNotFoundError, JobStateError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.durability import sync_directories
from committer.stages.job_stands import check_job_stands
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of

# Each round begins because a task committed, or another driver took, since the one before.
_ROUNDS = 10


async def take(context: StageContext, layout: CommittedLayout) -> set[str]:
    """Takes the directory of each task that committed, and says which these are.

    A driver is done when it found nothing to take between two listings of what was taken that are the same: then no
    other driver took or gave back in between.

    Raises:
        JobNotFoundError: The job was cleaned up.
        JobStateError: Its tasks do not stop committing; or tasks with names of another stage of the job committed.
    """

    async def move(item: tuple[str, StorePath]) -> None:
        await move_directory(context, item[1], layout.tasks / item[0])

    quiet_since: set[str] | None = None
    for _round in range(_ROUNDS):
        taken = await _taken(context, layout)
        if taken == quiet_since:
            if not taken:
                _refuse_other_stages(layout, await children_of(context.store, layout.manifests))
            # Where they went before where they were: a power loss in between leaves each in both places, or one.
            await sync_directories(context, [layout.drivers, layout.tasks])
            await sync_directories(context, [layout.manifests, layout.runs], missing_ok=True)
            return taken
        left = await _left_to_take(context, layout, taken)
        await run_workers(left.items(), move, workers=context.config.io_concurrency, operation="take_tasks")
        quiet_since = None if left else taken
    raise JobStateError(
        f"tasks of job {layout.job_id} committed again at each of {_ROUNDS} looks",
        operation="take_tasks",
        path=layout.manifests,
        next_step="commit the job once its tasks are over; nothing was published",
    )


async def _taken(context: StageContext, layout: CommittedLayout) -> set[str]:
    await restore(context, layout)
    try:
        return {child.path.name async for child in context.store.list(layout.tasks)}
    except StoreNotFoundError:
        await _make_tasks(context, layout)
        return set()


async def _left_to_take(context: StageContext, layout: CommittedLayout, taken: set[str]) -> dict[str, StorePath]:
    """The directories of tasks of which none was taken, by task.

    First where tasks commit, then among what was replaced. A task that commits again first moves its earlier directory
    aside, then its own into place, and nothing stands under its name in between. But what was moved aside stays until
    the job ends: so this order misses no task, the other one could. The driver goes by what it found now: when it looks
    again, what it found may be on its way back.
    """
    committed = await children_of(context.store, layout.manifests)
    left = {child.path.name: child.path for child in committed if layout.is_record(child.path.name)}
    for name, path in (await _replaced(context, layout)).items():
        left.setdefault(name, path)
    return {name: path for name, path in left.items() if name not in taken}


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
