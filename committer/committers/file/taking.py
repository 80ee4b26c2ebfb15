"""Moves the directories of committed tasks into the job's directory (algorithm 1), and returns them after a refusal.

A task's committed directory moves by atomic renames, so any number of drivers may take at once, and continue
after another one died. It is in one of four places:

============================  ==============================================================================
place                         renamed to it by
============================  ==============================================================================
`manifests`: the task's name  the attempt that commits; a driver that gives back
`runs`: replaced directories  a later attempt, before it renames its own; a driver that gives back, if the task
                              committed again meanwhile
`tasks`: taken directories    a driver that commits the job (`take`); a driver that finds half a return
`returning`                   a driver whose commit was refused: all of `tasks` in one rename
============================  ==============================================================================

A return has four steps:

1. One rename moves all of `tasks` to `returning`; of several drivers one succeeds.
2. If the job is decided or another driver's intent exists, the driver renames it back. A driver writes its intent
   before it takes, so one of the two sees the other.
3. Each directory is renamed to its task's name or, if the task committed again, to `runs`.
4. `returning` is deleted: it would block the next rename to that name.

`restore` undoes a half-done return. A directory that a task commits after its earlier one was taken is never
read.
"""

from __future__ import annotations

from contextlib import suppress
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
from committer.stages.load.winning_records import no_directory
from committer.stages.publish.publish import Published
from committer.stages.state.job_directory import look_at_job
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.undo.roll_back import RollBack, RollBackRequest
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, exists

# A further round follows if another job removed the shared directories.
_ROUNDS = 10


async def put_back(context: StageContext, layout: CommittedLayout) -> None:
    """Returns moved directories of an undecided job to their places, unless the task committed again."""
    if not await move_directory(context, layout.tasks, layout.returning):
        # Another driver gives back.
        return
    found = await look_at_job(context.store, layout)
    if found.decided or found.ended or len(found.intents) > 1:
        await restore(context, layout)
        return
    await _put_each_back(context, layout)
    with suppress(StoreNotEmptyError):
        await context.store.delete_directory(layout.returning, recursive=False)
    # A power loss must not restore what was taken: it would win over later task commits.
    await sync_directories(context, [layout.work], missing_ok=True)


async def restore(context: StageContext, layout: CommittedLayout) -> None:
    """Undoes a `put_back` that did not finish; one call if there is none."""
    if await move_directory(context, layout.returning, layout.tasks):
        return

    async def move(child: FileStatus) -> None:
        await move_directory(context, child.path, layout.tasks / child.path.name)

    # Both directories exist: a call whose response was lost created one of them.
    left = await children_of(context.store, layout.returning)
    await run_workers(left, move, workers=context.config.io_concurrency, operation="take_tasks")


async def move_directory(context: StageContext, source: StorePath, target: StorePath) -> bool:
    """Renames a directory; returns False if the target exists, True if the source is gone."""
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


async def _put_each_back(context: StageContext, layout: CommittedLayout) -> None:
    async def move(child: FileStatus) -> None:
        if not await move_directory(context, child.path, layout.manifests / child.path.name):
            # The task committed again.
            await move_directory(context, child.path, layout.replaced(child.path.name, context.driver))

    for _round in range(_ROUNDS):
        taken = await children_of(context.store, layout.returning)
        if not taken:
            return
        # Another job that ends removes these while they are empty, perhaps right after they were created.
        with suppress(StoreNotFoundError):
            await context.store.make_directory(layout.manifests, parents=False)
            await context.store.make_directory(layout.runs, parents=False)
        # The directories' names are synced first: a power loss must not leave a task in a directory without a name.
        await sync_directories(context, [layout.temporary, layout.manifests], missing_ok=True)
        await run_workers(taken, move, workers=context.config.io_concurrency, operation="put_back_tasks")
        await sync_directories(context, [layout.manifests, layout.runs], missing_ok=True)
    # The intent remains, so that no task commits what a later driver would skip in favour of these.
    raise JobStateError(
        f"tasks of job {layout.job_id} could not be put back where they had committed in {_ROUNDS} tries: another "
        f"process removes {layout.manifests} each time",
        operation="put_back_tasks",
        path=layout.returning,
        next_step="find out which one does; then commit the job with what its tasks committed, or abort it",
    )


async def take(context: StageContext, layout: CommittedLayout) -> set[str]:
    """Takes the directory of each committed task; returns their names.

    It ends with a look that finds nothing to take, between two equal listings of what was taken: then no other
    driver took or gave back meanwhile.
    """

    async def move(item: tuple[str, StorePath]) -> None:
        await move_directory(context, item[1], layout.tasks / item[0])

    quiet_since: set[str] | None = None
    # Each further round follows if a task committed, or another driver took directories, since the one before.
    for _round in range(_ROUNDS):
        taken = await _taken(context, layout)
        if taken == quiet_since:
            if not taken:
                _refuse_other_stages(layout, await children_of(context.store, layout.manifests))
            # Targets are synced before sources: after a power loss each directory is in both places, or in one.
            await sync_directories(context, [layout.work, layout.tasks])
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
    """Returns the directories of tasks of which none was taken, by task.

    The order matters: `manifests`, then `runs`, then `manifests` again. A task that commits again moves its earlier
    directory aside before it renames its own, and what was moved aside stays until the job ends; but an abort that
    is refused moves it back. The driver uses these listings: later, another driver may be giving the directories back.
    """
    committed = await children_of(context.store, layout.manifests)
    refuse_reducers(layout, [child.path.name for child in committed])
    replaced = await _replaced(context, layout)
    committed += await children_of(context.store, layout.manifests)
    left = replaced | {child.path.name: child.path for child in committed if layout.is_record(child.path.name)}
    return {name: path for name, path in left.items() if name not in taken}


async def _make_tasks(context: StageContext, layout: CommittedLayout) -> None:
    """Creates `tasks` again after a return, and checks the job: the path may be inside a later job's directory."""
    try:
        await check_job_is_live(context, operation="take_tasks")
        await context.store.make_directory(layout.tasks, parents=False)
        await check_job_is_live(context, operation="take_tasks")
    except (JobNotFoundError, StoreNotFoundError) as error:
        raise no_directory(layout, layout.tasks, "take_tasks") from error


async def _replaced(context: StageContext, layout: CommittedLayout) -> dict[str, StorePath]:
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
    """Returns the directory with the newest record: because of delayed renames, their names do not show the order."""
    said: dict[bytes, float] = {}
    for child in await children_of(context.store, layout.attempts):
        run = layout.parse_attempt_record(child.path.name)
        if run is not None and layout.task_id(run[0]) == task:
            data = await context.store.read(child.path, limit=context.config.record_size_limit)
            said[data] = max(said.get(data, 0.0), child.modified or 0.0)
    records = [await record_of_directory(context, path, task_name=task) for path in paths]
    return max(zip(records, paths, strict=True), key=lambda one: said.get(one[0], 0.0))[1]


def refuse_reducers(layout: CommittedLayout, committed: list[str]) -> None:
    """Refuses a job of MapReduce's with reducers, whose output would be left behind."""
    of_job = layout.task_stem.removesuffix("m_")
    for name in committed:
        if name.startswith(of_job) and not name.startswith(layout.task_stem):
            raise JobStateError(
                f"{name} committed at {layout.destination}, and is no map task: this engine commits no reducers",
                operation="take_tasks",
                path=layout.manifests / name,
                next_step="run the job again, or have Hadoop's own driver commit it; nothing was published",
            )


def _refuse_other_stages(layout: CommittedLayout, committed: list[FileStatus]) -> None:
    """Refuses a job whose id has another number than its tasks, as Spark's have: it would commit without a file."""
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
    """Record format in which a task's directory is its record, as for Hadoop's driver; a decision rests on copies."""

    takes_records: bool = True
    names_directories: bool = False

    async def read(self, context: StageContext, path: StorePath) -> bytes:
        """Reads a record: one listing a directory of a task, or one read for a copy. Equal bytes mean equal files."""
        layout = layout_of(context)
        if not layout.is_directory_of_task(path):
            return await super().read(context, path)
        return await record_of_directory(context, path)

    async def list_records(self, context: StageContext, *, taking: bool) -> list[RecordRef]:
        """Lists the task directories; when taking, one rename a task and three listings more."""
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
        """Moves the task directories back: one rename a task."""
        await put_back(context, layout_of(context))

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Lists the directories of tasks and task attempts: two listings."""
        return await outside_of(context, layout_of(context))


async def outside_of(context: StageContext, layout: FileLayout) -> list[FileStatus]:
    """Lists a job's entries in shared directories, task attempts first: a deleted attempt cannot commit any more."""
    places = (layout.runs, layout.application_attempt)
    found = [child for place in places for child in await children_of(context.store, place)]
    return [child for child in found if is_of_job(layout, child.path.name)]


def layout_of(context: StageContext) -> CommittedLayout:
    """Returns the layout of a job by listing, as algorithm 1 has it."""
    return cast("CommittedLayout", context.layout)


def is_of_job(layout: FileLayout, name: str) -> bool:
    """Returns whether a directory name is that of one of the job's tasks or attempts, this engine's or Hadoop's."""
    if layout.is_task(name) or layout.task_replaced(name) is not None:
        return True
    task, underscore, attempt = name.removeprefix(layout.attempt_stem).partition("_")
    number = attempt.partition("-")[0]
    return name.startswith(layout.attempt_stem) and bool(underscore) and task.isdecimal() and number.isdecimal()


class _RollBackTaken(RollBack):
    async def execute(self, value: RollBackRequest) -> JobOutcome:
        await _restore(self.context)
        return await super().execute(value)


class TakenAction(RenameAction):
    """`RenameAction` that first undoes a half-done return of taken directories: one call more."""

    roll_back: type[RollBack] = _RollBackTaken

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Restores taken directories, then publishes."""
        await _restore(context)
        return await super().publish(context, state)


async def _restore(context: StageContext) -> None:
    if isinstance(context.layout, CommittedLayout):
        await restore(context, context.layout)
