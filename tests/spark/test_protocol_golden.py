"""What Spark's own writers leave through the commit protocol is what they leave through Spark's, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import committer.spark

from .conftest import SPARKS_OWN
from .driving import metrics_of_latest

KEY = "spark.sql.sources.commitProtocolClass"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Write = Callable[[DataFrame, str], object]


def contents(root: Path) -> dict[str, bytes]:
    """Every file of a destination but `_SUCCESS`, with the job's id masked in its name."""
    files = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    found = {_UUID.sub("<uuid>", str(path.relative_to(root))): path.read_bytes() for path in files}
    assert len(found) == len(files)
    # Spark's own marker is empty, this engine's is a report.
    assert found.pop("_SUCCESS") is not None
    return found


CASES: dict[str, tuple[str, Write]] = {
    "parquet": ("range(20) where id >= 0", lambda df, out: df.write.parquet(out)),
    "partitioned": ("range(20)", lambda df, out: df.selectExpr("id", "id % 3 p", "id % 2 `q r`").write.partitionBy("p", "q r").parquet(out)),
    "odd values": ("range(4)", lambda df, out: df.selectExpr("id", "element_at(array('a b', 'c/d:e', 'é%41', null), cast(id + 1 as int)) p").write.partitionBy("p").parquet(out)),
    "orc": ("range(20)", lambda df, out: df.write.partitionBy().orc(out)),
    "csv": ("range(20)", lambda df, out: df.write.option("header", True).csv(out, compression="gzip")),
    "json": ("range(20)", lambda df, out: df.selectExpr("id", "id % 3 p").write.partitionBy("p").json(out)),
    "text": ("range(20)", lambda df, out: df.selectExpr("cast(id as string)").write.text(out)),
    "short files": ("range(20)", lambda df, out: df.write.option("maxRecordsPerFile", 3).parquet(out)),
    "short partitioned files": ("range(20)", lambda df, out: df.selectExpr("id", "id % 3 p").write.option("maxRecordsPerFile", 2).partitionBy("p").parquet(out)),
    "no rows": ("range(0)", lambda df, out: df.write.parquet(out)),
    "no rows of partitions": ("range(0)", lambda df, out: df.selectExpr("id", "id p").write.partitionBy("p").parquet(out)),
    "some tasks without rows": ("range(20) where id < 3", lambda df, out: df.write.parquet(out)),
    "orc of Hive's form without rows": ("range(0)", lambda df, out: df.write.orc(out)),
    "types beside Python": ("range(2)", lambda df, out: df.selectExpr("id", "make_ym_interval(1, id) m", "parse_json('{\"a\":1}') v").write.parquet(out)),
}  # fmt: skip


def test_files_names_and_metrics_are_sparks(committing: SparkSession, tmp_path: Path) -> None:
    spark = committing
    ours = spark.conf.get(KEY)
    wrong = []
    for number, (case, (rows, write)) in enumerate(CASES.items()):
        df = spark.sql(f"select * from {rows}").repartition(3, "id") if rows != "range(20)" else spark.range(20)
        found = []
        for name, protocol in ("sparks", SPARKS_OWN), ("ours", ours):
            spark.conf.set(KEY, protocol)
            out = tmp_path / f"{number}-{name}"
            write(df, str(out))
            assert not (out / "_temporary").exists()
            found.append((contents(out), metrics_of_latest(spark)))
        if found[0] != found[1]:
            wrong.append((case, [(sorted(files), metrics) for files, metrics in found]))
        report = committer.spark.last_report()
        assert report is not None
        assert (report.files_committed, report.bytes_committed) == (
            len(found[1][0]),
            sum(map(len, found[1][0].values())),
        ), case
    assert not wrong
    assert found[1][1]


@pytest.mark.parametrize("way", ["saveAsTable", "create table as"])
def test_tables_and_buckets_are_sparks(committing: SparkSession, tmp_path: Path, way: str) -> None:
    spark = committing
    ours = spark.conf.get(KEY)
    found = []
    for name, protocol in ("sparks", SPARKS_OWN), ("ours", ours):
        spark.conf.set(KEY, protocol)
        out = tmp_path / name
        table = f"golden_{name}"
        spark.sql(f"drop table if exists {table}")
        if way == "saveAsTable":
            df = spark.range(20).selectExpr("id", "id % 2 p")
            writer = df.write.partitionBy("p").bucketBy(3, "id").sortBy("id").option("path", str(out))
            writer.saveAsTable(table)
            writer.mode("append").saveAsTable(table)
        else:
            spark.sql(
                f"create table {table} using orc partitioned by (p) location '{out}'"
                " as select id, id % 2 p from range(20)"
            )
            spark.sql(f"insert into {table} partition (p = 7) select id from range(3)")
        rows = sorted(map(tuple, spark.table(table).collect()))
        partitions = [row[0] for row in spark.sql(f"show partitions {table}").collect()]
        names = sorted(_UUID.sub("<uuid>", str(path.relative_to(out))) for path in out.rglob("part-*"))
        found.append((names, rows, partitions))
        spark.sql(f"drop table {table}")
    assert found[0] == found[1]
