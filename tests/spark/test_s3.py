"""The data source on a server that speaks S3, by the committers that only their names ask for."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import committer.spark
import committer.sync

from .protocol_places import Place, place_of
from .test_buckets import no_upload_waits, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if importlib.util.find_spec("boto3") is None:
    pytest.skip("boto3 is not installed, which looks at the bucket", allow_module_level=True)

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place_of("s3a", tmp_path_factory.mktemp("s3a"), client=False) as place:
        yield place


@pytest.fixture
def options(place: Place, tmp_path: Path) -> dict[str, str]:
    return options_of(place, tmp_path)


@pytest.mark.parametrize("name", ["directory", "partitioned"])
def test_a_staging_committer_replaces_what_the_mode_says(
    name: str, spark: SparkSession, place: Place, options: dict[str, str]
) -> None:
    """A dynamic overwrite takes the partitions that are written, a static one all, whichever of the two commits it."""
    uri = place.uri(f"{name}/table").replace("s3a://", "s3://")
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)

    def write(rows: Any, **more: Any) -> set[str]:
        report = committer.spark.write(rows, uri, partition_by=["p"], committer=name, storage_options=options, **more)
        assert report.committer == name
        assert no_upload_waits(place)
        return place.read(f"{name}/table").keys() - {"_SUCCESS"}

    first = write(frame)
    dynamic = write(frame.where("p = 1"), mode="overwrite", partition_overwrite_mode="dynamic")
    assert {key for key in first if not key.startswith("p=1/")} == {
        key for key in dynamic if not key.startswith("p=1/")
    }
    assert not {key for key in first & dynamic if key.startswith("p=1/")}
    static = write(frame.where("p = 2"), mode="overwrite", partition_overwrite_mode="static")
    assert {key.partition("/")[0] for key in static} == {"p=2"}
    assert not static & dynamic


def test_the_data_source_writes_objects_that_hold_their_attempt_and_winners_are_read(
    spark: SparkSession, place: Place, options: dict[str, str], tmp_path: Path
) -> None:
    """`stocator` by its name. An overwrite is refused, since tasks write among the old files; Spark reads by URIs."""
    from pyspark.errors import PySparkException

    uri = place.uri("stocator/table")
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)
    writer = frame.write.format("committer").options(**{f"storage.{name}": text for name, text in options.items()})
    writer = writer.option("committer", "stocator").option("format", "parquet").option("partitionBy", "p")
    writer.mode("append").save(uri)
    winners = committer.sync.list_winners(uri, storage_options=options)
    assert (winners.committer, len(winners.files)) == ("stocator", 6)
    assert all(f"s3a://{path}".startswith(f"{uri}/p=") and "-attempt_" in path for path in winners.paths)
    assert all(text.startswith("s3a://") for text in winners.uris)
    before = place.read("stocator").keys()
    with pytest.raises(PySparkException, match="conflict_mode='replace'"):
        writer.option("partitionOverwriteMode", "dynamic").mode("overwrite").save(uri)
    assert place.read("stocator").keys() == before

    table = tmp_path / "read"
    committer.spark.write(frame, table, partition_by=["p"])
    read = committer.sync.list_winners(table)
    rows = spark.read.option("basePath", str(table)).parquet(*read.uris)
    assert sorted(row.id for row in rows.collect()) == list(range(30))
    assert "p" in rows.columns
