"""The data source on a server that speaks S3: attempts that fail or lose, overwriting, and names that say whose a file is."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import committer.spark
import committer.sync

from .cluster import Driver, standalone_cluster
from .store_driver import ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3.servers import Server

if importlib.util.find_spec("boto3") is None:
    pytest.skip("boto3 is not installed, which looks at the bucket", allow_module_level=True)

pytestmark = [pytest.mark.spark, pytest.mark.java]

SCRIPT = Path(__file__).with_name("store_driver.py")
DIRECTORIES = 4


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


def attempts_of_rows(server: Server, table: str) -> dict[int, int]:
    """The number of the attempt that brought each row, of a table that holds each row once and nothing but its files."""
    import pyarrow.parquet as pq

    from tests.s3.servers import BUCKET

    found: dict[int, int] = {}
    files = {key for key in keys(server.client, BUCKET) if key.startswith(f"{table}/")}
    assert {key.removeprefix(f"{table}/").partition("/")[0] for key in files} == {
        "_SUCCESS",
        *(f"d={number}" for number in range(DIRECTORIES)),
    }
    for key in files - {f"{table}/_SUCCESS"}:
        data = server.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        rows = pq.read_table(io.BytesIO(data), columns=["id", "attempt"])
        ids = rows.column("id").to_pylist()
        assert not found.keys() & ids
        found |= dict(zip(ids, rows.column("attempt").to_pylist(), strict=True))
    assert sorted(found) == list(range(3 * ROWS))
    marker = json.loads(server.client.get_object(Bucket=BUCKET, Key=f"{table}/_SUCCESS")["Body"].read())
    assert len(marker["filenames"]) == len(files) - 1
    assert "Uploads" not in server.client.list_multipart_uploads(Bucket=BUCKET)
    return found


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_write_commits_by_uploads_and_an_overwrite_replaces(
    scheme: str, spark: SparkSession, server: Server, options: dict[str, str]
) -> None:
    from tests.s3.servers import BUCKET

    uri = f"{scheme}://{BUCKET}/{scheme}/table"
    first, second = str(uuid4()), str(uuid4())
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)
    report = committer.spark.write(frame, uri, partition_by=["p"], storage_options=options, job_id=first)
    assert (report.committer, report.files_committed) == ("magic", 6)
    written = {key for key in keys(server.client, BUCKET) if key.startswith(f"{scheme}/")}
    marker = json.loads(server.client.get_object(Bucket=BUCKET, Key=f"{scheme}/table/_SUCCESS")["Body"].read())
    assert (marker["committer"], marker["jobId"]) == ("magic", first)
    files = written - {f"{scheme}/table/_SUCCESS"}
    assert len(files) == 6
    assert all(first in key.rpartition("/")[2] for key in files)

    ignored = committer.spark.write(frame, uri, mode="ignore", storage_options=options)
    assert (ignored.committer, ignored.job_id) == ("magic", "")

    report = committer.spark.write(
        frame.where("p = 1"),
        uri,
        partition_by=["p"],
        mode="overwrite",
        partition_overwrite_mode="dynamic",
        storage_options=options,
        job_id=second,
    )
    now = {key for key in keys(server.client, BUCKET) if key.startswith(f"{scheme}/")}
    new = {key for key in now if second in key}
    assert len(new) == report.files_committed
    assert now - new == {key for key in written if "/p=1/" not in key}
    assert "Uploads" not in server.client.list_multipart_uploads(Bucket=BUCKET)


@pytest.mark.xdist_group("cluster")
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
def test_attempts_that_fail_or_lose_leave_nothing(server: Server, options: dict[str, str], tmp_path: Path) -> None:
    """One attempt raises and another's process dies, both when all of their rows are in uploads; one loses against its
    speculative copy; and an overwrite takes the place of what was written.
    """
    from tests.s3.servers import BUCKET

    failing, losing = f"s3a://{BUCKET}/failing/table", f"s3a://{BUCKET}/losing/table"
    with standalone_cluster(tmp_path) as master:
        driver = Driver(master, tmp_path / "driver", SCRIPT)
        try:
            assert driver.run("save", dest=failing, storage=options, way="failing") == {}
            attempts = attempts_of_rows(server, "failing/table")
            assert 0 not in {attempts[row] for row in range(ROWS, 3 * ROWS)}
            old = {key for key in keys(server.client, BUCKET) if key.startswith("failing/table/d=")}
            told = driver.run("overwrite", dest=failing, storage=options)
            assert (told["success"], told["files"]) == (True, 3 * DIRECTORIES)
            attempts_of_rows(server, "failing/table")
            assert not old & keys(server.client, BUCKET)
            flag = str(tmp_path / "flag")
            assert driver.run("save", dest=losing, storage=options, way="losing", flag=flag) == {}
        finally:
            driver.close()
    attempts = attempts_of_rows(server, "losing/table")
    # Once its copy has handed over all rows the first attempt goes on, too: which of the two wins is Spark's to say.
    assert {attempts[row] for row in range(ROWS, 2 * ROWS)} in ({0}, {1})


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
