"""Number of the current Spark task, and its message to the driver.

A task's number is its partition; its attempt is the low 31 bits of Spark's ``taskAttemptId``. Spark's
``attemptNumber`` starts again at 0 when a stage is repeated, so two attempts could share it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import TaskContext

from committer.errors import RecordError, TaskMissingError, UnsupportedError
from committer.records.task_commit import TaskCommit

if TYPE_CHECKING or importlib.util.find_spec("pyspark.sql.datasource") is not None:
    from pyspark.sql.datasource import WriterCommitMessage
else:  # PySpark 3.5, which has no data sources in Python
    WriterCommitMessage = object

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

_ATTEMPT_BITS: Final = 0x7FFFFFFF


def current_task(operation: str) -> tuple[int, int]:
    """Returns number and attempt of the current Spark task."""
    context = TaskContext.get()
    if context is None:
        raise UnsupportedError(
            "this is not a Spark task, so that there is no partition to open an attempt for",
            operation=operation,
            next_step="call it inside the function that Spark runs on executors; elsewhere use"
            " committer.sync.open_task(spec, task=..., attempt=...)",
        )
    return context.partitionId(), context.taskAttemptId() & _ATTEMPT_BITS


def current_batch() -> tuple[str, int]:
    """Returns the query's id and the batch's number of the current Spark task."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if not query or not batch or not batch.isdecimal():
        raise UnsupportedError(
            "this task is not told which batch of which query it belongs to: is it a continuous query?",
            operation="write",
            next_step="use a trigger that makes micro-batches",
        )
    return query, int(batch)


SMALL_MESSAGE: Final = 3 * 1024


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """Message of a task to Spark: an encoded `TaskCommit`, at most 8 KiB."""

    data: bytes


def encoded(commit: TaskCommit) -> bytes:
    """Encodes a message in at most `SMALL_MESSAGE` bytes if possible, by leaving out the inline record.

    The inline record only saves job commit a call, and every byte counts against ``spark.driver.maxResultSize``.
    """
    data = commit.encode()
    if len(data) > SMALL_MESSAGE and commit.inline is not None:
        return msgspec.structs.replace(commit, inline=None).encode()
    return data


def task_commits(
    messages: Sequence[WriterCommitMessage | None], again: str = "run the write again"
) -> list[TaskCommit]:
    """Decodes the messages of a write, one per task; the commit refuses two of a task, and those of other jobs.

    `again` is what to do after a message is missing.
    """
    commits: list[TaskCommit] = []
    for position, message in enumerate(messages):
        if message is None:
            raise TaskMissingError(
                f"Spark asks to commit, but partition {position} of {len(messages)} has no task commit message",
                operation="commit_job",
                next_step=f"nothing was published: {again}",
            )
        if not isinstance(message, TaskCommitMessage):
            raise RecordError(
                f"partition {position} returned a {type(message).__name__}, not a task commit message",
                operation="commit_job",
            )
        commit = TaskCommit.decode(message.data)
        if commit.task >= len(messages):
            raise TaskMissingError(
                f"there is a message of task {commit.task}, but the job has {len(messages)} tasks",
                operation="commit_job",
                next_step=f"nothing was published: {again}",
            )
        commits.append(commit)
    return commits
