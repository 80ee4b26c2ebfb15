r"""`foreach_partition`: commits files that a user's function writes in Spark tasks.

    def write_json(rows, task):
        with task.open(f"part-{task.task:05d}.json") as file:
            for row in rows:
                file.write(json.dumps(row.asDict(), default=str).encode() + b"\n")

    report = committer.spark.foreach_partition(df, "abfss://data@account.dfs.core.windows.net/events", write_json)

`foreach_partition` is the whole job: its winners are named by messages that come back from the tasks, one a partition.
Where a plain ``df.foreachPartition`` has to stay, `task_attempt` gives its callback an attempt; nothing comes back
from there, so the driver commits what a listing finds:

    with committer.sync.open_job(uri) as job:
        spec = job.spec

        def write(rows):
            with committer.spark.task_attempt(spec) as task, task.open(f"part-{task.task:05d}.txt") as file:
                for row in rows:
                    file.write(f"{row.id}\n".encode())

        df.foreachPartition(write)
        job.commit(tasks=df.rdd.getNumPartitions())
"""

from __future__ import annotations

import importlib.util
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, overload

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from committer import sync
from committer.committers.results import JobReport
from committer.errors import ConfigurationError, TaskError, TaskMissingError, UnsupportedError
from committer.events import Listener
from committer.logs import job_logger
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.paths import Destination, StorePath
from committer.records.task_commit import TaskCommit
from committer.spark import missing_package
from committer.spark.arguments import check_frame, check_write_function, option_texts
from committer.spark.hadoop_client import resolved_path
from committer.spark.options import WriteOptions, parse_options, path_option
from committer.spark.protocol_session import choices_of_process
from committer.spark.publishing import SparkPool, refuse_without_executors
from committer.spark.session_settings import choices_of, roots_beside, set_by_user, store_settings, telling
from committer.spark.sessions import is_connect, missing_in_worker
from committer.spark.spark_task import TaskCommitMessage, current_task, task_commits
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


_LOG = job_logger("committer.spark")
_STORAGE: Final = "storage."


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
    """Runs `write_fn` once on every partition of a batch DataFrame, and commits what the winning attempts wrote.

    An attempt commits when `write_fn` returns and is aborted when it raises; Spark then runs the task again, in an
    attempt of its own. A job whose tasks fail for good, or that is interrupted, is aborted: nothing of it is ever
    visible. `write_fn` is called for empty partitions too, and need not write anything. It may stop reading early: the
    rows that it leaves are dropped.

    The DataFrame is computed once, through ``mapInArrow`` and ``collect``. The job is set up and committed in this
    process, which in Spark Connect is the client's: it needs the store as the executors do. A commit takes one message
    of every partition. How many there are says the plan that ran, adaptive execution included; a Connect client cannot
    ask for it and relies on the messages' numbers having no gap.

    Args:
        df: What to write.
        uri: The destination: a URI, or a path that the session's JVM resolves, as for Spark's own writers. Made when
            missing.
        write_fn: Called in an executor with an iterator of the partition's rows and a `committer.sync.TaskAttempt`.
            Pickled like every function that Spark ships, so it must not hold a secret.
        arrow: Give `write_fn` the partition's ``pyarrow.RecordBatch`` es, as many rows each as
            ``spark.sql.execution.arrow.maxRecordsPerBatch`` says, instead of `Row` objects as ``df.foreachPartition``
            gives them. Costs far less for each row.
        job_id: The job's id; a UUID when None.
        committer: The committer's name; the store's default when None.
        config: The commit's choices. Those that this does not make are those that `configure` was given, else those
            of a classic session's keys ``spark.hadoop.*``, of conflicts too; a `CommitterConfig` makes all of them.
            Such keys likewise make `storage_options`, but for secrets.
        storage_options: How to reach the store; of secrets references that each process resolves: ``env:NAME`` or
            ``file:PATH``.
        listeners: Called with each event of the job's progress, on the thread of `committer.sync`'s loop.

    Raises:
        ConfigurationError: An argument cannot be honoured. Nothing was done.
        UnsupportedError: The DataFrame is a streaming one, or pyarrow or pandas is missing. Nothing was done. Or this
            package, or what it needs, is missing in Spark's Python workers; the job was aborted.
        JobExistsError: The job id is in use at the destination.
        TaskMissingError: A partition returned no message, or two; the job was aborted.
        PySparkException: A task failed for good, or Spark refused the plan; the job was aborted.
        CommitterError: As `committer.sync.Job.commit`.
    """
    # PySpark's mapInArrow asks for both.
    for package in ("pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise missing_package(package)
    check_frame(df, "foreach_partition")
    check_write_function(write_fn)
    plan = _plan(df, uri, config, storage_options)
    choices = plan.choices or CommitterConfig()
    if is_connect(df):
        refuse_without_executors(choices, "through Spark Connect", "foreach_partition")
    on_executors = choices.publish != "driver" and not is_connect(df)
    storage = plan.options.storage_options()
    schema = df.schema.json()
    with (
        telling(plan.withheld),
        sync.open_job(
            plan.options.path,
            job_id=job_id,
            committer=committer,
            delivery="message",
            config=plan.choices,
            storage_options=storage,
            listeners=listeners,
        ) as job,
    ):
        partition = Partition(job.spec, plan.options, schema, arrow)
        commits = _run(df, partial(write_partition, partition, write_fn), job.job_id)
        if not on_executors:
            return job.commit(task_commits=commits, tasks=len(commits))
        with SparkPool(df.sparkSession.sparkContext, plan.options.storage_options) as pool:
            return job.commit(task_commits=commits, tasks=len(commits), publish_with=pool)


class _Plan(NamedTuple):
    """What `foreach_partition` was asked for, by its arguments and by its session.

    Attributes:
        options: The destination, and how to reach its store.
        choices: The commit's choices.
        withheld: How to give the secrets that the session holds; empty where they are not missed.
    """

    options: WriteOptions
    choices: CommitterConfig | None
    withheld: str


def _plan(
    df: DataFrame, uri: Destination, config: ConfigLike | None, storage_options: Mapping[str, str] | None
) -> _Plan:
    choices = config_of(config)
    settings = _settings(resolved_path(df, uri), storage_options, "foreach_partition")
    session = set_by_user(df, parse_options({"path": settings["path"]}).path)
    store = store_settings(session, settings["path"], storage_options or ())
    settings.update({f"{_STORAGE}{key}": value for key, value in store.options.items()})
    options = parse_options(settings)
    process = choices_of_process(df.sparkSession)
    if process is not None and not isinstance(config, CommitterConfig):
        process = process.replace(absolute_roots=roots_beside(process.absolute_roots, StorePath.of(options.path)))
        choices = process.replace(**{field: getattr(choices, field) for field in config or ()})
    elif not isinstance(config, CommitterConfig):
        chosen = choices_of(session, config or (), mode=None, place=StorePath.of(options.path))
        choices = (choices or CommitterConfig()).replace(**chosen)
    if store.withheld:
        _LOG.warning("%s", store.withheld)
    if df.isStreaming:
        raise UnsupportedError(
            "a streaming DataFrame has no partitions to go through",
            operation="foreach_partition",
            next_step="call foreach_partition inside df.writeStream.foreachBatch",
        )
    return _Plan(options, choices, store.withheld)


def _run(df: DataFrame, write: PartitionWriter, job_id: str) -> list[TaskCommit]:
    """Runs the one Spark job of `foreach_partition`; what its winning attempts committed, one a partition."""
    # mapInArrow looks its columns up by name, and fails where two share one or a name holds a period.
    plain = df.toDF(*(f"c{number}" for number in range(len(df.columns))))
    messages = plain.mapInArrow(write, f"{MESSAGE} binary")
    commits = task_commits(_collected(messages), job_id)
    check_every_partition(commits, _number_of_partitions(messages))
    return commits


def task_attempt(spec: JobSpec, storage_options: Mapping[str, str] | None = None) -> TaskAttempt:
    """Opens an attempt of the Spark task that this is called in: ``with task_attempt(spec) as task: ...``.

    For the callback of ``df.foreachPartition``, ``rdd.foreachPartition`` and the like, which return nothing to the
    driver: there open the job with `committer.sync.open_job` and end it with ``job.commit(tasks=N)``, N being the
    number of partitions. ``df.rdd.getNumPartitions()`` says it for the plan that ``df.foreachPartition`` then runs; in
    Spark Connect, which has no ``rdd``, ``df.repartition(N)`` fixes it. The callback must open an attempt for an empty
    partition too.

    Args:
        spec: The job, from ``job.spec``.
        storage_options: How to reach the store; of secrets references, ``env:NAME`` or ``file:PATH``, resolved here.

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


def _collected(messages: DataFrame) -> list[TaskCommitMessage]:
    try:
        rows = messages.collect()
    except Exception as error:
        missing = missing_in_worker(error)
        if missing is None:
            raise
        raise missing from error
    return [TaskCommitMessage(bytes(row[MESSAGE])) for row in rows]


def check_every_partition(commits: Iterable[TaskCommit], partitions: int | None) -> None:
    """Checks that the messages are those of all partitions of one run.

    Args:
        commits: One a task.
        partitions: How many partitions there were; None where that is not known.

    Raises:
        TaskMissingError: A partition has no message, or there are more messages than partitions.
    """
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
    given = option_texts(storage_options, "storage_options", operation)
    return {"path": path_option(where), **{f"{_STORAGE}{key}": value for key, value in given.items()}}


def _number_of_partitions(frame: DataFrame) -> int | None:
    """How many partitions the plan of `frame` has, which was collected; None where only the server knows.

    Asked after the run: adaptive execution settles a plan while it runs, once, and the same DataFrame keeps the settled
    one. So the number is that of the very run, and asking starts no job.
    """
    if is_connect(frame):
        return None
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())
