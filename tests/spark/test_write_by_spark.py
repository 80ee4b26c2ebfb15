"""`committer.spark.write` by Spark's own writers: the same modes, report and errors as by Python; what either takes."""

from __future__ import annotations

import logging
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import committer.spark
from committer import CommitterConfig
from committer.errors import CommitterError, ConfigurationError, TargetExistsError, UnsupportedError
from committer.events import JobEvent
from committer.spark import write

from .conftest import SPARKS_OWN
from .test_configured_choices import decided_at
from .trees import data_files, everything, names_without_uuid, rows_by_directory

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
KEY = "spark.sql.sources.commitProtocolClass"


def partitioned(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.range(first, first + 6, 1, 1).selectExpr("id", "id % 3 a")


def steps(spark: SparkSession, root: Path, writer: str) -> list[object]:
    """A write in each mode, and what it came to."""
    found: list[object] = []

    def step(name: str, frame: DataFrame, **arguments: Any) -> None:
        before = {} if not root.exists() else everything(root)
        try:
            report = write(frame, root / name, writer=writer, **arguments)
        except CommitterError as error:
            assert everything(root) == before
            told = _UUID.sub("<uuid>", error.message.replace(str(root), ""))
            found.append((type(error).__name__, told, error.outcome, _UUID.sub("<uuid>", error.next_step)))
        else:
            found.append((report.success, bool(report.job_id), report.files_committed, report.directories_created))
            found.append((rows_by_directory(root / name, "id"), names_without_uuid(root / name)))
            assert not (root / name / "_temporary").exists()

    frame, more = spark.range(0, 4, 1, 2), partitioned(spark, 100)
    computed = spark.range(1).selectExpr("cast(raise_error('computed') as int) id")
    step("flat a%20é", frame)
    step("flat a%20é", frame)
    step("flat a%20é", computed, mode="ignore")
    step("flat a%20é", frame, mode="append")
    step("flat a%20é", frame, mode="overwrite", compression="gzip")
    step("new", frame, mode="ignore", options={"maxRecordsPerFile": 1})
    step("parts", partitioned(spark), partition_by="a", mode="overwrite")
    step("parts", more.where("a = 1"), partition_by="a", mode="overwrite")
    step("parts", more.where("a = 1"), partition_by="a", mode="overwrite", partition_overwrite_mode="dynamic")
    step("parts", more.where("a = 2"), partition_by="a", mode="overwrite", partition_overwrite_mode="static")
    step("parts", frame, mode="append", config={"conflict_mode": "fail"})
    step("parts", frame, mode="overwrite", config={"conflict_mode": "fail"})
    return found


def test_modes_and_reports_are_alike(committing: SparkSession, tmp_path: Path) -> None:
    by_spark = steps(committing, tmp_path / "spark", "spark")
    assert by_spark == steps(committing, tmp_path / "python", "python")
    assert sum(isinstance(one, tuple) and one[0] == "TargetExistsError" for one in by_spark) == 2


def test_the_report_is_the_calls_own(committing: SparkSession, tmp_path: Path) -> None:
    frame = partitioned(committing)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda n: write(frame, tmp_path / str(n), partition_by="a"), range(4)))
    for number, report in enumerate(reports):
        files = data_files(tmp_path / str(number))
        assert {report.job_id in path.name for path in files} == {True}
        assert (report.files_committed, report.directories_created, len(report.filenames)) == (3, 3, 3)
        assert report.bytes_committed == sum(path.stat().st_size for path in files)
        assert report.duration_s > 0
        assert report.committer == "manifest"
    last = committer.spark.last_report()
    assert last is not None
    assert last.job_id in {report.job_id for report in reports}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"job_id": "mine"}, "Spark draws the ids of its jobs"),
        ({"committer": "directory"}, "the committer manifest only"),
        ({"compression": "brotli"}, "no codec brotli for parquet"),
        ({"config": {"unique_names": True}}, "cannot be given unique_names=True"),
        ({"options": {"durability": "fsync"}}, "cannot be given durability='fsync'"),
        ({"config": {"durability": "fsync"}}, "cannot be given durability='fsync'"),
        ({"config": CommitterConfig(durability="fsync")}, "cannot be given durability='fsync'"),
        ({"options": {"caseSensitive": "true"}}, r"go by spark\.sql\.caseSensitive"),
    ],
)
def test_what_spark_cannot_do_python_does_and_says_why(
    committing: SparkSession, tmp_path: Path, arguments: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match=rf"Spark's own writer cannot be used here: .*{reason}"):
        write(committing.range(2), tmp_path / "t", writer="spark", **arguments)
    caplog.set_level(logging.INFO, "committer.spark")
    if arguments.get("committer") == "directory":
        with pytest.raises(CommitterError):
            write(committing.range(2), tmp_path / "t", **arguments)
    else:
        report = write(committing.range(2), tmp_path / "t", **arguments)
        assert report.statistics.counters["committer_rows_written"] == 2
    (said,) = [record for record in caplog.records if "is written by Python" in record.getMessage()]
    assert said.levelno == logging.INFO


@pytest.mark.parametrize("choice", [{"durability": "fsync"}, {"unique_names": True}])
def test_what_configure_chose_for_all_jobs_is_never_dropped(
    committing: SparkSession, tmp_path: Path, choice: dict[str, Any]
) -> None:
    """Nor by a call that makes another choice; only by one that makes the same one."""
    (field, value), frame = next(iter(choice.items())), committing.range(2)
    committer.spark.configure(committing, config={**choice, "cleanup_skipped": True})
    with pytest.raises(Exception, match=rf"{field}={value!r} cannot be had with files that Spark's own writers write"):
        frame.write.parquet(str(tmp_path / "refused"))
    for more in {}, {"options": {"io_concurrency": 4}}, {"config": {"io_concurrency": 4}}:
        with pytest.raises(
            ConfigurationError, match=rf'cannot be given {field}={value!r}, .*configure.*; .*writer="python"'
        ):
            write(frame, tmp_path / "refused", writer="spark", **more)
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        report = write(frame, root, **more)
        assert report.statistics.counters["committer_rows_written"] == 2
        assert getattr(decided_at(root), field) == value
        assert decided_at(root).io_concurrency == (4 if more else CommitterConfig().io_concurrency)
    assert not data_files(tmp_path / "refused")
    for config in {field: getattr(CommitterConfig(), field)}, CommitterConfig():
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        assert "committer_rows_written" not in write(frame, root, config=config).statistics.counters
        assert bool(list(root.rglob("decision"))) == isinstance(config, dict)


def test_what_configure_chose_holds_for_either_writer(committing: SparkSession, tmp_path: Path) -> None:
    committer.spark.configure(committing, config={"validate_output": True, "cleanup_skipped": True})
    write(committing.range(2), tmp_path / "on", writer="spark")
    assert decided_at(tmp_path / "on").validate_output
    committing.conf.set(KEY, SPARKS_OWN)
    write(committing.range(2), tmp_path / "off")
    assert decided_at(tmp_path / "off").validate_output


def test_without_the_adaptor_python_writes(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.conf.get(KEY) == SPARKS_OWN
    assert write(spark.range(2), tmp_path / "t").statistics.counters["committer_rows_written"] == 2
    with pytest.raises(ConfigurationError, match=r"the session was not made by committer\.spark\.configure"):
        write(spark.range(2), tmp_path / "u", writer="spark")
    with pytest.raises(ConfigurationError, match=r"writer cannot be 'java'; .*auto, spark, python"):
        write(spark.range(2), tmp_path / "u", writer="java")
    assert not (tmp_path / "u").exists()


def test_a_format_that_is_no_spark_s_is_not_written(committing: SparkSession, tmp_path: Path) -> None:
    """Spark's noop format, and those of tables, would not be committed by anyone here."""
    with pytest.raises(UnsupportedError, match="noop"):
        write(committing.range(2), tmp_path / "t", format="noop")
    assert write(committing.range(2).selectExpr("cast(id as string)"), tmp_path / "t", format="text").success
    assert (tmp_path / "t" / "_SUCCESS").exists()


# What the table in docs/spark.md says: a query of one row, how it is partitioned, and what Python says of it.
TYPES = {
    "a binary partition column": ("select 1 id, X'4142' p", "p", "binary"),
    "void": ("select 1 id, null v", "", "void"),
    "year-month intervals": ("select 1 id, interval '1-2' year to month v", "", "interval"),
    "variant": ("select 1 id, parse_json('{\"a\": 1}') v", "", "variant"),
}


@pytest.mark.parametrize("what", TYPES)
def test_types_that_only_spark_writes(committing: SparkSession, tmp_path: Path, what: str) -> None:
    query, partition_by, said = TYPES[what]
    frame = committing.sql(query)
    with pytest.raises((CommitterError, PySparkException), match=rf"(?i){said}"):
        write(frame, tmp_path / "python", partition_by=partition_by or (), writer="python")
    assert not data_files(tmp_path / "python")
    report = write(frame, tmp_path / "spark", partition_by=partition_by or ())
    assert report.files_committed == 1
    assert committing.read.parquet(str(tmp_path / "spark")).count() == 1


@pytest.mark.allow_blocking("the listener takes the place of another program")
def test_errors_are_those_of_the_commit(committing: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "t"

    def write_first(event: JobEvent) -> None:
        """Another job's file comes between setup and commit."""
        if event.stage == "job_stage_load_manifests":
            (out / "another.parquet").write_bytes(b"")

    committer.spark.configure(committing, progress=write_first)
    with pytest.raises(TargetExistsError) as raised:
        write(committing.range(2), out)
    assert raised.value.outcome == "unchanged"
    assert everything(out) == {"another.parquet"}
    with pytest.raises(PySparkException, match="boom"):
        write(committing.sql("select raise_error('boom') id"), tmp_path / "u")
    assert data_files(tmp_path / "u") == []


def test_a_process_that_is_not_the_calls_own_commits_nothing(
    committing: SparkSession, use_python: Any, tmp_path: Path
) -> None:
    use_python(sys.executable)
    with pytest.raises(Exception, match=r"one of committer\.spark\.write, whose process does not commit it"):
        write(committing.range(2), tmp_path / "t", writer="spark")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("writer", ["spark", "python"])
def test_spark_shows_what_writes(committing: SparkSession, tmp_path: Path, writer: str) -> None:
    context = committing.sparkContext
    store = context._jsc.sc().statusStore()

    def latest() -> tuple[str, str]:
        context._jsc.sc().listenerBus().waitUntilEmpty()
        job = max((store.jobsList(None).apply(n) for n in range(store.jobsList(None).size())), key=lambda j: j.jobId())
        return str(job.description().get()), str(job.jobGroup().get())

    # Another test may have left its words to this session.
    context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    report = write(committing.range(2), tmp_path / "t", writer=writer)
    description, group = latest()
    assert description == f"committer.spark.write to {tmp_path / 't'}"
    assert group.startswith("committer-") if writer == "spark" else group == report.job_id
    assert context.getLocalProperty("spark.jobGroup.id") is None
    context.setJobGroup("mine", "my words")
    try:
        write(committing.range(2), tmp_path / "u", writer=writer)
        assert latest() == ("my words", "mine")
        assert context.getLocalProperty("spark.job.description") == "my words"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
