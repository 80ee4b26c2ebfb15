"""`committer.spark.write`: modes, what it takes from the session, its report, its errors."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

import committer
from committer.committers.results import JobReport
from committer.errors import ConfigurationError, TargetExistsError, UnsupportedError
from committer.options.config import CommitterConfig
from committer.records.success import SuccessData
from committer.spark import write
from committer.spark.fetching import _report_from_here, keep_report, take_report
from committer.spark.options import parse_options

from .trees import data_files, everything, rows_by_directory

OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


def test_the_report_is_the_jobs_own(spark: SparkSession, tmp_path: Path) -> None:
    seen = Observation()
    frame = spark.range(0, 10, 1, 3).selectExpr("id v", "id % 3 a").observe(seen, F.count(F.lit(1)).alias("rows"))
    report = write(frame, tmp_path / "t", partition_by=["a"], job_id="first")
    found = data_files(tmp_path / "t")
    assert isinstance(report, JobReport)
    assert (report.success, report.job_id, report.committer) == (True, "first", "manifest")
    assert report.files_committed == len(found) == 9
    assert report.bytes_committed == sum(path.stat().st_size for path in found)
    assert report.directories_created == 3
    assert len(report.filenames) == 9
    assert report.duration_s > 0
    assert report.statistics.counters["committer_rows_written"] == seen.get["rows"] == 10
    assert "_temporary" not in everything(tmp_path / "t")
    marker = asyncio.run(committer.load_record(tmp_path / "t" / "_SUCCESS"))
    assert isinstance(marker, SuccessData)
    assert marker.statistics().counters["committer_rows_written"] == 10
    assert marker.statistics().counters["committer_bytes_committed"] == report.bytes_committed


def test_modes(spark: SparkSession, tmp_path: Path) -> None:
    dest = str(tmp_path / "t")
    frame = spark.range(0, 4, 1, 1)
    assert write(frame, dest).files_committed == 1
    before = everything(tmp_path / "t")
    with pytest.raises(TargetExistsError, match="holds data already") as raised:
        write(frame, dest)
    assert raised.value.outcome == "unchanged"
    assert raised.value.path == dest
    assert "append or overwrite" in raised.value.next_step
    assert not hasattr(raised.value, "__notes__")

    computed = spark.range(1).selectExpr("cast(raise_error('computed') as int) id")
    ignored = write(computed, dest, mode="ignore")
    assert (ignored.success, ignored.job_id, ignored.files_committed) == (True, "", 0)
    assert everything(tmp_path / "t") == before

    assert write(frame, dest, mode="append").files_committed == 1
    assert spark.read.parquet(dest).count() == 8
    write(frame, dest, mode="overwrite")
    assert spark.read.parquet(dest).count() == 4
    assert write(frame, tmp_path / "new", mode="ignore").files_committed == 1


def test_overwriting_partitions_goes_by_the_session(spark: SparkSession, tmp_path: Path) -> None:
    dest = tmp_path / "t"
    frame = spark.range(0, 6, 1, 1).selectExpr("id v", "id % 3 a")
    write(frame, dest, partition_by="a", mode="overwrite")  # there is nothing to replace, so nothing to choose
    part = frame.where("a = 1").selectExpr("v + 100 v", "a")
    with pytest.raises(ConfigurationError, match="it is not said whether"):
        write(part, dest, partition_by="a", mode="overwrite")
    spark.conf.set(OVERWRITE_MODE, "dynamic")
    try:
        write(part, dest, partition_by="a", mode="overwrite")
        assert rows_by_directory(dest, "v") == {"a=0": [0, 3], "a=1": [101, 104], "a=2": [2, 5]}
        write(part, dest, partition_by="a", mode="overwrite", partition_overwrite_mode="static")
        assert rows_by_directory(dest, "v") == {"a=1": [101, 104]}
        spark.conf.set(OVERWRITE_MODE, "STATIC")
        write(frame.where("a = 2"), dest, partition_by="a", mode="overwrite")
        assert rows_by_directory(dest, "v") == {"a=2": [2, 5]}
    finally:
        spark.conf.unset(OVERWRITE_MODE)


def test_options_and_config_reach_the_job(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 4, 1, 1).selectExpr("id `a,b`", "id v")
    config = CommitterConfig(validate_output=True, io_rate=500.0, summary_report_directory=str(tmp_path / "reports"))
    report = write(
        frame, tmp_path / "t", partition_by=["a,b"], options={"compression": "zstd"}, config=config, job_id="j"
    )
    assert report.files_committed == 4
    assert [path.parent.name for path in data_files(tmp_path / "t")] == [f"a,b={value}" for value in range(4)]
    assert all(path.name.endswith(".c000.zstd.parquet") for path in data_files(tmp_path / "t"))
    assert (tmp_path / "reports" / "summary-j.json").exists()
    assert report.statistics.counters["job_stage_optional_validate_output"] == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"mode": "upsert"}, ConfigurationError, "mode cannot be 'upsert'"),
        ({"partition_overwrite_mode": "some"}, ConfigurationError, "partitionOverwriteMode cannot be 'some'"),
        ({"options": {"compresion": "zstd"}}, ConfigurationError, "did you mean 'compression'"),
        ({"options": {"JOB_ID": "x"}}, ConfigurationError, "JOB_ID is given twice"),
        ({"options": {"fs.s3a.secret.key": "hunter2"}}, ConfigurationError, "fs.s3a.secret.key looks like a secret"),
        ({"storage_options": {"account_key": "hunter2"}}, ConfigurationError, "account_key must say where"),
        ({"uri": "nosuch://bucket/t"}, UnsupportedError, "no store is known for nosuch"),
        ({"uri": "file:///"}, ConfigurationError, "already|root"),
        ({"partition_by": ["nosuch"]}, ConfigurationError, "there is no column 'nosuch'"),
    ],
)
def test_what_cannot_be_honoured_has_a_type(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    given = {"uri": tmp_path / "t", "mode": "overwrite", **arguments}
    with pytest.raises(error, match=text) as raised:
        write(spark.range(3), given.pop("uri"), **given)
    assert "hunter2" not in str(raised.value)
    assert not (tmp_path / "t").exists()


def test_errors_of_rows_stay_sparks_and_name_the_job(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="bad row") as raised:
        write(spark.range(3).selectExpr("cast(raise_error('bad row') as int) id"), tmp_path / "t", job_id="j")
    assert any("this was job j" in note for note in raised.value.__notes__)
    assert not (tmp_path / "t").exists() or everything(tmp_path / "t") == set()


def test_writing_from_threads(spark: SparkSession, tmp_path: Path) -> None:
    frames = [spark.range(number, 8, 1, 1) for number in range(2)]
    with ThreadPoolExecutor() as pool:
        reports = list(pool.map(lambda frame: write(frame, tmp_path / "t", mode="append"), frames))
    assert len({report.job_id for report in reports}) == 2
    assert [report.statistics.counters["committer_rows_written"] for report in reports] == [8, 7]
    assert spark.read.parquet(str(tmp_path / "t")).count() == 15
    assert "_temporary" not in everything(tmp_path / "t")


# --- Interrupted ---------------------------------------------------------------------------------------------------


def when_decided(dest: Path, act: Any) -> threading.Thread:
    """Acts once the job's commit is decided, and before it can be done: commits of these tests are slow."""

    def wait() -> None:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            if any(dest.glob("_temporary/*/decision")):
                act()
                return
            time.sleep(0.005)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


SLOW = CommitterConfig(io_rate=20.0, io_concurrency=1)


def test_ctrl_c_in_commit_lets_the_commit_go_on(spark: SparkSession, tmp_path: Path) -> None:
    dest = tmp_path / "t"
    frame = spark.range(0, 40, 1, 1).selectExpr("id v", "id a")
    watcher = when_decided(dest, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt) as raised:
        write(frame, dest, partition_by=["a"], config=SLOW, job_id="j")
    watcher.join()
    assert any("committer.sync.recover" in note and "'j'" in note for note in raised.value.__notes__)
    report = asyncio.run(committer.recover(dest, "j"))
    assert (report.success, report.files_committed) == (True, 40)
    assert sum(map(len, rows_by_directory(dest, "v").values())) == 40


def test_a_cancelled_job_group_does_not_stop_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    dest = tmp_path / "t"
    frame = spark.range(0, 40, 1, 1).selectExpr("id v", "id a")
    spark.sparkContext.setJobGroup("tests", "to be cancelled", interruptOnCancel=True)
    watcher = when_decided(dest, lambda: spark.sparkContext.cancelJobGroup("tests"))
    try:
        report = write(frame, dest, partition_by=["a"], config=SLOW)
    finally:
        watcher.join()
        spark.sparkContext._jsc.clearJobGroup()  # type: ignore[attr-defined]
    assert report.files_committed == 40


# --- The report on its way -----------------------------------------------------------------------------------------


def test_a_classic_session_needs_no_spark_job_to_fetch_the_report(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    context.setJobGroup("with its report", "")
    try:
        report = write(spark.range(3), tmp_path / "t")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert report.statistics.counters["committer_rows_written"] == 3
    assert len(context.statusTracker().getJobIdsForGroup("with its report")) == 1
    assert not (tmp_path / "t" / "_temporary").exists()


def test_a_report_that_cannot_be_read_from_here_is_left_to_a_spark_task(tmp_path: Path) -> None:
    options = parse_options({"path": str(tmp_path)})
    assert _report_from_here(options, "j") is None
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / ".report-j.json").write_text("{")
    assert _report_from_here(options, "j") is None
    assert (tmp_path / "_temporary" / ".report-j.json").exists()


async def test_a_report_is_taken_once_and_stale_ones_go(tmp_path: Path) -> None:
    options = parse_options({"path": str(tmp_path)})
    await keep_report(options, JobReport(success=True, job_id="mine", committer="manifest", files_committed=3))
    for name, age_s in (("stale", 90_000), ("fresh", 0)):
        await keep_report(options, JobReport(success=True, job_id=name, committer="manifest"))
        path = tmp_path / "_temporary" / f".report-{name}.json"
        os.utime(path, (time.time() - age_s,) * 2)
    report = await take_report(options, "mine")
    assert report is not None
    assert report.files_committed == 3
    assert os.listdir(tmp_path / "_temporary") == [".report-fresh.json"]
    assert await committer.list_jobs(tmp_path) == []
    assert await take_report(options, "mine") is None
    assert await take_report(options, "fresh") is not None
    assert os.listdir(tmp_path) == []


async def test_without_a_report_success_speaks_for_its_own_job_only(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path, job_id="j") as job:
        async with job.task_attempt(task=0, attempt=0) as task, task.open("x") as file:
            await file.write(b"123")
    options = parse_options({"path": str(tmp_path)})
    report = await take_report(options, "j")
    assert report is not None
    assert (report.files_committed, report.bytes_committed) == (1, 3)
    assert await take_report(options, "another") is None
