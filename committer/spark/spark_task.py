"""What Spark tells a task of itself: its number and attempt and, in a stream, its query and batch.

A task's number is its partition, its attempt the low 31 bits of Spark's ``taskAttemptId``: ``attemptNumber`` starts
again at 0 when a stage is run again, so it would not tell two attempts apart.
"""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

from committer.errors import UnsupportedError

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

_ATTEMPT_BITS: Final = 0x7FFFFFFF


def current_task(operation: str) -> tuple[int, int]:
    """Number and attempt of the Spark task that this runs in.

    Raises:
        UnsupportedError: This is not a Spark task.
    """
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
    """The query's id and the batch's number of the Spark task that this runs in.

    Raises:
        UnsupportedError: Spark does not tell this task of a batch.
    """
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
