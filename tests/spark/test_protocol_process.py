"""Drivers without Python of their own: the job side in a process that the JVM starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from committer import sync
from committer.spark import jar_path
from committer.spark.protocol_session import PROTOCOL

from .conftest import Use, wrapper
from .trees import data_files, everything, rows_by_directory


def test_a_process_sets_up_commits_and_aborts(committing: SparkSession, use_python: Use, tmp_path: Path) -> None:
    out = tmp_path / "out"
    use_python(sys.executable)
    committing.range(6).selectExpr("id", "id % 2 p").write.partitionBy("p").parquet(str(out))
    assert rows_by_directory(out, "id") == {"p=0": [0, 2, 4], "p=1": [1, 3, 5]}
    assert sync.validate(out).ok
    before = everything(out)
    with pytest.raises(Exception, match="boom"):
        committing.sql("select raise_error('boom') id").write.mode("overwrite").parquet(str(out))
    assert everything(out) == before
    with pytest.raises(Exception, match="durability='fsync' cannot be had"):
        committing.range(1).write.mode("append").option("committer.durability", "fsync").parquet(str(out))


@pytest.mark.allow_blocking("it starts the process that a JVM would")
def test_the_answer_is_utf_8_and_nothing_else(tmp_path: Path) -> None:
    noisy = """
import os, sys
from committer.spark import job_side
answer = job_side.answered
def noise(*asked):
    print("a library's print")
    os.system("echo from a child")
    return answer(*asked)
job_side.answered = noise
sys.argv = ["job_side", "setup"]
job_side.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", noisy],
        input=json.dumps(
            {"job_id": "j", "destination": "gs://é", "dynamic": False, "superseded": [], "options": {}, "release": "é"}
        ).encode(),
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=100,
        check=True,
    )
    assert "is of release é" in json.loads(done.stdout.decode())["error"]
    assert b"a library's print" in done.stderr
    assert b"from a child" in done.stderr


def test_what_is_wrong_with_the_interpreter_is_said(committing: SparkSession, use_python: Use, tmp_path: Path) -> None:
    frame, out = committing.range(1), tmp_path / "out"
    with pytest.raises(Exception, match=r"no Python process commits the jobs of this JVM.*spark\.committer\.python"):
        frame.write.parquet(str(out))
    use_python(str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match=r"nowhere of spark\.committer\.python cannot be started.*outcome: unchanged"):
        frame.write.parquet(str(out))
    use_python(wrapper(tmp_path / "bare", f'exec {sys.executable} -I -S "$@"'))
    with pytest.raises(Exception, match=r"exit code 1: .*No module named 'committer'.*outcome: unchanged.*pip install"):
        frame.write.parquet(str(out))
    assert not out.exists()


def test_a_process_that_dies_in_the_commit(committing: SparkSession, use_python: Use, tmp_path: Path) -> None:
    """The outcome of the commit is unknown: the job stays as it is, and the error says how to find out."""
    out = tmp_path / "out"
    python = wrapper(
        tmp_path / "dies", f'[ "$4" = commit ] && kill -9 $$\n[ "$4" = abort ] && exit 3\nexec {sys.executable} "$@"'
    )
    use_python(python)
    with pytest.raises(Exception, match=r"exit code 137: .*outcome: unknown; next step: `committer jobs .*out`"):
        committing.range(4).write.parquet(str(out))
    (job,) = sync.list_jobs(out)
    assert job.state == "open"
    assert data_files(out) == []


@pytest.mark.parametrize("answer", ["", "null", "0", "{}", "no JSON", '{"committed": "another"}'])
def test_a_commit_without_its_answer_is_no_success(
    committing: SparkSession, use_python: Use, tmp_path: Path, answer: str
) -> None:
    out = tmp_path / "out"
    silent = f'[ "$4" != setup ] && {{ printf %s \'{answer}\'; exit 0; }}\nexec {sys.executable} "$@"'
    use_python(wrapper(tmp_path / "silent", silent))
    told = (
        r"asked to commit job (\S+) at .*outcome: unknown; next step: `committer jobs .*`committer recover \S*out \1`"
    )
    with pytest.raises(Exception, match=told):
        committing.range(2).write.parquet(str(out))
    assert data_files(out) == []
    assert [job.state for job in sync.list_jobs(out)] == ["open"]


@pytest.mark.allow_blocking("it waits for the process that commits")
def test_an_interrupt_leaves_a_commit_alone(committing: SparkSession, use_python: Use, tmp_path: Path) -> None:
    """Spark interrupts the Java thread that writes: the commit goes on, and its answer counts."""
    out, begun, go_on = tmp_path / "out", tmp_path / "begun", tmp_path / "go_on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    wait = f'[ "$4" = commit ] && {{ echo > {begun}; read line < {go_on}; }}\nexec {sys.executable} "$@"'
    use_python(wrapper(tmp_path / "waits", wait))
    thread = committing.sparkContext._jvm.java.lang.Thread  # type: ignore[union-attr]
    writing = thread.currentThread()

    def interrupt() -> None:
        begun.read_text()
        writing.interrupt()
        go_on.write_text("\n")

    other = threading.Thread(target=interrupt, daemon=True)
    other.start()
    try:
        committing.range(5).write.parquet(str(out))
    finally:
        interrupted = thread.interrupted()
    other.join()
    assert interrupted
    assert rows_by_directory(out, "id") == {".": [0, 1, 2, 3, 4]}


def test_a_setup_without_its_answer(committing: SparkSession, use_python: Use, tmp_path: Path) -> None:
    use_python(wrapper(tmp_path / "silent", "exit 0"))
    with pytest.raises(Exception, match=r"asked to set up job .*outcome: unchanged; next step: put right what it says"):
        committing.range(2).write.parquet(str(tmp_path / "out"))


def test_modules_in_the_working_directory_are_not_the_engine(
    committing: SparkSession, use_python: Use, tmp_path: Path
) -> None:
    out, stranger = tmp_path / "out", tmp_path / "work" / "committer"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").write_text("raise SystemExit('another package')")
    use_python(wrapper(tmp_path / "there", f'cd {stranger.parent}\nexec {sys.executable} "$@"'))
    committing.range(2).write.parquet(str(out))
    assert len(data_files(out)) == 2


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with")
def test_spark_sql_with_a_catalog_in_derby(tmp_path: Path) -> None:
    import pyspark

    asked = tmp_path / "asked"
    statements = [
        "create table t (id bigint, p int) using parquet partitioned by (p)",
        "insert into t select id, id % 3 from range(9)",
        "insert overwrite t partition (p = 1) select 100",
        "create table h (id bigint) partitioned by (p int) stored as parquet",
        "set hive.exec.dynamic.partition.mode=nonstrict",
        "insert into h select id, id % 3 from range(9)",
        "insert overwrite h partition (p = 2) select 200",
        # Hive moves what is written to it into its own tables from a directory beside them, also for an overwrite.
        "create table x (id bigint) stored as textfile",
        "insert into x select id from range(4)",
        "insert overwrite x select 300",
        "select concat('t', p, ':', count(*), ':', max(id)) from t group by p",
        "select concat('h', p, ':', count(*), ':', max(id)) from h group by p",
        "select concat('x:', count(*), ':', max(id)) from x",
    ]
    settings = {
        "spark.sql.sources.commitProtocolClass": PROTOCOL,
        "spark.committer.python": wrapper(tmp_path / "python", f'tee -a {asked} | {sys.executable} "$@"'),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-sql"), "--master", "local[2]", "--jars", jar_path()]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    done = subprocess.run(
        [*command, "-e", "; ".join(statements)],
        cwd=tmp_path,
        env={**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent)},
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = {line for line in done.stdout.splitlines() if ":" in line}
    assert told >= {"t0:3:6", "t1:1:100", "t2:3:8", "h0:3:6", "h1:3:7", "h2:1:200", "x:1:300"}
    assert sync.validate(tmp_path / "warehouse" / "t").ok
    assert sync.validate(tmp_path / "warehouse" / "h").ok
    destinations = re.findall(r'"destination":"file:[^"]*/warehouse/([^"]*)"', asked.read_text())
    assert {place for place in destinations if ".hive-staging" not in place} == {"t", "h"}
    assert [place.partition("/")[0] for place in destinations if ".hive-staging" in place] == ["x", "x"]
    assert not list((tmp_path / "warehouse").rglob("_temporary"))
