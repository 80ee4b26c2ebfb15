"""The data source on a server that speaks S3: the committer that suits it, and names that say whose a file is."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import committer.spark

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
