"""What Spark brings to its driver stays small: 10,000 tasks pass with ``spark.driver.maxResultSize=100m``."""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import committer
import committer.spark
from committer.records.task_commit import TaskCommit
from committer.spark.spark_task import SMALL_MESSAGE, encoded

from .test_failures import run_task, writer_for
from .trees import data_files

A_TASK = 100 * 1024 * 1024 // 10_000
"""Bytes a task may bring, of 10,000 and 100 MiB."""


@contextmanager
def result_size(spark: SparkSession, limit: int) -> Iterator[None]:
    # Read anew for each stage, though Spark documents no way to set it while it runs.
    conf = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]
    before = conf.get("spark.driver.maxResultSize", "1g")
    conf.set("spark.driver.maxResultSize", str(limit))
    try:
        yield
    finally:
        conf.set("spark.driver.maxResultSize", before)


@pytest.mark.parametrize("files", [0, 1, 4, 8, 20, 500])
def test_a_message_is_small_whatever_the_task_wrote(tmp_path: Path, files: int) -> None:
    writer = writer_for(tmp_path / "t")

    async def run() -> TaskCommit:
        async with committer.open_task(writer.spec, task=0, attempt=0) as task:
            for number in range(files):
                async with task.open(f"a={number}/part-00000-{writer.spec.job_id}.c000.snappy.parquet"):
                    pass
        return task.task_commit

    data = encoded(asyncio.run(run()))
    assert len(data) <= SMALL_MESSAGE
    assert TaskCommit.decode(data).files == files
    writer.commit([type(run_task(writer_for(tmp_path / "other"), 0))(data)])
    assert len(list((tmp_path / "t").rglob("*.parquet"))) == files


def test_what_a_task_brings_is_a_part_of_what_ten_thousand_may(spark: SparkSession, tmp_path: Path) -> None:
    tasks = 24
    frame = spark.range(0, tasks * 4, 1, tasks).selectExpr("id v", "id % 4 a")

    def save(dest: Path) -> None:
        frame.write.format("committer").option("partitionBy", "a").mode("append").save(str(dest))

    with result_size(spark, tasks * A_TASK * 3 // 4):
        save(tmp_path / "t")
    assert len(data_files(tmp_path / "t")) == tasks * 4
    with result_size(spark, tasks * 512), pytest.raises(Exception, match="maxResultSize"):
        save(tmp_path / "u")  # the limit does bind


@pytest.mark.slow
def test_ten_thousand_tasks(spark: SparkSession, tmp_path: Path) -> None:
    # Ten minutes on two busy cores: more than other tests may take before they count as hanging.
    faulthandler.dump_traceback_later(3600, exit=True, file=sys.__stderr__)
    with result_size(spark, 100 * 1024 * 1024):
        report = committer.spark.write(spark.range(0, 10_000, 1, 10_000), tmp_path / "t")
    assert report.files_committed == report.statistics.counters["committer_rows_written"] == 10_000
