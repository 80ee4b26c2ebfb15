"""Spark that really fails: speculation, lost executors, stages run again, drivers killed in their commit.

Each test runs through the data source, through messages (`foreach_partition`) and through listing (`task_attempt`); some
with Spark's own writers, through the commit protocol.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from committer import sync

from .cluster import Driver, standalone_cluster, wait_until
from .cluster_driver import DRAWN_BY_SPARK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs 127.0.0.2, and /proc to find the processes to kill"),
]

WAYS = ["data source", "messages", "listing"]
needs_a_jdk = pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with")
OWN_WRITERS = pytest.param("own writers", marks=needs_a_jdk)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    scratch = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(scratch) as master:
        driver = Driver(master, scratch / "driver")
        yield driver
        driver.close()
    shutil.rmtree(scratch)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    (tmp_path / "flags").mkdir()
    return tmp_path / "t"


def found(dest: Path) -> dict[int, tuple[int, ...]]:
    """For each row at the destination, the numbers of the attempts that brought it."""
    rows: dict[int, tuple[int, ...]] = {}
    for path in dest.glob("d=*/*"):
        if path.suffix == ".txt":
            number = int(path.stem.rpartition("-")[2])
            pairs = [(int(line), number) for line in path.read_text().splitlines()]
        else:
            import pyarrow.parquet as pq

            table = pq.ParquetFile(path).read(["id", "attempt"])
            pairs = list(zip(*(table.column(name).to_pylist() for name in ("id", "attempt")), strict=True))
        for row, number in pairs:
            rows[row] = (*rows.get(row, ()), number)
    return rows


def check_complete(dest: Path, rows: int, *, kept: bool = False) -> dict[int, tuple[int, ...]]:
    """Every row is there once, and of the job nothing is left but its result, and its outcome where that is kept."""
    result = found(dest)
    assert sorted(result) == list(range(rows))
    assert {len(numbers) for numbers in result.values()} == {1}
    assert (dest / "_temporary").exists() == kept
    assert (dest / "_SUCCESS").exists()
    return result


def told(words: list[Any], partition: int, number: int) -> list[Any]:
    return [word for word in words if (word["partition"], word["attempt_number"]) == (partition, number)]


@pytest.mark.parametrize("way", [*WAYS, OWN_WRITERS])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_the_loser_of_a_speculation_finishes(driver: Driver, dest: Path, way: str, moment: str) -> None:
    job_id = DRAWN_BY_SPARK if way == "own writers" else f"{moment}-1"
    words = driver.run("speculation", way=way, moment=moment, dest=str(dest), job_id=job_id)
    check_the_loser(words, check_complete(dest, 250), way, moment)


@pytest.mark.parametrize("way", [*WAYS, "sink"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_the_loser_of_a_speculation_in_a_micro_batch(driver: Driver, dest: Path, way: str, moment: str) -> None:
    words = driver.run("speculation_in_a_batch", way=way, moment=moment, dest=str(dest), job_id=f"{moment}-1")
    check_the_loser(words, check_complete(dest, 250, kept=way == "sink"), way, moment)
    if way == "sink":
        (job,) = sync.list_jobs(dest)
        assert job.state == "committed"


def check_the_loser(words: list[Any], result: dict[int, tuple[int, ...]], way: str, moment: str) -> None:
    (loser,) = told(words, 1, 0)
    (winner,) = told(words, 1, 1)
    assert winner["result"] == "committed"
    assert winner["task_attempt"] != loser["task_attempt"]
    # Where nothing comes back, the last commit of a task before the job's wins; else the one that Spark heard of.
    wins = 0 if (way, moment) == ("listing", "before") else 1
    assert {result[row] for row in range(50, 100)} == {(wins,)}
    if way == "own writers":
        # Its rows are all handed over, and Java goes on with it, or is interrupted by Spark.
        assert loser["job"] == {"before": [], "during": ["decision"], "after": ["gone"]}[moment]
    elif moment == "before":
        assert (loser["result"], loser["job"]) == ("committed", [])
    elif moment == "during":
        assert loser["result"] == "JobDecidedError"
        assert loser["job"] == ["decision"]
    elif way == "sink":
        assert loser["result"] in {"JobDecidedError", "JobNotFoundError"}
        assert "kept" in loser["job"]
    else:
        assert (loser["result"], loser["job"]) == ("JobNotFoundError", ["gone"])


@pytest.mark.parametrize("way", [*WAYS, OWN_WRITERS])
def test_an_executor_is_killed(driver: Driver, dest: Path, way: str) -> None:
    words = driver.run("lost_executor", way=way, shuffled=False, dest=str(dest), job_id="lost-1")
    result = check_complete(dest, 50)
    assert {result[row] for row in range(10, 20)} == {(1,)}
    assert len(told(words, 1, 0)) == len(told(words, 1, 1)) == 1


@pytest.mark.parametrize("way", [*WAYS, OWN_WRITERS])
def test_a_stage_is_run_again_with_the_same_attempt_number(driver: Driver, dest: Path, way: str) -> None:
    words = driver.run("lost_executor", way=way, shuffled=True, dest=str(dest), job_id="again-1")
    check_complete(dest, 50)
    first, second = told(words, 1, 0)
    assert first["task_attempt"] != second["task_attempt"]


@needs_a_jdk
def test_an_executor_is_killed_in_a_task_commit(driver: Driver, dest: Path) -> None:
    """Its record may stand, and its message may have arrived: then the attempt wins, else the next one."""
    words = driver.run("lost_in_task_commit", dest=str(dest))
    result = check_complete(dest, 50)
    assert {result[row] for row in range(10, 20)} in ({(0,)}, {(1,)})
    assert len(told(words, 1, 0)) == 1


@needs_a_jdk
def test_two_queries_append_to_hundreds_of_partitions_of_one_table(driver: Driver, dest: Path) -> None:
    assert driver.run("two_writers", dest=str(dest), directories=300) == []
    result = found(dest)
    overwritten = set(range(10))
    kept = {row for row in range(2000) if row % 300 not in overwritten}
    assert set(result) == kept | set(range(2000, 2100))
    assert {len(numbers) for numbers in result.values()} == {1}
    assert len(list(dest.glob("d=*"))) == 300
    assert not (dest / "_temporary").exists()


@pytest.mark.parametrize("way", WAYS)
def test_a_driver_is_killed_in_its_commit(tmp_path: Path, dest: Path, way: str) -> None:
    killed = Driver("local[2,4]", tmp_path / "scratch")
    try:
        killed.start("slow_commit", way=way, dest=str(dest), job_id="killed-1")
        wait_until(lambda: any(dest.glob("d=*/*")), 120, "the first file to be published")
        killed.kill_everything()
    finally:
        killed.close()
    (job,) = sync.list_jobs(dest)
    assert (job.job_id, job.state) == ("killed-1", "committing")
    assert 0 < len(found(dest)) < 250
    assert not (dest / "_SUCCESS").exists()
    report = sync.recover(dest, "killed-1")
    assert (report.success, report.files_committed) == (True, 54)
    check_complete(dest, 250)
    assert sync.recover(dest, "killed-1").files_committed == 54
