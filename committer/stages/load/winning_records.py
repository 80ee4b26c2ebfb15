"""Finds the winning records: those that messages name, or those that a listing finds."""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import suppress
from typing import Final

from committer.advice import COMMIT_AGAIN
from committer.errors import (
    JobNotFoundError,
    JobStateError,
    RecordError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TaskCommitsRequiredError,
    TaskError,
    TaskMissingError,
)
from committer.layout import MANIFEST_SUFFIX, JobLayout, task_in
from committer.paths import StorePath
from committer.readable import count
from committer.records.task_commit import TaskCommit
from committer.stages.base import AttemptIdentity, RecordRef, StageContext
from committer.stores.helpers import children_of, create_exclusively, delete_seen

RIGHT_NUMBER: Final = "give their right number"
"""The start of the advice if more tasks committed than the caller stated: no task has to run again."""

# Most tasks named in one sentence.
MOST_NAMED = 20


def refs_of_messages(context: StageContext, task_commits: Iterable[TaskCommit]) -> list[RecordRef]:
    """Returns the records that messages name, exactly those that win; raises `RecordError` for a wrong message."""
    layout = context.layout
    refs: list[RecordRef] = []
    seen: dict[int, TaskCommit] = {}
    for message in task_commits:
        if isinstance(message, bytes | bytearray | memoryview | str):
            raise RecordError(
                f"a task commit message was given encoded, as {type(message).__name__}",
                operation="commit_job",
                next_step="decode each: task_commits=[TaskCommit.decode(message) for message in messages]",
            )
        if not isinstance(message, TaskCommit):
            raise RecordError(
                f"a task commit message is missing: {message!r} was given in its place",
                operation="commit_job",
                next_step="pass the task_commit of every task, and no None",
            )
        if message.job_id != layout.job_id:
            raise RecordError(
                f"a task commit message of job {message.job_id} was given to job {layout.job_id}",
                field="job_id",
                path=message.record,
                operation="commit_job",
                next_step=f"give the messages of attempts of job {layout.job_id} alone: each says its job_id",
            )
        if message.task in seen:
            raise RecordError(
                f"two task commit messages name task {message.task} (attempts {seen[message.task].attempt} "
                f"and {message.attempt})",
                field="task",
                path=message.record,
                operation="commit_job",
                next_step="pass one message a task: the attempt your engine chose",
            )
        seen[message.task] = message
        refs.append(_ref_of(context, message))
    return sorted(refs, key=lambda ref: ref.record)


def _ref_of(context: StageContext, message: TaskCommit) -> RecordRef:
    layout = context.layout
    if context.spec.delivery == "listing":
        # The record has the task's name.
        return RecordRef(layout.record_name(layout.manifest(message.task)), message.digest, length=message.length)
    path = layout.attempt_record(message.task, message.attempt, message.nonce)
    if message.record != path.uri:
        raise RecordError(
            "a task commit message names a record that is not where its attempt's record is",
            field="record",
            path=message.record,
            operation="commit_job",
        )
    inline = message.inline.encode() if message.inline is not None else None
    return RecordRef(path.relative_to(layout.job_directory), message.digest, inline, message.length)


async def check_attempt_records(context: StageContext, refs: list[RecordRef]) -> None:
    """Raises `TaskError` if a record named by messages is gone, even if its message carries it: one listing."""
    # A driver that finishes the job later has only the records, and an aborted attempt has deleted its own.
    layout, store = context.layout, context.store
    try:
        standing = {child.path.name async for child in store.list(layout.attempts)}
    except StoreNotFoundError as error:
        raise no_directory(layout, layout.attempts, "commit_job") from error
    gone = [ref.record for ref in refs if ref.record.rpartition("/")[2] not in standing]
    if gone:
        raise TaskError(
            f"the records of {len(gone)} task attempts are gone, the first: {gone[0]}: it was aborted, or the job was "
            "cleaned up",
            operation="commit_job",
            path=layout.job_directory / gone[0],
            next_step="commit with the message of another attempt of the task, or run the task again",
        )


def check_own_tasks(layout: JobLayout, own: frozenset[int], listed: Iterable[RecordRef]) -> None:
    """Refuses a listing that lacks one of this process's `own` committed tasks: something deleted its record."""
    if not own:
        return
    for task in sorted(own.difference(layout.task_of_record(ref.record) for ref in listed)):
        raise TaskMissingError(
            f"task {task} of job {layout.job_id} committed in this process, and its record is gone: another process "
            "deleted it, or aborted that attempt",
            operation="commit_job",
            path=layout.manifest(task),
            next_step=f"run that task again, or, to leave it out, `await job.abort_task({task}, ATTEMPT)`; then "
            f"{COMMIT_AGAIN}; nothing was published",
        )


def check_task_count(layout: JobLayout, refs: list[RecordRef], tasks: int | None) -> None:
    """Raises `TaskMissingError`, which names tasks that did not commit, if the job has another number of tasks."""
    if tasks is None or len(refs) == tasks:
        return
    committed = {layout.task_of_record(ref.record) for ref in refs}
    missing = [] if None in committed else [str(task) for task in range(tasks) if task not in committed]
    more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
    named = f"; not committed: {', '.join(missing[:MOST_NAMED])}{more}" if missing else ""
    ways = RIGHT_NUMBER if len(refs) > tasks else f"run the missing tasks, or {RIGHT_NUMBER}"
    raise TaskMissingError(
        f"job {layout.job_id} was to be committed with {count(tasks, 'task')}, and {len(refs):,} committed{named}",
        operation="commit_job",
        path=layout.job_directory,
        next_step=f"{ways}, then {COMMIT_AGAIN}; nothing was published",
    )


async def one_attempt_a_task(context: StageContext, tasks: int) -> list[AttemptIdentity]:
    """Returns the committed attempt of each task (numbered from 0) if each has exactly one: two listings.

    Raises `TaskCommitsRequiredError` if several attempts of a task committed, since only the engine that ran
    them knows which wins; `TaskMissingError` if a task has none, or one committed, or began, whose number is
    too high: then the caller counted too few.
    """
    found: dict[int, list[AttemptIdentity]] = {}
    strange: list[str] = []
    for name in [child.path.name for child in await children_of(context.store, context.layout.attempts)]:
        if not name.endswith(MANIFEST_SUFFIX):
            continue
        run = context.layout.parse_attempt_record(name)
        if run is None:
            strange.append(name)
        else:
            found.setdefault(run[0], []).append(AttemptIdentity(*run))
    several = {task: sorted(runs) for task, runs in sorted(found.items()) if len(runs) > 1}
    if several or strange:
        sentences = [f"task {task} committed as {_attempts(runs)}" for task, runs in several.items()]
        sentences += [f"{name} is no record of an attempt of this job" for name in sorted(strange)]
        raise TaskCommitsRequiredError(
            f"the committed attempts of job {context.layout.job_id} do not say which of them win: {_some(sentences)}",
            operation="commit_job",
            path=context.layout.attempts,
            next_step="`await job.abort_task(task, attempt)` removes an attempt that is not to win; or give "
            "commit(task_commits=[...]) the message of the winner of each task; the job stays open until then",
        )
    own = found.keys() & set(range(tasks))
    problems = [f"task {task} has no committed attempt" for task in range(tasks) if task not in found]
    problems += [
        f"task {task} committed, and the job has tasks 0 to {tasks - 1}" for task in sorted(found) if task >= tasks
    ]
    problems += [
        f"task {task} began, and the job has tasks 0 to {tasks - 1}"
        for task in sorted(await _begun(context) - found.keys())
        if task >= tasks
    ]
    if problems:
        raise TaskMissingError(
            f"job {context.layout.job_id} has {tasks} tasks, of which {len(own)} committed: {_some(problems)}",
            operation="commit_job",
            path=context.layout.attempts,
            next_step="run the missing tasks again with open_task(job.spec, task=...), or give the right number of "
            "tasks; else abort the job. Nothing was published",
        )
    return [found[task][0] for task in range(tasks)]


async def _begun(context: StageContext) -> set[int]:
    """Returns the tasks with a task attempt directory: their attempt was not aborted."""
    layout = context.layout
    found = [child.path.name for child in await children_of(context.store, layout.tasks) if child.is_directory]
    runs = (layout.parse_attempt_record(f"{name}{MANIFEST_SUFFIX}") for name in found)
    return {run[0] for run in runs if run is not None}


def _attempts(runs: list[AttemptIdentity]) -> str:
    return " and ".join(f"attempt {run.attempt} (run {run.nonce})" for run in runs)


def _some(sentences: list[str]) -> str:
    more = len(sentences) - MOST_NAMED
    return "; ".join(sentences[:MOST_NAMED]) + (f"; and {more:,} more" if more > 0 else "")


# Part of the name of a record that `AbortTask` has moved while it reads which attempt's it is.
ABORTED = "-aborted"


def aborted_suffix(layout: JobLayout) -> str:
    """Returns the suffix of the name of a record that `AbortTask` has moved."""
    return f"{ABORTED}{layout.record_suffix}.tmp"


def aborted_name(layout: JobLayout, attempt_id: str) -> str:
    """Returns the name to which `AbortTask` moves a record of this attempt."""
    return f"{layout.hidden}{attempt_id}{aborted_suffix(layout)}"


def aborted_attempt(layout: JobLayout, name: str) -> str:
    """Returns the task attempt in such a name."""
    return name.removeprefix(layout.hidden).removesuffix(aborted_suffix(layout))


async def list_manifests(context: StageContext, *, taking: bool) -> list[RecordRef]:
    """Lists the records by name, or raises `JobNotFoundError` if their directory is missing; one call per page.

    When taking, records are put back that an `AbortTask` has moved and not deleted: it deletes files only after that.
    """
    # Other names are skipped. A task that commits later may replace a listed record, so a job commit copies
    # what it reads.
    layout = context.layout
    listed = await _listed_manifests(context)
    while taking and (lost := [path for path in listed if _is_lost(layout, path, listed)]):
        for path in lost:
            await _put_back(context, path, _record_of(layout, path))
        listed = await _listed_manifests(context)
    found = sorted(path for path in listed if layout.is_record(path.name))
    return [RecordRef(layout.record_name(path), length=listed[path]) for path in found]


async def _listed_manifests(context: StageContext) -> dict[StorePath, int]:
    directory = context.layout.manifests
    store = context.holding(directory)
    try:
        return {child.path: child.size async for child in store.list(directory)}
    except (StoreNotFoundError, StoreNotADirectoryError) as error:
        if store.capabilities.directories:
            # Never created again: another program may have deleted it with tasks' records, and a commit would
            # publish none of their files.
            raise no_directory(context.layout, directory, "list_manifests") from error
        return {}


def _record_of(layout: JobLayout, moved: StorePath) -> StorePath:
    return moved.parent / f"{task_in(aborted_attempt(layout, moved.name))}{layout.record_suffix}"


def _is_lost(layout: JobLayout, path: StorePath, listed: Container[StorePath]) -> bool:
    """Returns whether a path is of a moved record, and its task has no other."""
    return path.name.endswith(aborted_suffix(layout)) and _record_of(layout, path) not in listed


def no_directory(layout: JobLayout, directory: StorePath, operation: str) -> JobNotFoundError:
    """Builds the error of a job without its directory of records."""
    return JobNotFoundError(
        f"job {layout.job_id} has no {directory.name} directory: it was cleaned up, by itself or by a Hadoop "
        "committer that deletes all of _temporary",
        operation=operation,
        path=directory,
        next_step="run the job again; nothing was published",
    )


async def _put_back(context: StageContext, moved: StorePath, record: StorePath) -> None:
    """Gives a moved record its name again, unless another process was first or a later record has the name."""
    store = context.holding(moved)
    with suppress(StoreExistsError, StoreNotFoundError):
        if store.capabilities.atomic_file_rename:
            await store.rename_file(moved, record, replace=False)
            return
        found = await store.status(moved)
        data = await store.read(moved, limit=context.config.record_size_limit)
        if await create_exclusively(store, record, data, limit=context.config.record_size_limit) != data:
            return
        if not await delete_seen(store, moved, identity=found.identity or ""):
            # By an abort, which deletes the files, too; or by a request of this driver whose response was lost.
            raise JobStateError(
                f"the moved record of a task attempt of job {context.layout.job_id} was deleted while it was put back",
                operation="commit_job",
                path=record,
                next_step=f"{COMMIT_AGAIN}; nothing was published. If the attempt's files are gone then, abort it",
            )
