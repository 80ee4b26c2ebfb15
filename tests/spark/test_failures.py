"""Writes that fail leave what was there as it was; commit and abort obey the job's persisted decision."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType

import committer
from committer.errors import ConfigurationError, JobDecidedError, JobNotFoundError, RecordError, TaskMissingError
from committer.records.task_commit import TaskCommit
from committer.spark.batch_writer import CommitterWriter
from committer.spark.datasource import CommitterDataSource
from committer.spark.spark_task import TaskCommitMessage, task_commits

from .test_writes import save
from .trees import everything

SCHEMA = StructType([StructField("v", LongType())])


# --- Through Spark -------------------------------------------------------------------------------------------------


def test_a_task_that_fails_for_good_aborts_the_job(spark: SparkSession, tmp_path: Path) -> None:
    dest = tmp_path / "t"
    save(spark.range(3), dest)
    before = everything(dest), (dest / "_SUCCESS").read_bytes()
    failing = spark.range(0, 30, 1, 3).selectExpr("if(id = 25, raise_error('row 25 is bad'), id) id")
    with pytest.raises(Exception, match="row 25 is bad"):
        save(failing, dest)
    assert (everything(dest), (dest / "_SUCCESS").read_bytes()) == before


def test_a_failing_job_leaves_nothing_in_a_new_destination(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="bad"):
        save(spark.range(3).selectExpr("cast(raise_error('bad') as int) id"), tmp_path / "new")
    assert not (tmp_path / "new").exists() or everything(tmp_path / "new") == set()


def test_a_commit_that_refuses_leaves_nothing_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    dest = tmp_path / "t"
    save(spark.range(1), dest, job_id="same")
    (dest / "_SUCCESS").unlink()
    before = everything(dest)
    with pytest.raises(AnalysisException) as raised:
        save(spark.range(1), dest, job_id="same")
    assert "committer.errors.TargetExistsError" in str(raised.value)
    assert everything(dest) == before
    save(spark.range(1), dest, job_id="same", existing_target="replace")
    assert spark.read.parquet(str(dest)).count() == 1


@pytest.mark.parametrize(
    ("options", "mode", "text"),
    [
        ({"partition_by": "id"}, "append", "did you mean 'partitionBy'?"),
        ({"partitionBy": "id"}, "append", "every column is a partition column"),
        ({"existing": "append"}, "overwrite", "contradict each other"),
        ({"fs.azure.account.key.a.dfs.core.windows.net": "hunter2"}, "append", "looks like a secret"),
        ({"storage.account_key": "hunter2"}, "append", "storage.account_key must say where"),
        ({}, "error", "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_anything_is_done(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], mode: str, text: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        spark.range(3).write.format("committer").options(**options).mode(mode).save(str(tmp_path / "t"))
    assert text in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (None, "no path"),
        ("relative/table", "the path is relative"),
        ("s4://bucket/table", "no store is known for s4: paths"),
    ],
)
def test_paths_that_lead_nowhere(spark: SparkSession, path: str | None, text: str) -> None:
    with pytest.raises(AnalysisException, match=text):
        spark.range(3).write.format("committer").mode("append").save(path)
    assert not Path("relative").exists()


def test_tables_of_the_catalog_have_no_path(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"create table no_path (v long) using committer location '{tmp_path / 't'}'")
    try:
        for insert in (
            lambda: spark.sql("insert into no_path values (1)"),
            lambda: spark.range(1).write.insertInto("no_path"),
        ):
            with pytest.raises(AnalysisException, match=r"no path: .*INSERT INTO"):
                insert()
    finally:
        spark.sql("drop table no_path")
    assert not (tmp_path / "t").exists()


# --- The writer, called as Spark calls it --------------------------------------------------------------------------


def writer_for(dest: Path, **options: str) -> CommitterWriter:
    writer = CommitterDataSource({"path": str(dest), **options}).writer(SCHEMA, False)
    travelled = pickle.loads(pickle.dumps(writer))
    assert isinstance(travelled, CommitterWriter)
    return travelled


def run_task(writer: CommitterWriter, task: int, attempt: int = 0) -> TaskCommitMessage:
    async def run() -> TaskCommit:
        async with committer.open_task(writer.spec, task=task, attempt=attempt) as handle:
            async with handle.open(f"part-{task}") as file:
                await file.write(f"{task} {attempt}".encode())
        return handle.task_commit

    return TaskCommitMessage(asyncio.run(run()).encode())


def contents(dest: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in dest.iterdir() if path.is_file() and path.name != "_SUCCESS"}


def test_exactly_the_attempts_of_the_messages_win(tmp_path: Path) -> None:
    writer = writer_for(tmp_path / "t")
    messages = [run_task(writer, task, attempt=5) for task in range(3)]
    for zombie in (4, 6):
        run_task(writer, 1, attempt=zombie)
    writer.commit(messages)
    assert contents(tmp_path / "t") == {f"part-{task}": f"{task} 5" for task in range(3)}
    assert not (tmp_path / "t" / "_temporary").exists()


def test_two_messages_of_a_task_or_one_of_another_job_are_refused(tmp_path: Path) -> None:
    writer, other = writer_for(tmp_path / "t", job_id="j"), writer_for(tmp_path / "u", job_id="other")
    with pytest.raises(RecordError, match=r"two .* name task 0 \(attempts 1 and 2\)"):
        writer.commit([run_task(writer, 0, attempt=1), run_task(writer, 0, attempt=2)])
    with pytest.raises(RecordError, match="message of job other was given to job j"):
        writer.commit([run_task(writer, 0, attempt=3), run_task(other, 1)])
    assert contents(tmp_path / "t") == {}


def test_abort_after_commit_does_nothing(tmp_path: Path) -> None:
    writer = writer_for(tmp_path / "t")
    messages = [run_task(writer, 0)]
    writer.commit(messages)
    before = everything(tmp_path / "t")
    writer.abort(messages)
    assert everything(tmp_path / "t") == before


def test_abort_removes_an_undecided_job_and_may_be_repeated(tmp_path: Path) -> None:
    writer = writer_for(tmp_path / "t")
    messages = [None, run_task(writer, 1), None]
    with pytest.raises(TaskMissingError, match="partition 0 of 3"):
        writer.commit(messages)
    writer.abort(messages)
    assert everything(tmp_path / "t") == set()
    writer.abort(messages)
    with pytest.raises((JobNotFoundError, JobDecidedError)):
        run_task(writer, 0)


KILLED_IN_COMMIT = """
import asyncio, os, pickle, sys
from committer.api.job_opening import attach_job
from committer.spark.spark_task import task_commits

writer, messages = pickle.loads(sys.stdin.buffer.read())

def kill(event):
    if event.kind == "advanced" and event.stage == "job_stage_rename_files":
        os._exit(9)

async def main():
    job = await attach_job(writer.spec, listeners=[kill])
    await job.commit(task_commits=task_commits(messages))

asyncio.run(main())
"""


def test_abort_deletes_nothing_once_the_job_is_decided(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = writer_for(tmp_path / "t", job_id="j")
    messages = [run_task(writer, task) for task in range(3)]
    died = subprocess.run(
        [sys.executable, "-c", KILLED_IN_COMMIT], input=pickle.dumps((writer, messages)), check=False, timeout=300
    )
    assert died.returncode == 9
    with caplog.at_level(logging.WARNING, logger="committer.spark"):
        writer.abort(messages)
    assert "recover" in caplog.text
    report = asyncio.run(committer.recover(tmp_path / "t", "j"))
    assert report.files_committed == 3
    assert contents(tmp_path / "t") == {f"part-{task}": f"{task} 0" for task in range(3)}
    writer.abort(messages)
    assert len(contents(tmp_path / "t")) == 3


class Stranger(WriterCommitMessage):
    """A message of some other data source."""


def message(task: int = 0) -> TaskCommitMessage:
    return TaskCommitMessage(
        TaskCommit(
            job_id="j", task=task, attempt=0, nonce="n", record="file:/r", digest="d", length=1, files=0, size=0
        ).encode()
    )


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        ([message(), None], TaskMissingError, "partition 1 of 2 has no"),
        ([Stranger()], RecordError, "returned a Stranger"),
        ([TaskCommitMessage(b"{}")], RecordError, "not a task commit"),
        ([message(), message(task=2)], TaskMissingError, "of task 2, but the job has 2 tasks"),
    ],
)
def test_messages_are_checked(messages: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        task_commits(messages)


def test_messages_of_all_tasks_are_taken() -> None:
    assert [commit.task for commit in task_commits([message(task=task) for task in (0, 1, 2)])] == [0, 1, 2]
    assert task_commits([]) == []


def test_a_spark_plan_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_COMMITTER_SECRET", "hunter2")
    found = CommitterDataSource({"path": str(tmp_path / "t"), "storage.token": "env:TEST_COMMITTER_SECRET"})
    with pytest.raises(ConfigurationError, match="token") as raised:  # the local store takes no options
        found.writer(SCHEMA, False)
    assert "hunter2" not in str(raised.value)
    assert b"hunter2" not in pickle.dumps(found)
    assert not (tmp_path / "t").exists()


# --- Without Spark -------------------------------------------------------------------------------------------------


def test_importing_the_library_imports_neither_pyspark_nor_pyarrow() -> None:
    code = "import sys, committer, committer.spark; print(sorted({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_what_is_missing_is_named(missing: str) -> None:
    code = f"""
import sys
sys.modules[{missing!r}] = None
try:
    import pyspark_committer
    from pyspark.sql.types import StructType
    pyspark_committer.DefaultSource({{"path": "/tmp/never"}}).writer(StructType(), False)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )
    assert f"UnsupportedError the Spark binding needs {missing}" in done.stdout
    assert "pip install 'lake-committer[spark]'" in done.stdout
