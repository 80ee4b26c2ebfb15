"""The data source on object stores: attempts that fail or lose, overwriting, and names that say whose a file is."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import committer.spark

from .cluster import Driver, standalone_cluster
from .protocol_places import Place, place_of
from .store_driver import ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if importlib.util.find_spec("boto3") is None:
    pytest.skip("boto3 is not installed, which looks at a bucket", allow_module_level=True)

pytestmark = [pytest.mark.spark, pytest.mark.java]

SCRIPT = Path(__file__).with_name("store_driver.py")
DIRECTORIES = 4

Stores = Callable[[str], Place]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Starts the store of a scheme, once; tasks write to it by Python alone."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(place_of(name, tmp_path_factory.mktemp(name), client=False)))


def options_of(place: Place, tmp_path: Path) -> dict[str, str]:
    """Storage options that every process of Spark's resolves for itself."""
    for name, text in place.python.items():
        (tmp_path / name).write_text(str(text))
    return {name: f"file:{tmp_path / name}" for name in place.python}


def no_upload_waits(place: Place) -> bool:
    return place.name != "s3a" or place.server.uploads() == []


def attempts_of_rows(place: Place, table: str) -> dict[int, int]:
    """The number of the attempt that brought each row, of a table that holds each row once and nothing but its files."""
    import pyarrow.parquet as pq

    found: dict[int, int] = {}
    files = place.read(table)
    marker = json.loads(files.pop("_SUCCESS"))
    assert {name.partition("/")[0] for name in files} == {f"d={number}" for number in range(DIRECTORIES)}
    for data in files.values():
        rows = pq.read_table(io.BytesIO(data), columns=["id", "attempt"])
        ids = rows.column("id").to_pylist()
        assert not found.keys() & ids
        found |= dict(zip(ids, rows.column("attempt").to_pylist(), strict=True))
    assert sorted(found) == list(range(3 * ROWS))
    assert len(marker["filenames"]) == len(files)
    assert no_upload_waits(place)
    return found


@pytest.mark.parametrize(
    ("store", "scheme", "by"), [("s3a", "s3", "magic"), ("s3a", "s3a", "magic"), ("gs", "gs", "manifest")]
)
def test_a_write_commits_and_an_overwrite_replaces(
    store: str, scheme: str, by: str, spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    place = stores(store)
    table, options = f"{scheme}/table", options_of(place, tmp_path)
    uri = place.uri(table).replace(f"{store}://", f"{scheme}://")
    first, second = str(uuid4()), str(uuid4())
    frame = spark.createDataFrame([(number, number % 3) for number in range(30)], "id long, p int").repartition(2)
    report = committer.spark.write(frame, uri, partition_by=["p"], storage_options=options, job_id=first)
    assert (report.committer, report.files_committed) == (by, 6)
    written = place.read(table)
    marker = json.loads(written["_SUCCESS"])
    assert marker["jobId"] == first
    files = written.keys() - {"_SUCCESS"}
    assert len(files) == 6
    assert all(first in name.rpartition("/")[2] for name in files)

    ignored = committer.spark.write(frame, uri, mode="ignore", storage_options=options)
    assert (ignored.committer, ignored.job_id) == (by, "")

    report = committer.spark.write(
        frame.where("p = 1"),
        uri,
        partition_by=["p"],
        mode="overwrite",
        partition_overwrite_mode="dynamic",
        storage_options=options,
        job_id=second,
    )
    now = place.read(table).keys()
    new = {name for name in now if second in name}
    assert len(new) == report.files_committed
    assert now - new == {name for name in written if not name.startswith("p=1/")}
    assert no_upload_waits(place)


@pytest.mark.xdist_group("cluster")
@pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2")
@pytest.mark.parametrize("store", ["s3a", "gs"])
def test_attempts_that_fail_or_lose_leave_nothing(store: str, stores: Stores, tmp_path: Path) -> None:
    """One attempt raises and another's process dies, both when all of their rows are written; one loses against its
    speculative copy; and an overwrite takes the place of what was written.
    """
    place = stores(store)
    options = options_of(place, tmp_path)
    failing, losing = place.uri("failing/table"), place.uri("losing/table")
    with standalone_cluster(tmp_path) as master:
        driver = Driver(master, tmp_path / "driver", SCRIPT)
        try:
            assert driver.run("save", dest=failing, storage=options, way="failing") == {}
            attempts = attempts_of_rows(place, "failing/table")
            assert 0 not in {attempts[row] for row in range(ROWS, 3 * ROWS)}
            old = {name for name in place.read("failing/table") if name.startswith("d=")}
            told = driver.run("overwrite", dest=failing, storage=options)
            assert (told["success"], told["files"]) == (True, 3 * DIRECTORIES)
            attempts_of_rows(place, "failing/table")
            assert not old & place.read("failing/table").keys()
            flag = str(tmp_path / "flag")
            assert driver.run("save", dest=losing, storage=options, way="losing", flag=flag) == {}
        finally:
            driver.close()
    attempts = attempts_of_rows(place, "losing/table")
    # Once its copy has handed over all rows the first attempt goes on, too: which of the two wins is Spark's to say.
    assert {attempts[row] for row in range(ROWS, 2 * ROWS)} in ({0}, {1})
