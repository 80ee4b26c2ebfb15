"""Which records win: those that messages name, each of another task, as many as the job has tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from committer.advice import COMMIT_AGAIN
from committer.errors import JobNotFoundError, RecordError, StoreNotFoundError, TaskError, TaskMissingError
from committer.layout import JobLayout
from committer.readable import count
from committer.records.task_commit import TaskCommit
from committer.stages.base import RecordRef, StageContext

RIGHT_NUMBER: Final = "give their right number"
"""How the next step begins where more tasks committed than the commit was told of: none has to run again."""

# Tasks that one sentence names.
MOST_NAMED = 20


def refs_of_messages(context: StageContext, task_commits: Iterable[TaskCommit]) -> list[RecordRef]:
    """The records that messages name: exactly these win.

    Raises:
        RecordError: A message is of another job, names a record outside the job's directory, or a task twice.
    """
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
        # The record lies under the task's name.
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
    """Makes sure that the records which messages name stand, those that messages carry too: one listing.

    A driver that finishes the job later has only the records to go by, and an attempt that was aborted took its away.

    Raises:
        TaskError: One is gone.
        JobNotFoundError: So is their directory.
    """
    layout, store = context.layout, context.store
    try:
        standing = {child.path.name async for child in store.list(layout.attempts)}
    except StoreNotFoundError as error:
        raise JobNotFoundError(
            f"job {layout.job_id} has no attempts directory: it was cleaned up, by itself or by a Hadoop committer "
            "that deletes all of _temporary",
            operation="commit_job",
            path=layout.attempts,
            next_step="run the job again; nothing was published",
        ) from error
    gone = [ref.record for ref in refs if ref.record.rpartition("/")[2] not in standing]
    if gone:
        raise TaskError(
            f"the records of {len(gone)} task attempts are gone, the first: {gone[0]}: it was aborted, or the job was "
            "cleaned up",
            operation="commit_job",
            path=layout.job_directory / gone[0],
            next_step="commit with the message of another attempt of the task, or run the task again",
        )


def check_task_count(layout: JobLayout, refs: list[RecordRef], tasks: int | None) -> None:
    """Refuses a commit with another number of tasks than the job has.

    Raises:
        TaskMissingError: The numbers differ; it names tasks that did not commit.
    """
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
