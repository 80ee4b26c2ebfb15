"""What Spark's own writers replace through the commit protocol: only when all new data is there, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import committer
import committer.spark
from committer import sync
from committer.errors import ConfigurationError, UnsupportedError
from committer.spark.job_side import SetupRequest, refuse_other_release, set_up
from committer.spark.jvm import building

from .trees import everything, rows_by_directory

MODE = "spark.sql.sources.partitionOverwriteMode"


@pytest.fixture
def table(committing: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table of 12 rows in four partitions."""
    committing.sql("drop table if exists modes")
    committing.sql(
        f"create table modes (id bigint, p int, q int) using parquet partitioned by (p, q) location '{tmp_path / 't'}'"
    )
    committing.sql("insert into modes select id, id % 2, id % 4 div 2 from range(12)")
    yield "modes"
    committing.sql("drop table modes")


def rows(spark: SparkSession, path: object) -> int:
    return spark.read.parquet(str(path)).count()


def failing(spark: SparkSession, last: int = 11) -> DataFrame:
    """Rows the last of which cannot be computed, so that one task writes files and fails."""
    boom = F.when(F.col("id") == last, F.raise_error(F.lit("boom"))).otherwise(F.col("id"))
    return spark.range(last + 1).select(boom.cast("bigint").alias("id"), (F.col("id") % 2).alias("p"))


def test_static_overwrite_of_what_is_read(committing: SparkSession, tmp_path: Path) -> None:
    """Spark's own protocol deletes the input first, and then reads it."""
    spark, out = committing, tmp_path / "out put%20"
    spark.range(12).selectExpr("id", "id % 3 p").write.partitionBy("p").parquet(str(out))
    (out / "_notes").write_bytes(b"hidden names stay")
    again = spark.read.parquet(str(out)).where("p < 2").selectExpr("id + 100 id", "p")
    again.write.partitionBy("p").mode("overwrite").parquet(str(out))
    spark.catalog.clearCache()
    assert rows_by_directory(out, "id") == {"p=0": [100, 103, 106, 109], "p=1": [101, 104, 107, 110]}
    assert {path for path in everything(out) if "part-" not in path} == {"p=0", "p=1", "_notes", "_SUCCESS"}
    report = committer.spark.last_report()
    assert report is not None
    assert report.job_id in next(out.rglob("part-*.parquet")).name
    assert sync.validate(str(out)).ok


def test_a_failing_write_leaves_what_was_there(committing: SparkSession, tmp_path: Path) -> None:
    spark, out = committing, tmp_path / "out"
    spark.range(12).selectExpr("id", "id % 2 p").write.partitionBy("p").parquet(str(out))
    before = everything(out)
    for mode in "append", "overwrite":
        for overwrite in "static", "dynamic":
            with pytest.raises(Exception, match="boom"):
                failing(spark).write.option("partitionOverwriteMode", overwrite).partitionBy("p").mode(mode).parquet(
                    str(out)
                )
            assert everything(out) == before
    assert rows(spark, out) == 12


def test_dynamic_overwrite_replaces_the_partitions_written(committing: SparkSession, tmp_path: Path) -> None:
    spark, out = committing, tmp_path / "out"
    spark.range(12).selectExpr("id", "id % 3 p").write.partitionBy("p").parquet(str(out))
    read = spark.read.parquet(str(out)).where("p = 1 and id < 5").selectExpr("id + 50 id", "p")
    read.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("p").parquet(str(out))
    assert rows_by_directory(out, "id") == {"p=0": [0, 3, 6, 9], "p=1": [51, 54], "p=2": [2, 5, 8, 11]}
    assert not (out / "_temporary").exists()


def test_error_and_ignore_are_sparks(committing: SparkSession, tmp_path: Path) -> None:
    spark, out = committing, tmp_path / "out"
    spark.range(3).write.parquet(str(out))
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        spark.range(5).write.parquet(str(out))
    spark.range(5).write.mode("ignore").parquet(str(out))
    assert rows(spark, out) == 3


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("insert overwrite {} partition (p = 1, q = 1) select 7L", {(0, 0): 3, (0, 1): 3, (1, 0): 3, (1, 1): 1}),
        ("insert overwrite {} partition (p = 1, q) select 7L, 5", {(0, 0): 3, (0, 1): 3, (1, 5): 1}),
        ("insert overwrite {} partition (p = 1, q) select 7L, 5 where false", {(0, 0): 3, (0, 1): 3}),
        ("insert overwrite {} partition (p = 8, q = 8) select 7L", {(0, 0): 3, (0, 1): 3, (1, 0): 3, (1, 1): 3, (8, 8): 1}),
        ("insert overwrite {} select 7L, 5, 5", {(5, 5): 1}),
        ("set " + MODE + "=dynamic; insert overwrite {} select 7L, 1, 1", {(0, 0): 3, (0, 1): 3, (1, 0): 3, (1, 1): 1}),
        ("set " + MODE + "=dynamic; insert overwrite {} partition (p = 1, q) select 7L, 1", {(0, 0): 3, (0, 1): 3, (1, 0): 3, (1, 1): 1}),
    ],
)  # fmt: skip
def test_insert_overwrite(
    committing: SparkSession, table: str, statement: str, left: dict[tuple[int, int], int]
) -> None:
    try:
        for one in statement.split("; "):
            committing.sql(one.format(table))
    finally:
        committing.conf.unset(MODE)
    counted = committing.table(table).groupBy("p", "q").count().collect()
    assert {(row.p, row.q): row["count"] for row in counted} == left
    shown = {row[0] for row in committing.sql(f"show partitions {table}").collect()}
    assert shown >= {f"p={p}/q={q}" for p, q in left}


def test_a_failing_insert_overwrite_leaves_the_table(committing: SparkSession, table: str) -> None:
    """Spark's own protocol leaves the partition empty."""
    failing(committing).createOrReplaceTempView("failing")
    for target in "", "partition (p = 1, q)", "partition (p = 1, q = 1)":
        columns = {0: "id, 1, 1", 1: "id, 1", 2: "id"}[target.count("=")]
        with pytest.raises(Exception, match="boom"):
            committing.sql(f"insert overwrite {table} {target} select {columns} from failing")
        assert committing.table(table).count() == 12


def test_a_partition_elsewhere_is_refused(committing: SparkSession, table: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    committing.sql(f"alter table {table} add partition (p = 9, q = 9) location '{elsewhere}'")
    with pytest.raises(
        Exception, match=r"has a location of its own, .*elsewhere.*spark\.hadoop\.committer\.absolute_roots"
    ):
        committing.sql(f"insert into {table} partition (p = 9, q = 9) select 1L")
    with pytest.raises(Exception, match=r"a partition with a location of its own, is to be replaced.*absolute_roots"):
        committing.sql(f"insert overwrite {table} partition (p = 9, q = 9) select 1L")
    assert committing.table(table).count() == 12
    assert os.listdir(elsewhere) == []


def test_a_partition_elsewhere_below_a_root(committing: SparkSession, table: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "roots" / "else where%20"
    elsewhere.mkdir(parents=True)
    committer.spark.configure(committing, config={"absolute_roots": (str(tmp_path / "roots"),)})
    committing.sql(f"alter table {table} add partition (p = 9, q = 9) location '{elsewhere}'")
    committing.sql(f"alter table {table} add partition (p = 8, q = 8) location '{tmp_path / 't' / 'inside'}'")
    committing.sql(f"insert into {table} select id, 9 - id % 2, 9 - id % 2 from range(6)")
    counted = committing.table(table).where("p > 7").groupBy("p").count().collect()
    assert {row.p: row["count"] for row in counted} == {8: 3, 9: 3}
    assert len(list(elsewhere.glob("part-*"))) == 2
    assert len(list((tmp_path / "t" / "inside").glob("part-*"))) == 2
    before = everything(tmp_path / "roots")
    failing(committing).createOrReplaceTempView("failing")
    with pytest.raises(Exception, match="boom"):
        committing.sql(f"insert into {table} partition (p = 9, q = 9) select id from failing")
    assert everything(tmp_path / "roots") == before
    try:
        committing.conf.set(MODE, "dynamic")
        committing.sql(f"insert overwrite {table} select 77L, 9, 9")
    finally:
        committing.conf.unset(MODE)
    assert [row.id for row in committing.table(table).where("p = 9").collect()] == [77]
    assert committing.table(table).count() == 16


def test_a_static_overwrite_of_partitions_elsewhere(committing: SparkSession, table: str, tmp_path: Path) -> None:
    """Old files stay until all new ones are there, of the table's directory and of the others alike."""
    roots = tmp_path / "roots"
    committing.conf.set("committer.absolute_roots", str(roots))
    try:
        for q in 8, 9:
            committing.sql(
                f"alter table {table} add partition (p = 9, q = {q}) location '{roots / f'else where%20{q}'}'"
            )
            committing.sql(f"insert into {table} partition (p = 9, q = {q}) select id from range(3)")
        before = everything(tmp_path)
        failing(committing).createOrReplaceTempView("failing")
        for target, columns in ("partition (p = 9, q = 9)", "id"), ("", "id, 9, 9"):
            with pytest.raises(Exception, match="boom"):
                committing.sql(f"insert overwrite {table} {target} select {columns} from failing")
        assert everything(tmp_path) == before
        committing.sql(f"insert overwrite {table} partition (p = 9, q = 9) select 77L")
        found = {(row.p, row.q): row["count"] for row in committing.table(table).groupBy("p", "q").count().collect()}
        assert found == {(0, 0): 3, (0, 1): 3, (1, 0): 3, (1, 1): 3, (9, 8): 3, (9, 9): 1}
        assert [row.id for row in committing.table(table).where("q = 9").collect()] == [77]
        committing.sql(f"insert overwrite {table} partition (p = 9, q) select 5L, 9")
        assert [row.id for row in committing.table(table).where("p = 9").collect()] == [5]
        committing.sql(f"insert overwrite {table} partition (p = 9, q = 9) select 1L where false")
        assert committing.table(table).where("p = 9").count() == 0
        committing.sql(f"insert into {table} values (1, 9, 8), (1, 9, 9)")
        committing.sql(f"insert overwrite {table} select 6L, 9, 9")
        assert [tuple(row) for row in committing.table(table).collect()] == [(6, 9, 9)]
        committing.sql(f"insert overwrite {table} partition (p = 9, q = 9) select 7L")
        assert [tuple(row) for row in committing.table(table).collect()] == [(7, 9, 9)]
    finally:
        committing.conf.unset("committer.absolute_roots")


def test_a_root_of_the_session_that_holds_a_destination_is_no_error(committing: SparkSession, tmp_path: Path) -> None:
    """A session names roots for all of its tables; a job goes by those beside its destination."""
    places = (tmp_path, tmp_path / "direct", tmp_path / "direct" / "below", "hdfs://another:8020/x")
    roots = tuple(str(place) for place in places)
    out = tmp_path / "direct"
    committing.conf.set("committer.absolute_roots", ",".join(roots))
    try:
        committing.range(3).write.mode("append").parquet(str(out))
    finally:
        committing.conf.unset("committer.absolute_roots")
    committer.spark.configure(committing, config={"absolute_roots": roots})
    frame = committing.range(3)
    frame.write.mode("append").parquet(str(out))
    frame.write.format("committer").mode("append").save(str(out))
    for writer in "spark", "python":
        committer.spark.write(frame, out, mode="append", writer=writer)
    committer.spark.foreach_partition(frame, out, lambda rows, task: None)
    assert rows(committing, out) == 15


def test_an_output_committer_that_has_no_effect_is_logged(
    committing: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ("spark.sql.parquet.output.committer.class", "spark.sql.sources.outputCommitterClass")
    name = "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter"
    frame = committing.range(3)
    frame.write.parquet(str(tmp_path / "before"))
    assert "has no effect" not in caplog.text
    for kind, key in zip(("parquet", "orc"), keys, strict=True):
        caplog.clear()
        committing.conf.set(key, name)
        try:
            frame.write.format(kind).save(str(tmp_path / kind))
            frame.write.format(kind).mode("append").save(str(tmp_path / kind))
        finally:
            committing.conf.unset(key)
        assert caplog.text.count(f"{key}={name} has no effect") == 1


def test_a_relative_path_is_the_one_of_the_jvm(
    committing: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer of the second data source API hands the path over as the user wrote it."""
    before = committing.conf.get("spark.sql.sources.useV1SourceList")
    name = f"build/{tmp_path.name}-relative"
    path = committing.sparkContext._jvm.java.io.File(name).getAbsolutePath()  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    try:
        committing.conf.set("spark.sql.sources.useV1SourceList", "")
        committing.range(3).write.parquet(path)
        committing.range(5).write.mode("append").parquet(name)
        committing.conf.set("spark.sql.sources.useV1SourceList", before)
        assert rows(committing, path) == 8
        assert os.listdir(tmp_path) == []
    finally:
        committing.conf.set("spark.sql.sources.useV1SourceList", before)
        shutil.rmtree(path, ignore_errors=True)


def test_summaries_of_other_writers_never_outlive_their_data(committing: SparkSession, tmp_path: Path) -> None:
    spark, out = committing, str(tmp_path / "summaries")
    spark.range(3).selectExpr("id old_column").write.parquet(out)

    def summarise(column: str) -> None:
        table = pa.table({column: pa.array([1])})
        for name in ("_metadata", "_common_metadata"):
            pq.write_metadata(table.schema, os.path.join(out, name))

    summarise("old_column")
    spark.range(3).selectExpr("id new_column").write.mode("overwrite").parquet(out)
    assert spark.read.parquet(out).columns == ["new_column"]
    summarise("new_column")
    spark.range(3).selectExpr("id new_column").write.mode("append").parquet(out)
    assert not {"_metadata", "_common_metadata"} & everything(Path(out))
    assert rows(spark, out) == 6


def test_the_log_of_sparks_file_sink(committing: SparkSession, tmp_path: Path) -> None:
    spark, out, source = committing, str(tmp_path / "sink"), str(tmp_path / "source")
    spark.range(3).write.parquet(source)
    stream = spark.readStream.schema("id bigint").parquet(source)
    stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start(out).awaitTermination()
    before = everything(Path(out))
    assert "_spark_metadata" in before
    with pytest.raises(Exception, match="_spark_metadata"):
        spark.range(5).write.mode("append").parquet(out)
    assert everything(Path(out)) == before
    assert rows(spark, out) == 3
    spark.range(5).write.mode("overwrite").parquet(out)
    assert rows(spark, out) == 5


def test_what_cannot_be_honoured_is_refused_before_a_task_runs(committing: SparkSession, tmp_path: Path) -> None:
    df = committing.range(3)
    with pytest.raises(Exception, match="durability='fsync' cannot be had"):
        df.write.option("committer.durability", "fsync").parquet(str(tmp_path / "a"))
    (tmp_path / "b" / "_delta_log").mkdir(parents=True)
    with pytest.raises(Exception, match="the destination is a table of Delta Lake"):
        df.write.mode("append").parquet(str(tmp_path / "b"))
    assert everything(tmp_path) <= {"a", "b", "b/_delta_log"}
    df.write.option("mapreduce.manifest.committer.summary.report.directory", str(tmp_path / "reports")).option(
        "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
    ).parquet(str(tmp_path / "c"))
    assert not (tmp_path / "c" / "_SUCCESS").exists()
    assert len(os.listdir(tmp_path / "reports")) == 1


def test_a_jar_of_another_release_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"is of release older, .*jar_path\(\)"):
        refuse_other_release("older")
    refuse_other_release(building.release())


async def test_the_job_side_refuses_what_it_does_not_serve() -> None:
    asked = SetupRequest("job-1", "wasb://data@acct/x", False, (), {}, "")
    with pytest.raises(UnsupportedError, match="its committer is block-list"):
        await set_up(asked)
    with pytest.raises(ConfigurationError, match="the root of a disk"):
        await set_up(SetupRequest("job-1", "file:/", False, ("file:/",), {}, ""))
