"""The data source on a server that speaks S3, by the committers that only their names ask for."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import committer.spark
import committer.sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3.servers import Server

if importlib.util.find_spec("boto3") is None:
    pytest.skip("boto3 is not installed, which looks at the bucket", allow_module_level=True)

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from tests.s3.servers import seaweedfs

    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def options(server: Server, tmp_path: Path) -> dict[str, str]:
    """Storage options that every process of Spark's resolves for itself."""
    from tests.s3.servers import KEY, KEY_ID

    given = {
        "endpoint_url": server.url,
        "region": "us-east-1",
        "access_key_id": KEY_ID,
        "secret_access_key": KEY,
    }
    for name, text in given.items():
        (tmp_path / name).write_text(text)
    return {name: f"file:{tmp_path / name}" for name in given}


def keys(client: Any, bucket: str) -> set[str]:
    return {entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", ())}


@pytest.mark.parametrize("name", ["directory", "partitioned"])
def test_a_staging_committer_replaces_what_the_mode_says(
    name: str, spark: SparkSession, server: Server, options: dict[str, str]
) -> None:
    """A dynamic overwrite takes the partitions that are written, a static one all, whichever of the two commits it."""
    from tests.s3.servers import BUCKET

    uri = f"s3://{BUCKET}/{name}/table"
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)

    def write(rows: Any, **more: Any) -> set[str]:
        report = committer.spark.write(rows, uri, partition_by=["p"], committer=name, storage_options=options, **more)
        assert report.committer == name
        found = {
            key.removeprefix(f"{name}/table/") for key in keys(server.client, BUCKET) if key.startswith(f"{name}/")
        }
        assert "Uploads" not in server.client.list_multipart_uploads(Bucket=BUCKET)
        return found - {"_SUCCESS"}

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
    spark: SparkSession, server: Server, options: dict[str, str], tmp_path: Path
) -> None:
    """`stocator` by its name. An overwrite is refused, since tasks write among the old files; Spark reads by URIs."""
    from pyspark.errors import PySparkException

    from tests.s3.servers import BUCKET

    uri = f"s3a://{BUCKET}/stocator/table"
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)
    writer = frame.write.format("committer").options(**{f"storage.{name}": text for name, text in options.items()})
    writer = writer.option("committer", "stocator").option("format", "parquet").option("partitionBy", "p")
    writer.mode("append").save(uri)
    winners = committer.sync.list_winners(uri, storage_options=options)
    assert (winners.committer, len(winners.files)) == ("stocator", 6)
    assert all(path.startswith(f"{BUCKET}/stocator/table/p=") and "-attempt_" in path for path in winners.paths)
    assert all(text.startswith("s3a://") for text in winners.uris)
    before = keys(server.client, BUCKET)
    with pytest.raises(PySparkException, match="conflict_mode='replace'"):
        writer.option("partitionOverwriteMode", "dynamic").mode("overwrite").save(uri)
    assert keys(server.client, BUCKET) == before

    table = tmp_path / "read"
    committer.spark.write(frame, table, partition_by=["p"])
    read = committer.sync.list_winners(table)
    rows = spark.read.option("basePath", str(table)).parquet(*read.uris)
    assert sorted(row.id for row in rows.collect()) == list(range(30))
    assert "p" in rows.columns
