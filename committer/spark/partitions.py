"""One partition of `foreach_partition`, in an executor: a user's function writes, and the attempt commits."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import Row
from pyspark.sql.types import StructType

from committer import sync
from committer.errors import TaskError
from committer.spark.options import WriteOptions
from committer.spark.spark_task import current_task
from committer.spec import JobSpec
from committer.sync import TaskAttempt

if TYPE_CHECKING:
    from pyarrow import RecordBatch

RowWriter: TypeAlias = Callable[[Iterator[Row], TaskAttempt], object]
"""Writes the rows of one partition into a task attempt; what it returns is not looked at."""

BatchWriter: TypeAlias = "Callable[[Iterator[RecordBatch], TaskAttempt], object]"
"""The same, from Arrow record batches."""

PartitionWriter: TypeAlias = "Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]"
"""What Spark runs on a partition: yields one row, the task commit message."""

MESSAGE: Final = "message"
"""The column of what a `PartitionWriter` yields."""


class Partition(NamedTuple):
    """What an executor is told of the job. Pickled with the user's function; holds no secret.

    Attributes:
        spec: The job.
        options: How to reach the store.
        schema: The rows' schema as Spark's JSON, with the user's names of columns.
        arrow: Whether the function takes record batches, not rows.
    """

    spec: JobSpec
    options: WriteOptions
    schema: str
    arrow: bool


def write_partition(
    partition: Partition, write_fn: RowWriter | BatchWriter, batches: Iterator[RecordBatch]
) -> Iterator[RecordBatch]:
    """Runs one attempt of one task, from its first row to its message."""
    rows = _named(batches, partition.schema) if partition.arrow else _rows(batches, partition.schema)
    yield _as_batch(_write(rows, write_fn, partition))
    # Spark's worker ends its talk with the executor properly only where all input was read.
    deque(batches, maxlen=0)


def _write(
    rows: Iterator[Row] | Iterator[RecordBatch], write_fn: RowWriter | BatchWriter, partition: Partition
) -> bytes:
    task, number = current_task("foreach_partition")
    storage = partition.options.storage_options()
    with sync.open_task(partition.spec, task=task, attempt=number, storage_options=storage) as attempt:
        returned = write_fn(rows, attempt)
        if inspect.isgenerator(returned) or inspect.isawaitable(returned):
            if inspect.iscoroutine(returned):
                returned.close()
            raise TaskError(
                f"write_fn returned a {type(returned).__name__}, which the executor does not run: nothing was written",
                operation="foreach_partition",
                next_step="make write_fn a plain function that writes before it returns",
            )
    return attempt.task_commit.encode()


def _named(batches: Iterator[RecordBatch], schema: str) -> Iterator[RecordBatch]:
    """The batches with the user's column names."""
    names = StructType.fromJson(msgspec.json.decode(schema)).fieldNames()
    return (batch.rename_columns(names) for batch in batches)


def _rows(batches: Iterator[RecordBatch], schema: str) -> Iterator[Row]:
    """The rows of Arrow batches, as ``df.foreachPartition`` hands them over."""
    import pyarrow as pa
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    fields = StructType.fromJson(msgspec.json.decode(schema))
    for batch in batches:
        yield from ArrowTableToRowsConversion.convert(pa.Table.from_batches([batch]), fields)


def _as_batch(message: bytes) -> RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], names=[MESSAGE])
