"""Moves the directories of committed tasks into the job's directory (algorithm 1).

A task's committed directory moves by atomic renames, so any number of drivers may take at once, and continue
after another one died or was refused. It is in one of three places:

============================  ===========================================================
place                         renamed to it by
============================  ===========================================================
`manifests`: the task's name  the attempt that commits
`runs`: replaced directories  a later attempt, before it renames its own
`tasks`: taken directories    a driver that commits the job (`take`)
============================  ===========================================================

What was taken counts: a directory that a task commits afterwards is never read.
"""

from __future__ import annotations

from typing import cast

from committer.committers.file.layout import CommittedLayout, FileLayout
from committer.committers.file.walking import record_of_directory
from committer.errors import JobStateError, StoreExistsError, StoreNotFoundError, StoreOutcomeUnknownError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import RecordRef, StageContext
from committer.stages.durability import sync_directories
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.load.winning_records import no_directory
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, exists

# A further round follows if a task committed, or another driver took directories, since the one before.
_ROUNDS = 10


async def take(context: StageContext, layout: CommittedLayout) -> set[str]:
    """Takes the directory of each committed task; returns their names. It ends with looks that find none to take."""
    store = context.store

    async def move(item: tuple[str, StorePath]) -> None:
        name, path = item
        try:
            await store.rename_directory(path, layout.tasks / name)
        except (StoreExistsError, StoreNotFoundError):
            # Another driver took it, or another directory of the task; or a task replaced it.
            return
        except StoreOutcomeUnknownError:
            if await exists(store, path):
                raise

    for _round in range(_ROUNDS):
        left = await _left_to_take(context, layout)
        # Listed last, and nothing leaves it: so a directory that another driver takes meanwhile is in a listing.
        try:
            taken = {child.path.name async for child in store.list(layout.tasks)}
        except StoreNotFoundError as error:
            raise no_directory(layout, layout.tasks, "take_tasks") from error
        if left.keys() <= taken:
            if not taken:
                _refuse_other_stages(layout, await children_of(store, layout.manifests))
            # Targets are synced before sources: after a power loss each directory is in both places, or in one.
            await sync_directories(context, [layout.work, layout.tasks])
            await sync_directories(context, [layout.manifests, layout.runs], missing_ok=True)
            return taken
        wanted = [(name, path) for name, path in left.items() if name not in taken]
        await run_workers(wanted, move, workers=context.config.io_concurrency, operation="take_tasks")
    raise JobStateError(
        f"tasks of job {layout.job_id} committed again at each of {_ROUNDS} looks",
        operation="take_tasks",
        path=layout.manifests,
        next_step="commit the job once its tasks are over; nothing was published",
    )


async def _left_to_take(context: StageContext, layout: CommittedLayout) -> dict[str, StorePath]:
    """Returns the directories that are not taken, by task.

    The order matters: `manifests` first, then `runs`. A task that commits again moves its earlier directory
    aside before it renames its own; what was moved aside stays until the job ends.
    """
    committed = await children_of(context.store, layout.manifests)
    refuse_reducers(layout, [child.path.name for child in committed])
    left = {child.path.name: child.path for child in committed if layout.is_record(child.path.name)}
    for name, path in (await _replaced(context, layout)).items():
        left.setdefault(name, path)
    return left


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
