"""What Spark writes in a session of `configure` by protocols of its own, and statements that name a directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import committer.spark
from committer import sync

from .trees import data_files, everything, rows_by_directory


def test_streams_and_rdds_keep_their_own_protocols(committing: SparkSession, tmp_path: Path) -> None:
    spark = committing
    spark.range(2).write.parquet(str(tmp_path / "source"))
    before = committer.spark.last_report()
    rows = spark.readStream.schema("id long").parquet(str(tmp_path / "source"))
    stream = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    stream.format("parquet").start(str(tmp_path / "stream")).awaitTermination()
    log = (tmp_path / "stream" / "_spark_metadata" / "0").read_text().splitlines()[1:]
    assert sorted(Path(json.loads(line)["path"]).name for line in log) == sorted(
        path.name for path in data_files(tmp_path / "stream")
    )
    assert spark.read.parquet(str(tmp_path / "stream")).count() == 2
    spark.sparkContext.parallelize(["one", "two"], 2).saveAsTextFile(str(tmp_path / "text"))
    assert sorted(row.value for row in spark.read.text(str(tmp_path / "text")).collect()) == ["one", "two"]
    assert committer.spark.last_report() is before


@pytest.mark.parametrize("name", ["out", "out put%20"])
def test_insert_overwrite_directory(committing: SparkSession, tmp_path: Path, name: str) -> None:
    spark, out = committing, tmp_path / name
    spark.range(0, 6, 1, 2).write.parquet(str(out))
    with pytest.raises(Exception, match="boom"):
        spark.sql(
            f"insert overwrite directory '{out}' using parquet"
            " select if(id = 5, raise_error('boom'), id) id from range(0, 6, 1, 2)"
        )
    assert rows_by_directory(out, "id") == {".": list(range(6))}
    spark.sql(f"insert overwrite directory '{out}' using parquet select id + 10 id from parquet.`{out}`")
    assert rows_by_directory(out, "id") == {".": list(range(10, 16))}
    assert sync.validate(out).ok


def test_a_query_that_makes_a_table_and_fails_leaves_none(committing: SparkSession, tmp_path: Path) -> None:
    spark, out = committing, tmp_path / "ctas"
    made = f"create table ctas using parquet partitioned by (p) location '{out}' as select"
    with pytest.raises(Exception, match="boom"):
        # One task: beside it no other makes directories again while the job is aborted, in which Spark makes no table.
        spark.sql(f"{made} if(id = 5, raise_error('boom'), id) id, id % 2 p from range(0, 6, 1, 1)")
    assert not spark.catalog.tableExists("ctas")
    assert everything(out) == set()
    try:
        spark.sql(f"{made} id, id % 2 p from range(0, 6, 1, 2)")
        assert sorted(row.id for row in spark.table("ctas").collect()) == list(range(6))
        assert sorted(row.partition for row in spark.sql("show partitions ctas").collect()) == ["p=0", "p=1"]
        assert sync.validate(out).ok
    finally:
        spark.sql("drop table if exists ctas")
