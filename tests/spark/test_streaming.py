"""Streams: each micro-batch is committed exactly once, whatever befalls the query between two of its steps."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import committer
from committer.cli import main as command_line
from committer.errors import ConfigurationError
from committer.spark import foreach_batch
from committer.spark.micro_batches import batch_job_id
from tests.job_paths import KEPT, in_job, jobs_at

from .trees import data_files, everything

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Rows = list[tuple[int, int]]


class Stream:
    """Files of numbers, one a batch, and a query that carries them to a table."""

    def __init__(self, spark: SparkSession, root: Path, how: str, name: str = "one") -> None:
        self.spark = spark
        self.how = how
        self.source = root / f"source-{name}"
        self.checkpoint = root / f"checkpoint-{name}"
        self.table = root / "table"
        self.fails = root / f"fails-{name}"
        self.query: StreamingQuery | None = None
        self.source.mkdir()

    def add(self, *batches: list[int]) -> None:
        """Adds a file a batch."""
        for batch in batches:
            number = len(list(self.source.iterdir()))
            text = "".join(json.dumps({"id": value}) + "\n" for value in batch)
            path = self.source / f"{number:03d}.json"
            path.write_text(text)
            # Spark takes the oldest first.
            os.utime(path, (1_700_000_000 + number,) * 2)

    def frame(self) -> DataFrame:
        """The rows as they stream in; a task fails for as long as a file says so."""
        fails = str(self.fails)

        def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if os.path.exists(fails) and any(value.as_py() == 5 for value in batch.column(0)):
                    raise ValueError("5 is not to be had today")
                yield batch

        read = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(self.source))
        return read.repartition(2).mapInArrow(pass_on, "id long").selectExpr("id", "id % 2 odd")

    def writer(self, **options: Any) -> DataStreamWriter:
        """The query, not yet started."""
        writer = self.frame().writeStream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        if self.how == "format":
            return writer.format("committer").option("partitionBy", "odd").options(**options)
        return writer.foreachBatch(foreach_batch(str(self.table), partition_by=["odd"], options=options))

    def start(self, **options: Any) -> StreamingQuery:
        """Starts the query."""
        writer = self.writer(**options)
        self.query = writer.start(str(self.table)) if self.how == "format" else writer.start()
        return self.query

    def run(self, **options: Any) -> None:
        """Runs until all is read."""
        self.start(**options).awaitTermination()

    def run_by(self, write: Callable[[DataFrame, int], None]) -> None:
        """The same by a function for each batch."""
        writer = self.frame().writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()

    def rows(self) -> list[int]:
        """All that a reader finds."""
        return sorted(row.id for row in self.spark.read.parquet(str(self.table)).collect())

    def job_ids(self, *batches: int) -> set[str]:
        """The ids of batches' jobs."""
        assert self.query is not None
        return {batch_job_id(self.query.id, batch) for batch in batches}

    def kept(self) -> set[str]:
        """Jobs of which anything stands; of each nothing but its outcome."""
        jobs = set(jobs_at(self.table))
        for job in jobs:
            assert {path.name for path in in_job(self.table, job).iterdir()} == KEPT
        return jobs

    def forget_that_it_committed(self, batch: int) -> None:
        """Takes back what Spark notes after a batch committed, as if its driver had died right before."""
        for path in (self.checkpoint / "commits").glob(f"*{batch}*"):
            path.unlink()

    def files(self) -> dict[str, int]:
        """Every data file, and when it was written."""
        return {str(path): path.stat().st_mtime_ns for path in data_files(self.table)}


@pytest.fixture(params=["format", "foreach_batch"])
def stream(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Stream:
    return Stream(spark, tmp_path, request.param)


def test_batches_arrive_once_and_the_last_two_keep_their_outcomes(stream: Stream) -> None:
    stream.add([1, 2], [3, 4], [5, 6, 7])
    stream.run()
    assert stream.rows() == [1, 2, 3, 4, 5, 6, 7]
    assert stream.kept() == stream.job_ids(1, 2)
    assert {path.parent.name for path in data_files(stream.table)} == {"odd=0", "odd=1"}


def test_a_query_started_again_goes_on(stream: Stream) -> None:
    stream.add([1, 2], [3])
    stream.run()
    stream.run()  # nothing new
    stream.add([4], [5])
    stream.run()
    assert stream.rows() == [1, 2, 3, 4, 5]
    assert stream.kept() == stream.job_ids(2, 3)


def test_a_batch_that_is_repeated_writes_and_deletes_nothing(stream: Stream) -> None:
    stream.add([1, 2], [3, 4])
    stream.run()
    before, kept = stream.files(), stream.kept()
    for _again in range(2):
        stream.forget_that_it_committed(1)
        stream.run()
        assert stream.files() == before
        assert stream.kept() == kept
    stream.add([5])
    stream.run()
    assert stream.rows() == [1, 2, 3, 4, 5]


def test_an_operator_who_follows_the_command_line_breaks_no_stream(
    stream: Stream, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `committer jobs` advises is done, and a cleanup tried of all jobs by age, and of each; then the last batch is
    repeated.
    """
    stream.add([1, 2], [3, 4])
    stream.run()
    report = asyncio.run(committer.cleanup(stream.table, older_than=0))
    assert (report.removed, set(report.kept)) == ([], stream.job_ids(0, 1))
    assert command_line(["jobs", str(stream.table), "--output", "json"]) == 0
    for row in json.loads(capsys.readouterr().out)["jobs"]:
        assert (row["kept"], row["next_step"]) == (True, "")
        assert command_line(["cleanup", str(stream.table), "--job", row["job_id"], "--yes"]) == 1
    stream.forget_that_it_committed(1)
    stream.run()
    assert stream.rows() == [1, 2, 3, 4]
    stream.add([5])
    stream.run()
    assert stream.rows() == [1, 2, 3, 4, 5]


def test_a_batch_that_fails_is_repeated_whole(stream: Stream) -> None:
    stream.add([1, 2], [3, 4, 5, 6], [7])
    stream.fails.touch()
    with pytest.raises(StreamingQueryException, match="not to be had today"):
        stream.run()
    assert stream.rows() == [1, 2]
    stream.fails.unlink()
    stream.run()
    assert stream.rows() == [1, 2, 3, 4, 5, 6, 7]
    assert stream.kept() == stream.job_ids(1, 2)


def test_a_commit_that_is_refused_is_repeated_when_the_cause_is_gone(stream: Stream) -> None:
    stream.add([1])
    (stream.table / "odd=1").parent.mkdir()
    (stream.table / "odd=1").write_text("a file where a directory goes")
    with pytest.raises(StreamingQueryException, match="odd=1"):
        stream.run()
    assert everything(stream.table) == {"odd=1"}
    (stream.table / "odd=1").unlink()
    stream.run()
    assert stream.rows() == [1]


def test_two_queries_write_into_one_table(spark: SparkSession, tmp_path: Path) -> None:
    streams = [Stream(spark, tmp_path, how, how) for how in ("format", "foreach_batch")]
    for number, stream in enumerate(streams):
        stream.add(*([number * 10 + value] for value in range(3)))
    for query in [stream.start() for stream in streams]:
        query.awaitTermination()
    assert streams[0].rows() == [0, 1, 2, 10, 11, 12]
    assert streams[0].kept() == streams[0].job_ids(1, 2) | streams[1].job_ids(1, 2)
    for stream in streams:
        stream.forget_that_it_committed(2)
        stream.run()
    assert streams[0].rows() == [0, 1, 2, 10, 11, 12]


# -- what one kind of stream has of its own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("complete", {}, 'output mode "complete" is not supported'),
        ("update", {}, "does not support Update mode"),
        ("append", {"job_id": "mine"}, "job_id is not for streams"),
        ("append", {"partition_by": "odd"}, "did you mean 'partitionBy'?"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    spark: SparkSession, tmp_path: Path, mode: str, options: dict[str, str], text: str
) -> None:
    stream = Stream(spark, tmp_path, "format")
    stream.add([1])
    frame = stream.frame().groupBy("odd").count() if mode != "append" else stream.frame()
    writer = frame.writeStream.format("committer").options(**options).outputMode(mode).trigger(availableNow=True)
    with pytest.raises((AnalysisException, StreamingQueryException)) as raised:
        writer.option("checkpointLocation", str(stream.checkpoint)).start(str(stream.table)).awaitTermination()
    assert text in str(raised.value)
    assert not stream.table.exists()


def test_several_writes_of_one_batch_are_told_apart_by_name(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "foreach_batch")
    stream.add([1, 2], [3])
    odd, even = (
        foreach_batch(str(stream.table), sink=name, options={"compression": "zstd"}) for name in ("odd", "even")
    )
    seen: list[int] = []

    def write_both(df: DataFrame, batch_id: int) -> None:
        odd(df.where("odd = 1"), batch_id)
        even(df.where("odd = 0"), batch_id)
        seen.append(batch_id)

    stream.run_by(write_both)
    before = stream.files()
    assert stream.rows() == [1, 2, 3]
    assert all(".zstd." in path for path in before)
    stream.forget_that_it_committed(1)
    stream.run_by(write_both)
    assert seen == [0, 1, 1]
    assert stream.files() == before


@pytest.mark.parametrize("made", ["once", "twice", "for each batch"])
def test_a_second_write_of_a_batch_without_a_name_is_refused(spark: SparkSession, tmp_path: Path, made: str) -> None:
    """It would be taken for a repetition of the first, and its rows would be lost in silence."""
    stream = Stream(spark, tmp_path, "foreach_batch")
    stream.add([1, 2], [3, 4])
    table = str(stream.table)
    first = foreach_batch(table)
    second = first if made == "once" else foreach_batch(table)

    def write_both(df: DataFrame, batch_id: int) -> None:
        writers = [foreach_batch(table), foreach_batch(table)] if made == "for each batch" else [first, second]
        for number, write in enumerate(writers):
            write(df.where(f"odd = {number}"), batch_id)

    # Also when it is started again: the first write is a repetition then, and the second none of it.
    for _start in range(2):
        with pytest.raises(StreamingQueryException, match='sink="'):
            stream.run_by(write_both)
        assert stream.rows() == [2]

    named = foreach_batch(table, sink="odd")

    def as_told(df: DataFrame, batch_id: int) -> None:
        first(df.where("odd = 0"), batch_id)
        named(df.where("odd = 1"), batch_id)

    stream.run_by(as_told)
    assert stream.rows() == [1, 2, 3, 4]


def test_a_function_that_tries_a_write_again_repeats_it(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "foreach_batch")
    stream.add([1, 2], [3])
    write = foreach_batch(str(stream.table))

    def twice(df: DataFrame, batch_id: int) -> None:
        for _try in range(2):
            write(df.where("id > 0").selectExpr("id"), batch_id)

    stream.run_by(twice)
    assert stream.rows() == [1, 2, 3]


def test_a_batch_by_hand_needs_the_name_of_its_query(spark: SparkSession, tmp_path: Path) -> None:
    write = foreach_batch(str(tmp_path / "t"))
    with pytest.raises(ConfigurationError, match='query="'):
        write(spark.range(3), 0)
    assert not (tmp_path / "t").exists()
    named = pickle.loads(pickle.dumps(foreach_batch(str(tmp_path / "t"), query="orders")))
    for _again in range(2):
        named(spark.range(3), 0)
    foreach_batch(str(tmp_path / "t"), query="returns")(spark.range(3), 0)
    assert spark.read.parquet(str(tmp_path / "t")).count() == 6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"mode": "ignore"}, "'ignore' cannot be used for a stream"),
        ({"options": {"job_id": "mine"}}, "job_id is not for streams"),
        ({"options": {"compresion": "zstd"}}, "did you mean 'compression'"),
        ({"query": ""}, "query cannot be ''"),
    ],
)
def test_a_function_for_batches_is_checked_when_it_is_made(arguments: dict[str, Any], text: str) -> None:
    make: Callable[..., object] = foreach_batch
    with pytest.raises(ConfigurationError, match=text):
        make(**{"uri": "/data/t", **arguments})


def test_the_maker_of_functions_for_batches_is_none_itself() -> None:
    """As in writeStream.foreachBatch(foreach_batch)."""
    called_by_spark: Callable[..., object] = foreach_batch
    with pytest.raises(ConfigurationError, match="makes the function that Spark calls") as caught:
        called_by_spark(object(), 0)
    assert '.foreachBatch(foreach_batch("' in caught.value.next_step


def test_a_new_checkpoint_is_a_new_query(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "format")
    stream.add([1])
    stream.run()
    shutil.rmtree(stream.checkpoint)
    stream.run()
    assert stream.rows() == [1, 1]
