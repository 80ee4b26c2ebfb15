"""The data source on a real NameNode: tasks in processes of Spark's write, and its driver commits."""

from __future__ import annotations

import getpass
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import committer.spark
from committer import sync
from committer.spark import configure
from committer.sync import TaskAttempt

from .conftest import PROTOCOL_KEY, SPARKS_OWN
from .protocol_places import Place, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of("hdfs", tmp_path_factory.mktemp("hdfs")) as place:
        yield place


def ids_of(place: Place, table: str) -> dict[str, list[int]]:
    """Sorted ids of each directory's files; nothing but the table is there."""
    import pyarrow.parquet as pq

    found: dict[str, list[int]] = {}
    for name, data in place.read(table).items():
        directory, _, last = name.rpartition("/")
        if last != "_SUCCESS":
            found.setdefault(directory, []).extend(pq.read_table(io.BytesIO(data)).column("id").to_pylist())
    return {directory: sorted(ids) for directory, ids in found.items()}


def test_a_write_an_append_and_an_overwrite(spark: SparkSession, name_node: Place) -> None:
    uri = f"{name_node.root}/source/table"
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)
    report = committer.spark.write(frame, uri, partition_by=["p"])
    assert (report.committer, report.files_committed) == ("manifest", 6)
    every = {f"p={rest}": list(range(rest, 30, 3)) for rest in range(3)}
    assert ids_of(name_node, "source/table") == every

    frame.where("id < 3").write.format("committer").option("partitionBy", "p").mode("append").save(uri)
    assert ids_of(name_node, "source/table") == {name: sorted([*ids, ids[0]]) for name, ids in every.items()}

    replaced = committer.spark.write(
        frame.where("p = 1"), uri, partition_by=["p"], mode="overwrite", partition_overwrite_mode="dynamic"
    )
    assert replaced.success
    assert ids_of(name_node, "source/table")["p=1"] == every["p=1"]
    assert sync.validate(uri).ok
    assert not [name for name in name_node.read("source/table") if "_temporary" in name]


def test_a_path_without_scheme_goes_where_sparks_own_writers_go(
    spark: SparkSession, name_node: Place, tmp_path: Path
) -> None:
    """The default file system is the cluster, as on every real one."""
    frame = spark.range(4)
    name = f"no-scheme-{tmp_path.name}"
    spark.conf.set("fs.defaultFS", name_node.root)
    try:
        configure(spark)
        frame.write.parquet(f"/{name}/by-spark")
        report = committer.spark.write(frame, f"/{name}/write", writer="python")
        assert report.files_committed
        committer.spark.write(frame, f"{name}-relative/write", writer="python")
        frame.write.format("committer").mode("append").save(f"/{name}/format")
        committer.spark.foreach_partition(frame, f"/{name}/each", write_number)
        stream = spark.readStream.schema("id long").parquet(f"/{name}/by-spark")
        for number, writer in enumerate(
            (
                stream.writeStream.format("committer").option("path", f"/{name}/stream"),
                stream.writeStream.foreachBatch(committer.spark.foreach_batch(f"/{name}/batches")),
            )
        ):
            query = writer.option("checkpointLocation", f"{tmp_path.as_uri()}/{number}").trigger(availableNow=True)
            query.start().awaitTermination()
    finally:
        spark.conf.unset("fs.defaultFS")
        configure(spark)
        spark.conf.set(PROTOCOL_KEY, SPARKS_OWN)
    for place in "by-spark", "write", "format", "stream", "batches":
        assert spark.read.parquet(f"{name_node.root}/{name}/{place}").count() == 4, place
    assert len(name_node.read(f"{name}/each")) == frame.rdd.getNumPartitions() + 1
    assert not Path(f"/{name}").exists()
    home = f"user/{getpass.getuser()}/{name}-relative/write"
    assert sum(len(ids) for ids in ids_of(name_node, home).values()) == 4


def write_number(rows: Iterator[object], task: TaskAttempt) -> None:
    with task.open(f"part-{task.task}") as file:
        file.write(b"%d" % len(list(rows)))


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, name_node: Place) -> None:
    uri = f"{name_node.root}/failed/table"
    frame = spark.range(20).selectExpr("id", "if(id = 13, raise_error('no'), id % 2) AS p")
    with pytest.raises(Exception, match="no"):
        committer.spark.write(frame, uri, partition_by=["p"])
    assert ids_of(name_node, "failed/table") == {}
    assert sync.list_jobs(uri) == []
