"""Writes that succeed: appends, retried tasks, no rows, every type; and what a user sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame, SparkSession

import committer
from committer.records.success import SuccessData

from .trees import data_files, everything, names_without_uuid, uuids

if TYPE_CHECKING:
    import pyarrow as pa


def save(frame: DataFrame, dest: Path, **options: str) -> None:
    frame.write.format("committer").options(**options).mode("append").save(str(dest))


def test_append_with_partitions(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 3).selectExpr("id v", "id % 4 a", "cast(id % 3 as string) b")
    save(frame, tmp_path / "t", partitionBy="a,b")
    first = set(data_files(tmp_path / "t"))
    save(frame.where("v >= 96"), tmp_path / "t", partitionBy="a,b")

    assert first < set(data_files(tmp_path / "t"))
    assert len(uuids(tmp_path / "t")) == 2
    assert {path.split("/")[0] for path in everything(tmp_path / "t")} == {*(f"a={a}" for a in range(4)), "_SUCCESS"}
    expected = sorted([(v, v % 4, v % 3) for v in [*range(100), *range(96, 100)]])
    assert sorted(map(tuple, spark.read.parquet(str(tmp_path / "t")).collect())) == expected


def test_append_without_partitions_and_the_report(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.range(0, 100, 1, 3), tmp_path / "t", job_id="nightly-1")
    assert names_without_uuid(tmp_path / "t") == [
        "_SUCCESS",
        *(f"part-{task:05d}-nightly-1-c000.snappy.parquet" for task in range(3)),
    ]
    assert spark.read.parquet(str(tmp_path / "t")).count() == 100
    report = asyncio.run(committer.load_record(tmp_path / "t" / "_SUCCESS"))
    assert isinstance(report, SuccessData)
    assert report.jobId == "nightly-1"
    assert len(report.filenames) == 3
    assert report.statistics().counters["committer_files_committed"] == 3


def test_small_batches_become_one_row_group(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    save(spark.range(0, 50_000, 1, 1), tmp_path / "t")
    (path,) = data_files(tmp_path / "t")
    assert pq.ParquetFile(path).num_row_groups == 1


@pytest.mark.parametrize("partition_by", ["", "v"])
@pytest.mark.parametrize("kind", ["no partition", "every partition empty", "first empty", "last empty"])
def test_no_rows(spark: SparkSession, tmp_path: Path, kind: str, partition_by: str) -> None:
    if kind == "no partition":
        frame = spark.createDataFrame(spark.sparkContext.emptyRDD(), "id long, v int")
    else:
        kept = {"every partition empty": "id < 0", "first empty": "id >= 4", "last empty": "id < 4"}[kind]
        frame = spark.range(0, 12, 1, 3).where(kept).selectExpr("id", "cast(id % 2 as int) v")
    save(frame, tmp_path / "ours", partitionBy=partition_by)
    columns = [partition_by] if partition_by else []
    frame.write.partitionBy(*columns).parquet(str(tmp_path / "spark"))
    assert names_without_uuid(tmp_path / "ours") == names_without_uuid(tmp_path / "spark")
    if data_files(tmp_path / "ours"):
        assert spark.read.parquet(str(tmp_path / "ours")).schema == spark.read.parquet(str(tmp_path / "spark")).schema


@pytest.mark.parametrize("death", ["raises", "exits"])
def test_only_the_winning_attempt_is_there(spark: SparkSession, tmp_path: Path, death: str) -> None:
    def rows_of_the_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        for batch in batches:
            column = pa.array([attempt] * batch.num_rows, pa.int32())
            yield pa.RecordBatch.from_arrays([batch.column(0), column], names=["id", "attempt"])
        if context.partitionId() == 1 and attempt == 0:
            if death == "exits":
                os._exit(7)
            raise ValueError("the attempt fails after all of its rows")

    # Batches of two rows: the failing attempts have written some by the time they fail.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    try:
        frame = spark.range(0, 30, 1, 3).mapInArrow(rows_of_the_attempt, "id long, attempt int")
        save(frame, tmp_path / "t", partitionBy="attempt")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    rows = sorted(map(tuple, spark.read.parquet(str(tmp_path / "t")).collect()))
    # A machine that is too busy to start a worker in time fails an attempt now and then.
    assert [row for row, _ in rows] == list(range(30))
    attempts = [{attempt for row, attempt in rows if row // 10 == task} for task in range(3)]
    assert [len(winners) for winners in attempts] == [1, 1, 1]
    assert 0 not in attempts[1]
    assert "_temporary" not in everything(tmp_path / "t")


def test_spark_finds_the_data_source_by_itself(spark: SparkSession) -> None:
    import pyspark_committer
    from committer.spark import CommitterDataSource

    assert pyspark_committer.DefaultSource is CommitterDataSource
    assert CommitterDataSource.name() == "committer"
