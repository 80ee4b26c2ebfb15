"""The data source on an emulated bucket of Google Cloud Storage: attempts that fail or lose, and overwriting."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import committer.spark
from tests.stores.gcs_process import RemoteBucket, bucket_process

from .cluster import Driver, standalone_cluster
from .store_driver import ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java]

SCRIPT = Path(__file__).with_name("store_driver.py")
DIRECTORIES = 4


@pytest.fixture(scope="module")
def bucket() -> Iterator[RemoteBucket]:
    with bucket_process() as bucket:
        yield bucket


@pytest.fixture
def options(bucket: RemoteBucket) -> dict[str, str]:
    return {"endpoint": bucket.url}


def attempts_of_rows(bucket: RemoteBucket, table: str) -> dict[int, int]:
    """The number of the attempt that brought each row, of a table that holds each row once and nothing but its files."""
    import pyarrow.parquet as pq

    found: dict[int, int] = {}
    files = bucket.sizes(table).keys()
    assert {name.partition("/")[0] for name in files} == {
        "_SUCCESS",
        *(f"d={number}" for number in range(DIRECTORIES)),
    }
    for name in files - {"_SUCCESS"}:
        rows = pq.read_table(io.BytesIO(bucket.read(f"{table}/{name}")), columns=["id", "attempt"])
        ids = rows.column("id").to_pylist()
        assert not found.keys() & ids
        found |= dict(zip(ids, rows.column("attempt").to_pylist(), strict=True))
    assert sorted(found) == list(range(3 * ROWS))
    assert len(json.loads(bucket.read(f"{table}/_SUCCESS"))["filenames"]) == len(files) - 1
    return found


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


@pytest.mark.xdist_group("cluster")
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
def test_attempts_that_fail_or_lose_leave_nothing(
    bucket: RemoteBucket, options: dict[str, str], tmp_path: Path
) -> None:
    """One attempt raises and another's process dies, both when all of their rows are written; one loses against its
    speculative copy; and an overwrite takes the place of what was written.
    """
    failing, losing = bucket.uri("failing/table"), bucket.uri("losing/table")
    with standalone_cluster(tmp_path) as master:
        driver = Driver(master, tmp_path / "driver", SCRIPT)
        try:
            assert driver.run("save", dest=failing, storage=options, way="failing") == {}
            attempts = attempts_of_rows(bucket, "failing/table")
            assert 0 not in {attempts[row] for row in range(ROWS, 3 * ROWS)}
            old = {name for name in bucket.sizes("failing/table") if name.startswith("d=")}
            told = driver.run("overwrite", dest=failing, storage=options)
            assert (told["success"], told["files"]) == (True, 3 * DIRECTORIES)
            attempts_of_rows(bucket, "failing/table")
            assert not old & bucket.sizes("failing/table").keys()
            flag = str(tmp_path / "flag")
            assert driver.run("save", dest=losing, storage=options, way="losing", flag=flag) == {}
        finally:
            driver.close()
    attempts = attempts_of_rows(bucket, "losing/table")
    # Once its copy has handed over all rows the first attempt goes on, too: which of the two wins is Spark's to say.
    assert {attempts[row] for row in range(ROWS, 2 * ROWS)} in ({0}, {1})
