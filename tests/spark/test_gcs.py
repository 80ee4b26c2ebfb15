"""The data source on an emulated bucket of Google Cloud Storage: a write, and an overwrite of some partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import committer.spark
from tests.stores.gcs_process import RemoteBucket, bucket_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]


@pytest.fixture(scope="module")
def bucket() -> Iterator[RemoteBucket]:
    with bucket_process() as bucket:
        yield bucket


@pytest.fixture
def options(bucket: RemoteBucket) -> dict[str, str]:
    return {"endpoint": bucket.url}


def test_a_write_commits_by_moves_and_an_overwrite_replaces(
    spark: SparkSession, bucket: RemoteBucket, options: dict[str, str]
) -> None:
    uri = bucket.uri("plain/table")
    first, second = str(uuid4()), str(uuid4())
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)
    report = committer.spark.write(frame, uri, partition_by=["p"], storage_options=options, job_id=first)
    assert (report.committer, report.files_committed) == ("manifest", 6)
    written = set(bucket.sizes("plain/table"))
    marker = json.loads(bucket.read("plain/table/_SUCCESS"))
    assert marker["jobId"] == first
    assert len(written - {"_SUCCESS"}) == 6

    report = committer.spark.write(
        frame.where("p = 1"),
        uri,
        partition_by=["p"],
        mode="overwrite",
        partition_overwrite_mode="dynamic",
        storage_options=options,
        job_id=second,
    )
    now = set(bucket.sizes("plain/table"))
    new = {name for name in now if second in name}
    assert len(new) == report.files_committed
    assert now - new == {name for name in written if "p=1/" not in name}
