"""A destination whose name holds what URIs escape is one and the same to every way of writing with Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from committer import StorePath, sync
from committer.errors import InvalidPathError
from committer.paths import Destination
from committer.spark import foreach_batch, foreach_partition, task_attempt, write
from committer.spark.options import path_option

NAMES = ["a b", "a%20b", "100%", "x#y?z=1&ü名+~"]
FORMS: dict[str, Callable[[Path], Destination]] = {
    "text": str,
    "path": Path,
    "store path": StorePath.of,
    "file URI": lambda path: f"file://{path}",
}


def by_write(df: DataFrame, dest: Destination, there: Path) -> None:
    assert write(df, dest, mode="append").files_committed == 1
    assert write(df, dest, mode="ignore").job_id == ""


def by_data_source(df: DataFrame, dest: Destination, there: Path) -> None:
    df.write.format("committer").mode("append").save(dest if isinstance(dest, str) else str(StorePath.of(dest)))


def by_one_s_own_writer(df: DataFrame, dest: Destination, there: Path) -> None:
    def write_fn(rows: Iterator[Row], task: sync.TaskAttempt) -> None:
        with task.open(f"part-{task.task}.txt") as file:
            file.write(b"".join(b"%d" % row.id for row in rows))

    assert foreach_partition(df, dest, write_fn).files_committed == 1


def by_task_attempt(df: DataFrame, dest: Destination, there: Path) -> None:
    with sync.open_job(dest) as job:
        spec = job.spec

        def callback(rows: Iterator[Row]) -> None:
            with task_attempt(spec) as task, task.open(f"part-{task.task}.txt") as file:
                file.write(b"".join(b"%d" % row.id for row in rows))

        df.foreachPartition(callback)
        job.commit(tasks=1)


def by_batches(df: DataFrame, dest: Destination, there: Path) -> None:
    sink = foreach_batch(dest, query="query")
    for number in range(3):
        sink(df, number)
    sink(df, 2)


def by_stream(df: DataFrame, dest: Destination, there: Path) -> None:
    source, checkpoint = there.parent.parent / "source", there.parent.parent / "checkpoint"
    df.write.json(str(source))
    stream = df.sparkSession.readStream.schema("id bigint").json(str(source))
    writer = stream.writeStream.format("committer").option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True)
    writer.start(dest if isinstance(dest, str) else str(StorePath.of(dest))).awaitTermination()


WAYS = [by_write, by_data_source, by_one_s_own_writer, by_task_attempt, by_batches, by_stream]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", [by_one_s_own_writer, by_write])
def test_every_form(
    spark: SparkSession, tmp_path: Path, way: Callable[[DataFrame, Destination, Path], None], form: str, name: str
) -> None:
    _check(spark, tmp_path / "beside" / name, way, FORMS[form])


@pytest.mark.parametrize("form", ["store path", "file URI"])
@pytest.mark.parametrize("way", [way for way in WAYS if way not in (by_one_s_own_writer, by_write)])
def test_every_way(
    spark: SparkSession, tmp_path: Path, way: Callable[[DataFrame, Destination, Path], None], form: str
) -> None:
    _check(spark, tmp_path / "beside" / "a b%20c#d?e=ü", way, FORMS[form])


def _check(
    spark: SparkSession,
    there: Path,
    way: Callable[[DataFrame, Destination, Path], None],
    form: Callable[[Path], Destination],
) -> None:
    way(spark.range(0, 3, 1, 1), form(there), there)
    assert os.listdir(there.parent) == [there.name]
    assert (there / "_SUCCESS").exists()
    assert sync.validate(there).ok


def test_a_path_object_with_a_uri_is_refused() -> None:
    with pytest.raises(InvalidPathError, match="cannot hold a URI"):
        path_option(Path("s3://bucket/table"))
    assert path_option(Path("relative")) == "relative"
