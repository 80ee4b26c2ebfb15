"""One's own writers, through `foreach_partition` and through `task_attempt` in a plain foreachPartition."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import committer
from committer import sync
from committer.errors import CommitterError, ConfigurationError, JobExistsError, TaskMissingError, UnsupportedError
from committer.records.task_commit import TaskCommit
from committer.spark import foreach_partition, task_attempt
from committer.spark.own_writers import check_every_partition

from .trees import everything

Write = Callable[[Iterator[Row], sync.TaskAttempt], None]
Run = Callable[[DataFrame, Path, Write], committer.JobReport]


def by_message(df: DataFrame, dest: Path, write: Write) -> committer.JobReport:
    return foreach_partition(df, dest, write)


def by_listing(df: DataFrame, dest: Path, write: Write) -> committer.JobReport:
    with sync.open_job(dest) as job:
        spec = job.spec

        def callback(rows: Iterator[Row]) -> None:
            with task_attempt(spec) as task:
                write(rows, task)

        df.foreachPartition(callback)
        return job.commit(tasks=df.rdd.getNumPartitions())


BOTH = pytest.mark.parametrize("run", [by_message, by_listing])


def lines_writer() -> Write:
    """Writes each row's values as a line, one file a partition that has rows."""

    # Made here, so that it is pickled by value: executors cannot import tests.
    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        first = next(rows, None)
        if first is None:
            return
        with task.open(f"part-{task.task:05d}.txt") as file:
            for row in (first, *rows):
                file.write(f"{tuple(row)!r}\n".encode())

    return write


def written(dest: Path) -> list[Any]:
    """The values of the rows that exist at the destination; with one column, its values."""
    rows = [eval(line) for path in sorted(dest.glob("part-*.txt")) for line in path.read_text().splitlines()]
    return sorted(row[0] if len(row) == 1 else row for row in rows)


# --- What is written -----------------------------------------------------------------------------------------------


@BOTH
def test_every_row_is_written_once_and_reported(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    report = run(spark.range(0, 100, 1, 3), tmp_path / "t", lines_writer())
    assert written(tmp_path / "t") == list(range(100))
    assert everything(tmp_path / "t") == {"_SUCCESS", *(f"part-{task:05d}.txt" for task in range(3))}
    size = sum(path.stat().st_size for path in (tmp_path / "t").glob("part-*"))
    assert (report.success, report.files_committed, report.bytes_committed) == (True, 3, size)


def test_rows_are_what_df_foreach_partition_gives(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        """
        select true b, 1Y i8, 4L i64, double('-0.0') d, 'é' s, X'00FF' bin, cast('1.50' as decimal(5,2)) n,
            date'0001-01-01' old, timestamp'2024-11-03T06:30:00Z' at, timestamp_ntz'1500-01-01 00:00:00.5' ntz,
            interval '1 02:03:04.5' day to second took, array(1, null) list, map('k', 1) dict,
            named_struct('a', array(named_struct('b', date'2024-01-01'))) deep, cast(null as int) nothing, 1 twice,
            2 twice, 3 `with.a.period`
        """
    )

    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        with task.open("rows.txt") as file:
            for row in rows:
                file.write(repr((type(row).__name__, row.__fields__, row)).encode())

    by_message(frame, tmp_path / "ours", write)
    by_listing(frame, tmp_path / "plain", write)
    ours, plain = ((tmp_path / name / "rows.txt").read_text() for name in ("ours", "plain"))
    assert ours == plain
    assert "Row(a=[Row(b=datetime.date(2024, 1, 1))])" in ours


def test_arrow_gives_record_batches(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 25_000, 1, 2).withColumn("x.y", F.col("id") + 1)

    def write(batches: Iterator[Any], task: sync.TaskAttempt) -> None:
        import pyarrow.parquet as pq

        first = next(batches)
        with task.open_blocking(f"p={task.task}/part-0.parquet") as file:
            with pq.ParquetWriter(file, first.schema) as writer:
                for batch in (first, *batches):
                    writer.write_batch(batch)

    report = foreach_partition(frame, tmp_path / "t", write, arrow=True)
    assert report.files_committed == 2
    back = spark.read.parquet(str(tmp_path / "t"))
    assert back.columns == ["id", "x.y", "p"]
    assert tuple(back.selectExpr("count(*)", "count(distinct id)", "max(`x.y`)", "max(p)").collect()[0]) == (
        25_000,
        25_000,
        25_000,
        1,
    )


def test_a_writer_may_leave_rows_unread_and_write_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        if task.task == 0:
            with task.open("first.txt") as file:
                file.write(str(next(rows).id).encode())

    report = foreach_partition(spark.range(0, 200_000, 1, 2), tmp_path / "t", write)
    assert (tmp_path / "t" / "first.txt").read_text() == "0"
    assert report.files_committed == 1


# --- Which tasks there are -----------------------------------------------------------------------------------------

FRAMES: dict[str, Callable[[SparkSession], DataFrame]] = {
    "the last partitions are empty": lambda spark: spark.range(0, 12, 1, 3).where("id < 4"),
    "every partition is empty": lambda spark: spark.range(0, 12, 1, 3).where("id < 0"),
    "no partition": lambda spark: spark.createDataFrame(spark.sparkContext.emptyRDD(), "id long"),
    "adaptive execution joins partitions": lambda spark: spark.range(0, 50, 1, 3).repartition("id"),
    "adaptive execution finds nothing": lambda spark: spark.range(50).where("rand() > 2").groupBy("id").count(),
    "sorted": lambda spark: spark.range(0, 50, 1, 3).orderBy("id"),
    "a limit": lambda spark: spark.range(0, 50, 1, 3).limit(7),
    "cached": lambda spark: spark.range(0, 50, 1, 3).cache(),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_partition_runs_once_and_is_counted(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    frame, log = FRAMES[kind](spark), tmp_path / "log"
    log.mkdir()
    write_lines = lines_writer()

    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        (log / f"{task.task}-{task.attempt}").touch()
        write_lines(rows, task)

    foreach_partition(frame, tmp_path / "t", write)
    tasks = [int(path.name.partition("-")[0]) for path in log.iterdir()]
    assert sorted(tasks) == list(range(len(tasks)))
    assert written(tmp_path / "t") == sorted(row.id for row in frame.collect())
    assert (tmp_path / "t" / "_SUCCESS").exists()


def test_counting_the_partitions_starts_no_job(spark: SparkSession, tmp_path: Path) -> None:
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("counted", "counted")
    try:
        frame = spark.range(0, 50, 1, 3).orderBy("id")
        frame.mapInArrow(lambda batches: batches, frame.schema).collect()
        plain = len(tracker.getJobIdsForGroup("counted"))
        foreach_partition(frame, tmp_path / "t", lines_writer())
        assert len(tracker.getJobIdsForGroup("counted")) == 2 * plain
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def commit_of(task: int) -> TaskCommit:
    return TaskCommit(
        job_id="j", task=task, attempt=0, nonce="n", record="file:/r", digest="d", length=1, files=0, size=0
    )


@pytest.mark.parametrize(
    ("tasks", "partitions", "text"),
    [
        ([0, 1], 3, "2 task commit messages came back for 3 partitions: partition 2 has none"),
        ([], 1, "partition 0 has none"),
        ([0, 2], None, "partition 1 has none"),
        ([0, 1, 2], 2, "partition 2 has one"),
    ],
)
def test_a_message_of_every_partition_is_needed(tasks: list[int], partitions: int | None, text: str) -> None:
    with pytest.raises(TaskMissingError, match=text):
        check_every_partition(map(commit_of, tasks), partitions)


@pytest.mark.parametrize(("tasks", "partitions"), [([2, 0, 1], 3), ([1, 0], None), ([], 0), ([], None)])
def test_messages_of_all_partitions_pass(tasks: list[int], partitions: int | None) -> None:
    messages = map(commit_of, tasks)
    check_every_partition(messages, partitions)
    assert not list(messages), "it has looked at each"


def test_a_callback_that_opens_no_attempt_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TaskMissingError), sync.open_job(tmp_path / "t") as job:
        spec = job.spec

        def callback(rows: Iterator[Row]) -> None:
            for row in rows:
                with task_attempt(spec) as task, task.open(f"{row.id}.txt") as file:
                    file.write(b"x")

        frame = spark.range(0, 3, 1, 3).where("id < 2")
        frame.foreachPartition(callback)
        job.commit(tasks=frame.rdd.getNumPartitions())
    assert not list((tmp_path / "t").glob("*.txt"))


# --- Failing tasks -------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("death", ["raises", "exits"])
def test_a_task_is_tried_again_and_only_the_winner_is_there(
    spark: SparkSession, tmp_path: Path, run: Run, death: str
) -> None:
    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        import os

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        with task.open(f"part-{task.task:05d}-{attempt}.txt") as file:
            for row in rows:
                file.write(f"({row.id},)\n".encode())
        if task.task == 1 and attempt == 0:
            if death == "exits":
                os._exit(7)
            raise ValueError("the attempt fails after all of its rows")

    report = run(spark.range(0, 30, 1, 3), tmp_path / "t", write)
    assert written(tmp_path / "t") == list(range(30))
    assert report.files_committed == 3
    assert "part-00001-0.txt" not in everything(tmp_path / "t")
    assert not (tmp_path / "t" / "_temporary").exists()


@BOTH
def test_a_task_that_fails_for_good_leaves_what_was_there(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    dest = tmp_path / "t"
    run(spark.range(0, 4, 1, 2), dest, lines_writer())
    before = everything(dest), (dest / "_SUCCESS").read_bytes()

    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        with task.open(f"more-{task.task}.txt") as file:
            file.write(b"more")
        if task.task == 1:
            raise ValueError("this partition is bad")

    with pytest.raises(Exception, match="this partition is bad"):
        run(spark.range(0, 4, 1, 2), dest, write)
    assert (everything(dest), (dest / "_SUCCESS").read_bytes()) == before


def generator(rows: Iterator[Row], task: sync.TaskAttempt) -> Iterator[None]:
    yield None


async def coroutine(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
    pass


@pytest.mark.parametrize(("write", "kind"), [(generator, "generator"), (coroutine, "coroutine")])
def test_a_writer_that_the_executor_does_not_run_is_refused(
    spark: SparkSession, tmp_path: Path, write: Callable[..., Any], kind: str
) -> None:
    with pytest.raises(Exception, match=f"write_fn returned a {kind}, which the executor does not run"):
        foreach_partition(spark.range(1), tmp_path / "t", lambda rows, task: write(rows, task))
    assert not (tmp_path / "t").exists() or everything(tmp_path / "t") == set()


@BOTH
def test_a_workers_loop_serves_one_task_after_another(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        import os
        import threading

        # A plain foreachPartition whose callback leaves rows unread costs its worker: Spark ends it.
        assert len(list(rows)) == 1
        loops = [thread for thread in threading.enumerate() if thread.name == "committer-sync"]
        with task.open(f"{task.task}.txt") as file:
            file.write(f"{os.getpid()} {len(loops)}".encode())

    run(spark.range(0, 8, 1, 8), tmp_path / "t", write)
    found = [path.read_text().split() for path in (tmp_path / "t").glob("*.txt")]
    assert len(found) == 8
    assert len({pid for pid, _ in found}) < 8, "no worker was used again"
    assert {loops for _, loops in found} == {"1"}


# --- Where it is called --------------------------------------------------------------------------------------------


@pytest.mark.allow_blocking("a notebook's cell runs on its loop and waits there, for Spark too")
async def test_inside_a_running_loop(spark: SparkSession, tmp_path: Path) -> None:
    assert asyncio.get_running_loop()
    assert by_message(spark.range(0, 4, 1, 2), tmp_path / "t", lines_writer()).files_committed == 2


def test_inside_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    source, dest = tmp_path / "source", tmp_path / "t"
    spark.range(0, 20, 1, 2).write.parquet(str(source))
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))
    calls: list[tuple[str, int]] = []

    def save_batch(batch: DataFrame, batch_id: int) -> None:
        for name, run in (("message", by_message), ("listing", by_listing)):
            report = run(batch, dest / f"{name}-{batch_id}", lines_writer())
            calls.append((name, report.files_committed))

    query = stream.writeStream.foreachBatch(save_batch).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(calls) == 4
    for name in ("message", "listing"):
        assert sorted(row for batch in (0, 1) for row in written(dest / f"{name}-{batch}")) == list(range(20))


def test_several_jobs_into_one_destination(spark: SparkSession, tmp_path: Path) -> None:
    dest, reports = tmp_path / "t", []

    def writer_for(number: int) -> Write:
        def write(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
            with task.open(f"part-{number}-{task.task}.txt") as file:
                for row in rows:
                    file.write(f"({row.id},)\n".encode())

        return write

    def one(number: int, run: Run) -> None:
        reports.append(run(spark.range(number * 10, number * 10 + 10, 1, 2), dest, writer_for(number)))

    def native() -> None:
        # Spark looks for Python data sources in the session that is active in the calling thread, and only this call
        # makes one active there; without it the first look-up from a thread says DATA_SOURCE_NOT_FOUND.
        spark.createDataFrame([(0,)], "id int")
        spark.range(0, 50, 1, 2).write.format("committer").mode("append").save(str(dest))

    threads = [threading.Thread(target=one, args=(number, (by_message, by_listing)[number % 2])) for number in range(4)]
    threads.append(threading.Thread(target=native))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({report.job_id for report in reports}) == 4
    assert written(dest) == list(range(40))
    assert spark.read.parquet(*map(str, dest.glob("*.parquet"))).count() == 50
    assert not (dest / "_temporary").exists()


# --- What cannot be honoured ---------------------------------------------------------------------------------------


def test_a_streaming_frame_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(UnsupportedError, match="foreachBatch"):
        foreach_partition(stream, tmp_path / "t", lines_writer())
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("uri", "options", "error", "text"),
    [
        ("/t", {"account_key": "hunter2"}, ConfigurationError, "storage.account_key must say where"),
        ("/t", {"token": "env:TEST_COMMITTER_UNSET"}, ConfigurationError, "TEST_COMMITTER_UNSET"),
    ],
)
def test_arguments_are_checked_before_anything_is_done(
    spark: SparkSession, uri: str, options: dict[str, str], error: type[CommitterError], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        foreach_partition(spark.range(1), uri, lines_writer(), storage_options=options)
    assert raised.value.outcome == "unchanged"
    assert "hunter2" not in str(raised.value)
    assert not Path(uri).exists()


def test_a_job_id_in_use_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with sync.open_job(tmp_path / "t", job_id="mine"):
        with pytest.raises(JobExistsError):
            foreach_partition(spark.range(1), tmp_path / "t", lines_writer(), job_id="mine")


def test_task_attempt_outside_a_task(tmp_path: Path) -> None:
    with sync.open_job(tmp_path / "t") as job:
        with pytest.raises(UnsupportedError, match="not a Spark task"):
            task_attempt(job.spec)
        with pytest.raises(ConfigurationError, match=r"storage\.token must say where"):
            task_attempt(job.spec, storage_options={"token": "hunter2"})
    assert os.listdir(tmp_path / "t") == ["_SUCCESS"]
