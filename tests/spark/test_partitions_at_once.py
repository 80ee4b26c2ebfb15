"""Spark jobs that write different partitions of one table commit at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

JOBS = 18


def test_jobs_of_different_partitions_commit_at_once(committing: SparkSession, tmp_path: Path) -> None:
    """Every second one appends to its day, the others replace theirs dynamically."""
    table = str(tmp_path / "table")

    def write(day: int, text: str, mode: str) -> None:
        rows = committing.range(3).select(F.lit(text).alias("text"), F.lit(day).alias("day"))
        how = rows.write.mode(mode).option("partitionOverwriteMode", "dynamic").partitionBy("day")
        how.parquet(table)

    def run(day: int) -> None:
        write(day, "new", "append" if day % 2 else "overwrite")

    old = committing.range(JOBS).select(F.lit("old").alias("text"), F.col("id").cast("int").alias("day"))
    old.write.partitionBy("day").parquet(table)
    with ThreadPoolExecutor(JOBS) as threads:
        list(threads.map(run, range(JOBS)))
    rows = committing.read.parquet(table).groupBy("day", "text").count().collect()
    expected = {(day, "new"): 3 for day in range(JOBS)} | {(day, "old"): 1 for day in range(1, JOBS, 2)}
    assert {(row["day"], row["text"]): row["count"] for row in rows} == expected
    assert not (tmp_path / "table" / "_temporary").exists()
