"""A Spark driver for the tests of real failures: reads a scenario a line from stdin, answers a line on stdout.

    python cluster_driver.py MASTER

Everything here belongs to `__main__`, so that Spark ships it by value: executors have the library and not its tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from committer import sync
from committer.errors import UnsupportedError
from committer.options.config import CommitterConfig
from committer.spark import CommitterDataSource, configure, foreach_partition, jar_path, task_attempt
from committer.spark.batch_writer import CommitterWriter
from committer.spark.micro_batches import batch_job_id
from committer.spark.options import WriteOptions
from committer.spark.schema import FilePlan
from committer.spark.spark_task import BATCH_ID, QUERY_ID, TaskCommitMessage
from committer.spark.stream_writer import BatchMessage, CommitterStreamWriter
from committer.spec import JobSpec

sys.path.append(str(Path(__file__).parents[2]))

from tests.spark.driving import ON_A_CLUSTER, builder, serve, speculating, started

PATIENCE_S = 120.0
DRAWN_BY_SPARK = "drawn-by-spark"
Act = Callable[[int, int], None]
"""What a task does when all of its rows are written and its attempt is not committed: (partition, attempt number)."""


def start(master: str) -> SparkSession:
    settings = {**ON_A_CLUSTER, **speculating(master), "spark.sql.shuffle.partitions": "2"}
    building = builder(master, "committer failures", settings)
    # For the way "own writers" alone, which says that they go through the protocol.
    with contextlib.suppress(UnsupportedError):
        building = building.config("spark.jars", jar_path())
    return started(building)


# --- Four ways to write --------------------------------------------------------------------------------------------


class ActingSource(CommitterDataSource):
    """The data source, with something that happens in its tasks."""

    act: Act

    @classmethod
    def name(cls) -> str:
        return "acting"

    def writer(self, schema: StructType, overwrite: bool) -> CommitterWriter:
        writer = super().writer(schema, overwrite)
        return ActingWriter(writer.options, writer.plan, writer.spec, type(self).act)

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitterStreamWriter:
        writer = super().streamWriter(schema, overwrite)
        return ActingStreamWriter(writer.options, writer.plan, type(self).act)


class ActingWriter(CommitterWriter):
    def __init__(self, options: WriteOptions, plan: FilePlan, spec: JobSpec, act: Act) -> None:
        super().__init__(options, plan, spec)
        self.act = act

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        context = TaskContext.get()
        assert context is not None
        partition, number = context.partitionId(), context.attemptNumber()

        def then_act() -> Iterator[Any]:
            yield from iterator
            self.act(partition, number)

        return told_of(self.spec, partition, number, lambda: super(ActingWriter, self).write(then_act()))


class ActingStreamWriter(CommitterStreamWriter):
    def __init__(self, options: WriteOptions, plan: FilePlan, act: Act) -> None:
        super().__init__(options, plan)
        self.act = act

    def write(self, iterator: Iterator[Any]) -> BatchMessage:
        context = TaskContext.get()
        assert context is not None
        partition, number = context.partitionId(), context.attemptNumber()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        assert query is not None
        spec = JobSpec(destination=Path(self.options.path).as_uri(), job_id=batch_job_id(query, int(batch or "")))

        def then_act() -> Iterator[Any]:
            yield from iterator
            self.act(partition, number)

        return told_of(spec, partition, number, lambda: super(ActingStreamWriter, self).write(then_act()))


def with_attempt(batches: Iterator[Any]) -> Iterator[Any]:
    """Says in a column which attempt handed a row over."""
    import pyarrow as pa

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        number = pa.array([context.attemptNumber()] * batch.num_rows, pa.int32())
        yield pa.RecordBatch.from_arrays([*batch.columns, number], names=["id", "d", "attempt"])


def write_rows(rows: Iterator[Row], task: sync.TaskAttempt, act: Act, spec: JobSpec) -> None:
    """One file a directory, named after partition and attempt; then what the scenario wants."""
    context = TaskContext.get()
    assert context is not None
    number = context.attemptNumber()
    by_directory: dict[int, list[int]] = {}
    for row in rows:
        by_directory.setdefault(row.d, []).append(row.id)
    for directory, ids in by_directory.items():
        with task.open(f"d={directory}/part-{task.task}-{number}.txt") as file:
            file.write("".join(f"{value}\n" for value in ids).encode())
    act(task.task, number)
    told_of(spec, task.task, number, task.commit)


def save(frame: DataFrame, way: str, dest: str, job_id: str, config: CommitterConfig, act: Act) -> None:
    """Writes id and d of a DataFrame; `act` is called in each task."""
    if way == "data source":
        ActingSource.act = staticmethod(act)
        frame.sparkSession.dataSource.register(ActingSource)
        writer = frame.mapInArrow(with_attempt, "id long, d long, attempt int").write.format("acting").mode("append")
        options = {"partitionBy": "d", "job_id": job_id}
        if config.io_rate is not None:
            options |= {"io_rate": str(config.io_rate), "io_concurrency": str(config.io_concurrency)}
        writer.options(**options).save(dest)
    elif way == "own writers":
        spec = JobSpec(destination=Path(dest).as_uri(), job_id=job_id)
        session = frame.sparkSession
        # Else Spark sorts all rows before a task writes any.
        session.conf.set("spark.sql.maxConcurrentOutputFileWriters", "100")
        configure(session, config=config)

        def acting(batches: Iterator[Any]) -> Iterator[Any]:
            context = TaskContext.get()
            assert context is not None
            yield from with_attempt(batches)
            act(context.partitionId(), context.attemptNumber())
            told_of(spec, context.partitionId(), context.attemptNumber(), lambda: None)

        rows = frame.mapInArrow(acting, "id long, d long, attempt int")
        rows.write.partitionBy("d").mode("append").parquet(dest)
    elif way == "messages":
        spec = JobSpec(destination=Path(dest).as_uri(), job_id=job_id)
        foreach_partition(
            frame, dest, lambda rows, task: write_rows(rows, task, act, spec), job_id=job_id, config=config
        )
    else:
        with sync.open_job(dest, job_id=job_id, config=config) as job:
            spec = job.spec

            def callback(rows: Iterator[Row]) -> None:
                with task_attempt(spec) as task:
                    write_rows(rows, task, act, spec)

            frame.foreachPartition(callback)
            job.commit(tasks=frame.rdd.getNumPartitions())


# --- What happens in tasks -----------------------------------------------------------------------------------------


def job_directory(spec: JobSpec) -> Path:
    """The job's directory, the only one at the destination; if there is none, a path where nothing is."""
    nowhere = Path(spec.layout.job_directory.path)
    found = (child for child in nowhere.parent.glob("*~*") if child.suffix not in {".new", ".removed"})
    return next(found, nowhere)


def flags(spec: JobSpec) -> Path:
    """Where tasks leave word: beside the destination."""
    return Path(spec.layout.destination.path).parent / "flags"


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what the task waited for did not come")
        time.sleep(0.01)


def told_of(spec: JobSpec, partition: int, number: int, commit: Callable[[], Any]) -> Any:
    """Commits an attempt, and leaves word of how that went and of how far the job was."""
    result = "committed"
    try:
        return commit()
    except BaseException as error:
        result = type(error).__name__
        raise
    finally:
        context = TaskContext.get()
        assert context is not None
        directory = job_directory(spec)
        far = [name for name in ("decision", "kept") if (directory / name).exists()]
        far += [] if directory.exists() else ["gone"]
        word = {
            "partition": partition,
            "attempt_number": number,
            "task_attempt": context.taskAttemptId(),
            "result": result,
            "job": far,
        }
        temporary = flags(spec) / f".{partition}-{number}-{context.taskAttemptId()}"
        temporary.write_text(json.dumps(word))
        temporary.rename(flags(spec) / temporary.name[1:])


def executor() -> int:
    """The Java process that this Python worker works for."""
    pid = os.getpid()
    while "CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid <= 1:
            raise RuntimeError("no executor above this worker")
    return pid


def kill_executor() -> None:
    """SIGKILL for that process."""
    os.kill(executor(), signal.SIGKILL)
    time.sleep(PATIENCE_S)


def kill_executor_at(attempts: Path, pattern: str) -> None:
    """The same as soon as a record is there: its task attempt is committing, or has just committed."""
    pid = executor()

    def watch() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not next(attempts.glob(pattern), None) and time.monotonic() < deadline:
            pass
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


# --- Scenarios -----------------------------------------------------------------------------------------------------


def frame_of(spark: SparkSession, rows: int = 50) -> DataFrame:
    """5 partitions; the rows of the first go into directories of their own."""
    return spark.range(0, 5 * rows, 1, 5).selectExpr("id", f"if(id < {rows}, id, -1) d")


def speculation(spark: SparkSession, way: str, moment: str, dest: str, job_id: str) -> list[Any]:
    """Partition 1 hangs, its copy wins; the first attempt finishes before, during or after the commit of the job."""
    spec = JobSpec(destination=Path(dest).as_uri(), job_id=job_id)
    save(frame_of(spark), way, dest, job_id, config_at(moment), losing(spec, way, moment))
    wait_for(lambda: list(flags(spec).glob("1-0-*")))
    return words(spec)


def speculation_in_a_batch(spark: SparkSession, way: str, moment: str, dest: str, job_id: str) -> list[Any]:
    """The same with the rows of a micro-batch, written in a foreachBatch function or by the stream's own sink."""
    query_id, checkpoint = str(uuid.uuid4()), Path(dest).with_name("checkpoint")
    # Spark takes the id of a query that was there before from here.
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": query_id}))
    spec = JobSpec(destination=Path(dest).as_uri(), job_id=batch_job_id(query_id, 0) if way == "sink" else job_id)
    act, config = losing(spec, way, moment), config_at(moment)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 250).option("numPartitions", 5).load()
    # Its partitions take turns, those of frame_of hold a range each.
    rows = source.selectExpr("(value % 5) * 50 + value div 5 id").selectExpr("id", "if(id < 50, id, -1) d")
    done = threading.Event()
    if way == "sink":
        ActingSource.act = staticmethod(act)
        spark.dataSource.register(ActingSource)
        rows = rows.mapInArrow(with_attempt, "id long, d long, attempt int")
        writer = rows.writeStream.format("acting").option("partitionBy", "d").option("path", dest)
        if config.io_rate is not None:
            writer = writer.option("io_rate", str(config.io_rate))
    else:

        def write_batch(batch: DataFrame, number: int) -> None:
            if number == 0:
                save(batch, way, dest, job_id, config, act)
                done.set()

        writer = rows.writeStream.foreachBatch(write_batch)
    # One batch: the next one is an hour away.
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="1 hour").start()
    try:
        wait_for(lambda: query.exception() or done.is_set() or (checkpoint / "commits" / "0").exists())
        if query.exception():
            raise RuntimeError(str(query.exception()))
        wait_for(lambda: list(flags(spec).glob("1-0-*")))
    finally:
        query.stop()
    return words(spec)


def config_at(moment: str) -> CommitterConfig:
    # At 15 requests a second the commit of 54 files takes long enough for a loser to come in between.
    return CommitterConfig(io_rate=15) if moment == "during" else CommitterConfig()


def losing(spec: JobSpec, way: str, moment: str) -> Act:
    """What makes the first attempt of partition 1 hang until its copy won, and then finish at one moment."""
    attempt_directory = "manifests" if way == "listing" else "attempts"

    def act(partition: int, number: int) -> None:
        directory, told = job_directory(spec), flags(spec)
        if partition == 1 and number > 0:
            # The loser is to hang with all rows read; a copy that wins earlier would have Spark cut its input off.
            wait_for((told / ".hangs").exists)
        if partition == 1 and number == 0:
            (told / ".hangs").touch()
            if moment == "before":
                wait_for(lambda: list((directory / "00" / attempt_directory).glob("*_m_000001*-manifest.json")))
                # Its message is to reach Spark before the loser's.
                wait_for(lambda: list(told.glob("1-1-*")))
                time.sleep(1.0)
            elif moment == "during":
                wait_for((directory / "decision").exists)
            elif way == "sink":  # keeps its outcome there
                wait_for((directory / "kept").exists)
            else:
                wait_for(lambda: not directory.exists())
        if partition == 2 and moment == "before":
            wait_for(lambda: list(told.glob("1-0-*")))

    return act


def lost_executor(spark: SparkSession, way: str, shuffled: bool, dest: str, job_id: str) -> list[Any]:
    """The executor of partition 1 dies when the partition is written. With a shuffle, its map outputs are lost too."""
    spec = JobSpec(destination=Path(dest).as_uri(), job_id=job_id)

    def act(partition: int, number: int) -> None:
        mark = flags(spec) / ".killed"
        if partition == 1 and number > 0:
            # A speculative copy, which a busy machine may see, is not the one that dies; were it done earlier, Spark would
            # end the one that is to die.
            wait_for(mark.exists)
        if partition == 1 and number == 0 and not mark.exists():
            mark.touch()
            told_of(spec, partition, number, lambda: None)
            kill_executor()

    frame = frame_of(spark, 10)
    if shuffled:
        frame = frame.repartition(5, "id")
    save(frame, way, dest, job_id, CommitterConfig(), act)
    return words(spec)


def lost_in_task_commit(spark: SparkSession, dest: str) -> list[Any]:
    """The executor of partition 1 dies while Java commits the attempt: its record stands, or is being saved."""
    spec = JobSpec(destination=Path(dest).as_uri(), job_id=DRAWN_BY_SPARK)

    def act(partition: int, number: int) -> None:
        mark = flags(spec) / ".killed"
        if partition == 1 and number > 0:
            wait_for(mark.exists)
        if partition == 1 and number == 0 and not mark.exists():
            mark.touch()
            kill_executor_at(job_directory(spec) / "00" / "attempts", "*_m_000001_*")

    save(frame_of(spark, 10), "own writers", dest, DRAWN_BY_SPARK, CommitterConfig(), act)
    return words(spec)


def two_writers(spark: SparkSession, dest: str, directories: int) -> list[Any]:
    """Two queries append to one table at the same time, each to hundreds of partitions; then one overwrites a part."""
    spec = JobSpec(destination=Path(dest).as_uri(), job_id=DRAWN_BY_SPARK)
    configure(spark)
    failed: list[str] = []

    def append(number: int) -> None:
        rows = spark.range(number * 1000, (number + 1) * 1000, 1, 4).selectExpr("id", f"id % {directories} d")
        told = flags(spec) / f".writes-{number}"

        def meet(batches: Iterator[Any]) -> Iterator[Any]:
            yield from batches
            told.touch()
            wait_for(lambda: len(list(told.parent.glob(".writes-*"))) == 2)

        try:
            met = rows.mapInArrow(meet, "id long, d long").selectExpr("id", "d", "0 attempt")
            met.write.partitionBy("d").mode("append").parquet(dest)
        except Exception:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=append, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = spark.range(2000, 2100, 1, 4).selectExpr("id", "id % 10 d", "1 attempt")
    rows.write.partitionBy("d").mode("overwrite").option("partitionOverwriteMode", "dynamic").parquet(dest)
    return failed


def slow_commit(spark: SparkSession, way: str, dest: str, job_id: str) -> None:
    """A commit of several seconds, to be killed in the middle: with so few calls in flight it renames file by file."""
    save(frame_of(spark), way, dest, job_id, CommitterConfig(io_rate=40, io_concurrency=2), nothing)


def nothing(partition: int, number: int) -> None:
    pass


def words(spec: JobSpec) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted(flags(spec).glob("[0-9]*"))]


if __name__ == "__main__":
    serve(
        start(sys.argv[1]),
        (speculation, speculation_in_a_batch, lost_executor, lost_in_task_commit, two_writers, slow_commit),
    )
