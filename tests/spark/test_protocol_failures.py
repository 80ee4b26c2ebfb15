"""What fails while Spark's own writers write through the commit protocol: tasks, commits, drivers."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

import committer.spark
from committer import sync
from committer.events import JobEvent
from committer.spark import job_side
from committer.spark.jvm import building
from committer.spark.protocol_jar import jar_path

from .cluster import Driver
from .protocol_places import SCRIPT
from .trees import data_files, everything, rows_by_directory


def test_a_task_that_fails_is_run_again(committing: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            raise RuntimeError("all rows of this attempt were handed over")

    committing.conf.set("spark.sql.maxConcurrentOutputFileWriters", "10")  # else all rows are sorted first
    try:
        frame = committing.range(0, 12, 1, 2).selectExpr("id", "id % 2 p").mapInArrow(fail_once, "id long, p long")
        frame.write.partitionBy("p").parquet(str(out))
    finally:
        committing.conf.unset("spark.sql.maxConcurrentOutputFileWriters")
    assert rows_by_directory(out, "id") == {"p=0": [0, 2, 4, 6, 8, 10], "p=1": [1, 3, 5, 7, 9, 11]}
    assert len(data_files(out)) == 4
    assert not (out / "_temporary").exists()


@pytest.mark.allow_blocking("the listener takes the place of another program")
def test_a_commit_that_is_refused_aborts_the_job(committing: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    committing.range(3).write.parquet(str(out))
    taken: list[Path] = []

    def take_a_name(event: JobEvent) -> None:
        """Another program puts a file where one of the job's goes."""
        if event.stage == "job_stage_load_manifests" and not taken:
            source = next((out / "_temporary").rglob("part-00000-*.parquet"))
            taken.append(out / source.name)
            taken[0].write_bytes(b"another's")

    committer.spark.configure(committing, progress=take_a_name)
    before = everything(out)
    with pytest.raises(Exception, match=r"a file exists at part-00000-.*outcome: unchanged") as caught:
        committing.range(5).write.mode("append").parquet(str(out))
    assert "write again" in str(caught.value) or "run the job again" in str(caught.value)
    assert everything(out) == before | {taken[0].name}
    assert taken[0].read_bytes() == b"another's"


def test_a_job_that_another_process_aborts_fails_its_tasks(committing: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def abort_first(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        for job in sync.list_jobs(out):
            with sync.attach_job(out, job_id=job.job_id) as attached:
                attached.abort()

    frame = committing.range(0, 4, 1, 1).mapInArrow(abort_first, "id long")
    with pytest.raises(Exception, match=r"is over: it was committed, aborted or cleaned up|is gone, or its writer"):
        frame.write.parquet(str(out))
    assert data_files(out) == []


_UNLINKED = """
public final class UnlinkedFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {
  @Override
  public boolean exists(org.apache.hadoop.fs.Path path) {
    throw new NoClassDefFoundError("a class of the store's client");
  }
}
"""


@pytest.mark.allow_blocking("it runs the Java compiler")
def test_a_client_of_the_jvm_s_that_cannot_be_linked_leaves_no_job(committing: SparkSession, tmp_path: Path) -> None:
    """Spark aborts no job whose setup failed, and an Error of Java's is no exception."""
    source, out = tmp_path / "UnlinkedFileSystem.java", tmp_path / "out"
    source.write_text(_UNLINKED)
    command = [building.find_javac(), "-d", str(tmp_path), "-cp", f"{building.spark_jars()}/*", str(source)]
    subprocess.run(command, check=True)
    java: Any = committing.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(java.java.io.File(str(tmp_path)).toURI().toURL())
    unlinked = {"fs.file.impl": "UnlinkedFileSystem", "fs.file.impl.disable.cache": "true"}
    with pytest.raises(Exception, match="a class of the store's client") as caught:
        committing.range(2).write.mode("append").options(**unlinked).parquet(f"file://{out}")
    assert "TaskOutput.checkSeen" in str(caught.value)
    assert sync.list_jobs(out) == []


@pytest.mark.parametrize("beside", [".", "p=0"])
def test_a_file_that_a_format_writes_beside_its_own_is_not_lost(
    committing: SparkSession, tmp_path: Path, beside: str
) -> None:
    """Spark asks the protocol for one path a file, and a format may write more: its file is in no record."""
    out = tmp_path / "out"

    def write_beside(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        for attempt in out.glob("_temporary/*/00/tasks/*"):
            (attempt / beside).mkdir(exist_ok=True)
            (attempt / beside / "_KEY_MATERIAL_FOR_part-00000.json").write_text("{}")

    frame = committing.range(0, 4, 1, 1).selectExpr("id", "id % 2 p").mapInArrow(write_beside, "id long, p long")
    with pytest.raises(
        Exception, match=r"files beside those .*\(1\), .*: \S*_KEY_MATERIAL_FOR_part-00000\.json; outcome: unchanged"
    ):
        frame.write.partitionBy("p").parquet(str(out))
    assert data_files(out) == []
    assert not (out / "_temporary").exists()


def test_no_job_is_committed_on_the_main_thread(
    committing: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C raises there, and would stop a commit half way."""
    called_on: list[threading.Thread] = []

    def note(operation: str, request: str, **kwargs: Any) -> str:
        called_on.append(threading.current_thread())
        assert json.loads(request)["spark"] == committing.version
        return job_side.answered(operation, request, **kwargs)

    monkeypatch.setattr("committer.spark.protocol_session.answered", note)
    committing.range(5).write.parquet(str(tmp_path / "out"))
    assert len(called_on) == 2
    assert threading.main_thread() not in called_on


def test_a_commit_of_many_tasks(committing: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long question comes packed, which the job side does not notice."""
    asked: list[str] = []

    def note(operation: str, request: str, **kwargs: Any) -> str:
        asked.append(request)
        return job_side.answered(operation, request, **kwargs)

    monkeypatch.setattr("committer.spark.protocol_session.answered", note)
    committing.range(0, 80, 1, 80).selectExpr("id", "'é\"' text").write.parquet(str(tmp_path / "out"))
    assert len(asked[-1]) > 1 << 16
    assert len(json.loads(asked[-1])["task_commits"]) == 80
    assert rows_by_directory(tmp_path / "out", "id") == {".": list(range(80))}


def test_an_executor_with_another_jar(
    committing: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(operation: str, *args: Any, **kwargs: Any) -> str:
        answer = json.loads(job_side.answered(operation, *args, **kwargs))
        return json.dumps(answer | {"release": "older"})

    monkeypatch.setattr("committer.spark.protocol_session.answered", older)
    with pytest.raises(
        Exception, match=r"on this executor is of release \w+, the driver's of older; outcome: unchanged"
    ):
        committing.range(5).write.parquet(str(tmp_path / "out"))
    assert data_files(tmp_path / "out") == []


def test_a_commit_that_a_jar_of_another_release_asks_for() -> None:
    answer = json.loads(job_side.answered("commit", json.dumps({"spec": "", "release": "older"})))
    assert "in Spark's JVM is of release older" in answer["error"]
    assert "outcome: unchanged" in answer["error"]


@pytest.mark.parametrize("when", ["before the decision", "in the middle", "after the outcome"])
def test_a_driver_that_is_killed_in_an_overwrite(spark: SparkSession, tmp_path: Path, when: str) -> None:
    try:
        jar_path()
    except committer.CommitterError as error:
        pytest.skip(str(error))
    table = tmp_path / "table"
    spark.range(0, 30, 1, 2).selectExpr("id", "id % 3 p").write.partitionBy("p").parquet(str(table))
    old = rows_by_directory(table, "id")
    driver = Driver("local[2]", tmp_path / "driver", SCRIPT, {"SPARK_SETTINGS": "{}"})
    try:
        query = "select id, id % 3 p from range(100, 130, 1, 2)"
        driver.start("write", dest=str(table), query=query, by=["p"], mode="overwrite", killed=when)
        assert driver.process.wait(120) == -signal.SIGKILL
    finally:
        driver.close()
    (job,) = sync.list_jobs(table)
    new = {f"p={p}": [id for id in range(100, 130) if id % 3 == p] for p in range(3)}
    if when == "before the decision":
        assert job.state == "open"
        assert rows_by_directory(table, "id") == old
        with sync.attach_job(table, job_id=job.job_id) as attached:
            attached.abort()
        assert rows_by_directory(table, "id") == old
    elif when == "in the middle":
        assert job.state == "committing"
        assert sync.recover(table, job.job_id).files_committed == 6
        assert rows_by_directory(table, "id") == new
    else:
        assert job.state == "committed"
        sync.recover(table, job.job_id)
        assert rows_by_directory(table, "id") == new
        assert sync.validate(table).ok
    assert not (table / "_temporary").exists()
