"""The data source on a real NameNode: tasks in processes of Spark's write, and its driver commits."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import committer.spark
from committer import sync

from .protocol_places import Place, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A NameNode of its own.
pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.full]


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


def test_a_write_that_fails_leaves_nothing(spark: SparkSession, name_node: Place) -> None:
    uri = f"{name_node.root}/failed/table"
    frame = spark.range(20).selectExpr("id", "if(id = 13, raise_error('no'), id % 2) AS p")
    with pytest.raises(Exception, match="no"):
        committer.spark.write(frame, uri, partition_by=["p"])
    assert ids_of(name_node, "failed/table") == {}
    assert sync.list_jobs(uri) == []
