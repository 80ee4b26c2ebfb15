"""Publishing of algorithm 1: takes the directories of committed tasks, and gives them back if refused.

Another driver may have begun since, so nothing that was taken moves one by one:

1. All of it moves away, from `tasks` to `returning`, in one rename. Of several drivers that give back one does.
2. The driver looks whether another one counts on it: the job is decided, or another driver's intent stands. Then the
   same rename the other way undoes the first one. A driver writes its intent before it takes, so one of the two sees
   the other.
3. Each directory goes back to its task's name or, where the task committed again meanwhile, to where a task moves what
   it replaces.
4. `returning` goes, which was in the way of the next rename to that name.

A driver that finds it half done, because another one died in it, undoes it (`restore`).

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
                              (`committer.committers.file.taking`)
============================  ===================================================================================

A directory that a late task makes under its name after it was taken is never read.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from typing import cast

from committer.committers.actions import RenameAction
from committer.committers.file.layout import CommittedLayout, FileLayout
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
from committer.records.job_state import JobOutcome
from committer.stages.base import RecordRef, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.publish.publish import Published
from committer.stages.state.job_directory import look_at_job
from committer.stages.state.job_stands import check_job_stands
from committer.stages.undo.roll_back import RollBack, RollBackRequest
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


# Each round begins because a task committed, or another driver took, since the one before.


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


class FileForms(ManifestForms):
    """What stands in the directory of a task is what the task committed: Hadoop's driver goes by nothing else.

    A decision rests on copies: the manifests that the directories amount to.
    """

    takes_records: bool = True
    names_directories: bool = False

    async def read(self, context: StageContext, path: StorePath) -> bytes:
        """One listing for each directory of a task's; one read for a copy.

        Of one directory the bytes are always the same, wherever it stands: they tell whether a task committed again.
        """
        layout = layout_of(context)
        if not layout.is_directory_of_task(path):
            return await super().read(context, path)
        return await record_of_directory(context, path)

    async def list_records(self, context: StageContext, *, taking: bool) -> list[RecordRef]:
        """The directory of each task; taking, one rename a task and three listings more."""
        layout = layout_of(context)
        if taking:
            names = await take(context, layout)
        else:
            names = {child.path.name for child in await children_of(context.store, layout.tasks)}
            if not names:
                return await super().list_records(context, taking=False)
        records = sorted(filter(layout.is_record, names))
        return [RecordRef(layout.record_name(layout.tasks / name)) for name in records]

    async def give_back(self, context: StageContext) -> None:
        """One rename a task."""
        await put_back(context, layout_of(context))

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Its tasks' directories, and its task attempts': two listings."""
        return await outside_of(context, layout_of(context))


async def outside_of(context: StageContext, layout: FileLayout) -> list[FileStatus]:
    """What the directories that jobs share hold of a job, its task attempts first: one that is gone commits no more."""
    places = (layout.runs, layout.application_attempt)
    found = [child for place in places for child in await children_of(context.store, place)]
    return [child for child in found if is_of_job(layout, child.path.name)]


def layout_of(context: StageContext) -> CommittedLayout:
    """The job's layout, as algorithm 1 has it for a job by listing."""
    return cast("CommittedLayout", context.layout)


def is_of_job(layout: FileLayout, name: str) -> bool:
    """Whether a directory of that name is of one of the job's tasks, or task attempts, this engine's or Hadoop's."""
    if layout.is_task(name) or layout.task_replaced(name) is not None:
        return True
    task, underscore, attempt = name.removeprefix(layout.attempt_stem).partition("_")
    number = attempt.partition("-")[0]
    return name.startswith(layout.attempt_stem) and bool(underscore) and task.isdecimal() and number.isdecimal()


class TakenAction(RenameAction):
    """`RenameAction`. A driver that gave up may have begun to give back what this one's decision rests on: one call
    more finds that out.
    """

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Makes sure that what was taken is there; then as `RenameAction`."""
        await _restore(context)
        return await super().publish(context, state)

    def roll_back(self, context: StageContext) -> RollBack:
        """`RollBack`, which moves files back."""
        return _RollBackTaken(context)


class _RollBackTaken(RollBack):
    async def execute(self, value: RollBackRequest) -> JobOutcome:
        await _restore(self.context)
        return await super().execute(value)


async def _restore(context: StageContext) -> None:
    if isinstance(context.layout, CommittedLayout):
        await restore(context, context.layout)
