"""Commits files that a user's function writes in Spark tasks: `foreach_partition` and `task_attempt`.

`foreach_partition` runs a whole job; its tasks return one message per partition, which name the winning attempts.
In a plain ``df.foreachPartition``, `task_attempt` opens an attempt in the callback; no message returns from there,
so the driver commits the attempts that a listing finds. docs/spark.md shows both.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, overload

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from committer import sync
from committer.committers.results import JobReport
from committer.errors import ConfigurationError, TaskError, TaskMissingError, UnsupportedError
from committer.events import Listener
from committer.logs import job_logger
from committer.options.config import CommitterConfig, ConfigLike
from committer.paths import Destination
from committer.records.task_commit import TaskCommit
from committer.spark import missing_package
from committer.spark.arguments import check_frame, check_write_function, storage_settings
from committer.spark.options import WriteOptions, parse_options, path_option
from committer.spark.protocol_session import choices_of_process
from committer.spark.publishing import SparkPool, refuse_without_executors
from committer.spark.session_settings import add_from_session, config_options, telling
from committer.spark.sessions import is_connect, resolved_path, telling_what_workers_miss
from committer.spark.spark_task import TaskCommitMessage, current_task, task_commits
from committer.spec import JobSpec
from committer.sync import TaskAttempt

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark import RDD  # a client of Spark Connect has none


RowWriter: TypeAlias = Callable[[Iterator[Row], TaskAttempt], object]
"""Writes the rows of one partition into a task attempt; its result is ignored."""

BatchWriter: TypeAlias = "Callable[[Iterator[RecordBatch], TaskAttempt], object]"
"""The same, from Arrow record batches."""

_CONVERTS: Final = importlib.util.find_spec("pyspark.sql.conversion") is not None
"""False on PySpark 3.5, which cannot make rows of record batches without grpcio."""

MESSAGE: Final = "message"
"""Column of the task commit messages."""


class Partition(NamedTuple):
    """Job data that is pickled to executors with the user's function; holds no secret.

    Attributes:
        schema: The rows' schema as Spark's JSON, with the user's column names.
        arrow: True if the function takes record batches instead of rows.
    """

    spec: JobSpec
    options: WriteOptions
    schema: str
    arrow: bool


def write_partition(
    partition: Partition, write_fn: RowWriter | BatchWriter, batches: Iterator[RecordBatch]
) -> Iterator[RecordBatch]:
    """Runs one task attempt and yields its message."""
    rows = _named(batches, partition.schema) if partition.arrow else _rows(batches, partition.schema)
    yield _as_batch(_write(rows, write_fn, partition))
    # Spark's worker ends its protocol with the executor properly only after all input is read.
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
    names = StructType.fromJson(msgspec.json.decode(schema)).fieldNames()
    return (batch.rename_columns(names) for batch in batches)


def _rows(batches: Iterator[RecordBatch], schema: str) -> Iterator[Row]:
    """Yields the rows of Arrow batches, as ``df.foreachPartition`` would."""
    import pyarrow as pa
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    fields = StructType.fromJson(msgspec.json.decode(schema))
    for batch in batches:
        yield from ArrowTableToRowsConversion.convert(pa.Table.from_batches([batch]), fields)


def _as_batch(message: bytes) -> RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], names=[MESSAGE])


_LOG = job_logger("committer.spark")


@overload
def foreach_partition(
    df: DataFrame,
    uri: Destination,
    write_fn: RowWriter,
    *,
    arrow: Literal[False] = False,
    job_id: str | None = None,
    committer: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, str] | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport: ...


@overload
def foreach_partition(
    df: DataFrame,
    uri: Destination,
    write_fn: BatchWriter,
    *,
    arrow: Literal[True],
    job_id: str | None = None,
    committer: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, str] | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport: ...


def foreach_partition(
    df: DataFrame,
    uri: Destination,
    write_fn: RowWriter | BatchWriter,
    *,
    arrow: bool = False,
    job_id: str | None = None,
    committer: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, str] | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport:
    """Runs `write_fn` on every partition of a batch DataFrame, and commits what the winning attempts wrote.

    An attempt commits when `write_fn` returns and is aborted when it raises; Spark then runs the task again in a
    new attempt. If a task fails for good or the call is interrupted, the job is aborted and nothing of it becomes
    visible. `write_fn` is called for empty partitions too, need not write anything, and may stop reading early.

    The DataFrame is computed once, through ``mapInArrow`` and ``collect``. This process (with Spark Connect, the
    client) sets up and commits the job, so it needs access to the store as the executors do. The commit requires
    one message of every partition. Their number comes from the executed plan, adaptive execution included; a
    Connect client cannot read it and only checks that the messages' numbers have no gap.

    Args:
        df: The DataFrame.
        uri: The destination: a URI, or a path that the session's JVM resolves, as for Spark's own writers. Created
            if missing.
        write_fn: Called in an executor with an iterator of the partition's rows and a
            `committer.sync.TaskAttempt`. Spark pickles it, so it must not hold a secret.
        arrow: True to call `write_fn` with ``pyarrow.RecordBatch`` es of up to
            ``spark.sql.execution.arrow.maxRecordsPerBatch`` rows instead of `Row` objects; costs far less per row.
        job_id: The job's id; a UUID when None.
        committer: The committer's name; the store's default when None.
        config: Options of the commit; a `CommitterConfig` sets all of them. A field that it does not set is taken
            from `configure`, else from a classic session's keys ``spark.hadoop.*``, conflict options included.
            These keys also give `storage_options`, except secrets.
        storage_options: How to reach the store; secrets as references that each process resolves: ``env:NAME`` or
            ``file:PATH``.
        listeners: Called with each progress event, on the thread of `committer.sync`'s loop.

    Raises:
        ConfigurationError: An argument cannot be honoured. Nothing was done.
        UnsupportedError: The DataFrame is a streaming one, or pyarrow or pandas is missing: nothing was done. Or
            Spark's Python workers lack this package or one that it needs: the job was aborted.
        JobExistsError: The job id is in use at the destination.
        TaskMissingError: A partition returned no message; the job was aborted.
        PySparkException: A task failed for good, or Spark refused the plan; the job was aborted.
        CommitterError: As `committer.sync.Job.commit`.
    """
    # PySpark's mapInArrow needs both.
    for package in ("pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise missing_package(package)
    check_frame(df, "foreach_partition")
    check_write_function(write_fn)
    settings = {**_settings(resolved_path(df, uri), storage_options, "foreach_partition"), **config_options(config)}
    withheld = add_from_session(df, settings, config, choices_of_process(df.sparkSession), has_mode=False)
    options = parse_options(settings)
    if withheld:
        _LOG.warning("%s", withheld)
    _refuse_frame(df, options.config, arrow=arrow)
    on_executors = options.config.publish != "driver" and not is_connect(df)
    storage = options.storage_options()
    schema = df.schema.json()
    with (
        telling(withheld),
        sync.open_job(
            options.path,
            job_id=job_id,
            committer=committer,
            delivery="message",
            config=options.config,
            storage_options=storage,
            listeners=listeners,
        ) as job,
    ):
        partition = Partition(job.spec, options, schema, arrow)
        commits = _run(df, partition, write_fn)
        if not on_executors:
            return job.commit(task_commits=commits, tasks=len(commits))
        with closing(SparkPool(df.sparkSession.sparkContext, options.storage)) as pool:
            return job.commit(task_commits=commits, tasks=len(commits), publish_with=pool)


def _refuse_frame(df: DataFrame, config: CommitterConfig, *, arrow: bool) -> None:
    """Refuses a stream, and what a DataFrame of Spark Connect cannot do."""
    if df.isStreaming:
        raise UnsupportedError(
            "a streaming DataFrame has no partitions to go through",
            operation="foreach_partition",
            next_step="call foreach_partition inside df.writeStream.foreachBatch",
        )
    if not is_connect(df):
        return
    refuse_without_executors(config, "through Spark Connect", "foreach_partition")
    if not arrow and not _CONVERTS:
        raise UnsupportedError(
            "rows through Spark Connect need PySpark 4.0 or later",
            operation="foreach_partition",
            next_step="give arrow=True, and a write_fn that takes record batches",
        )


def _run(df: DataFrame, partition: Partition, write_fn: RowWriter | BatchWriter) -> list[TaskCommit]:
    """Runs the Spark job and returns the winning attempts' commits, one per partition."""
    partitions: int | None
    if not partition.arrow and not _CONVERTS:
        rows = df.rdd.mapPartitions(partial(_write_rows, partition, write_fn))
        found, partitions = _collected(rows), rows.getNumPartitions()
    else:
        # mapInArrow looks columns up by name: it fails if two share a name or a name holds a period.
        plain = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
        messages = plain.mapInArrow(partial(write_partition, partition, write_fn), f"{MESSAGE} binary")
        found, partitions = _collected(messages), _number_of_partitions(messages)
    commits = task_commits([TaskCommitMessage(bytes(row[0])) for row in found])
    check_every_partition(commits, partitions)
    return commits


def _write_rows(partition: Partition, write_fn: RowWriter | BatchWriter, rows: Iterator[Row]) -> Iterator[tuple[bytes]]:
    """Runs one task attempt from Spark's rows instead of record batches."""
    yield (_write(rows, write_fn, partition),)


def task_attempt(spec: JobSpec, storage_options: Mapping[str, str] | None = None) -> TaskAttempt:
    """Opens an attempt of the current Spark task: ``with task_attempt(spec) as task: ...``.

    For the callback of ``df.foreachPartition``, ``rdd.foreachPartition`` and the like, which return nothing to the
    driver. The driver opens the job with `committer.sync.open_job` and ends it with ``job.commit(tasks=N)``, N
    being the number of partitions: ``df.rdd.getNumPartitions()`` returns it for the plan that
    ``df.foreachPartition`` then runs; in Spark Connect, which has no ``rdd``, ``df.repartition(N)`` fixes it. The
    callback must open an attempt for an empty partition too.

    Args:
        spec: The job, from ``job.spec``.
        storage_options: How to reach the store; secrets as references, ``env:NAME`` or ``file:PATH``, resolved here.

    Raises:
        ConfigurationError: An argument cannot be honoured.
        UnsupportedError: This is not a Spark task.
        JobNotFoundError: The job was never set up, or was cleaned up.
        JobDecidedError: The job is decided.
    """
    if not isinstance(spec, JobSpec):
        raise ConfigurationError(
            f"task_attempt takes a JobSpec, not a {type(spec).__name__}",
            operation="task_attempt",
            next_step="give job.spec, taken on the driver: the job itself stays there",
        )
    options = parse_options(_settings(spec.layout.destination, storage_options, "task_attempt"))
    task, attempt = current_task("task_attempt")
    return sync.open_task(spec, task=task, attempt=attempt, storage_options=options.storage_options())


def _collected(messages: DataFrame | RDD[tuple[bytes]]) -> Sequence[tuple[bytes, ...]]:
    with telling_what_workers_miss():
        try:
            return messages.collect()
        except Exception as error:
            if type(error).__name__ == "Py4JJavaError":
                # PySpark turns an error of a task into one of its own in DataFrames, not in RDDs.
                raise PySparkException(str(error)) from error
            raise


def check_every_partition(commits: Iterable[TaskCommit], partitions: int | None) -> None:
    """Checks that there is one message per partition; `partitions` is None if their number is unknown."""
    tasks = {commit.task for commit in commits}
    expected = len(tasks) if partitions is None else partitions
    if tasks != set(range(expected)):
        missing = sorted(set(range(expected)) - tasks)
        what = f"partition {missing[0]} has none" if missing else f"partition {max(tasks)} has one"
        raise TaskMissingError(
            f"{len(tasks)} task commit messages came back for {expected} partitions: {what}",
            operation="foreach_partition",
            next_step="run it again; nothing was published",
        )


def _settings(where: Destination, storage_options: Mapping[str, str] | None, operation: str) -> dict[str, str]:
    return {"path": path_option(where), **storage_settings(storage_options, operation)}


def _number_of_partitions(messages: DataFrame) -> int | None:
    """Returns the number of partitions of collected messages; None if only a Connect server knows.

    Adaptive execution fixes a plan once, while it runs, and the DataFrame keeps it. So after the run the number is
    that of the run, and reading it starts no job.
    """
    if is_connect(messages):
        return None
    return int(messages._jdf.queryExecution().toRdd().getNumPartitions())
