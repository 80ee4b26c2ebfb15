"""doctor --spark has the executors of a cluster write, and says what they lack that the driver has."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_doctor_of_spark import examined
from tests.processes.harness import may_mount

from .cluster import standalone_cluster
from .conftest import wrapper
from .protocol_places import place_of
from .test_credential_files import PROVIDERS, credential_file
from .test_protocol_adls import KEY

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.allow_blocking("it runs the command"),
    pytest.mark.xdist_group("doctor on executors"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with"),
]

# An address that the workers of this machine reach.
DRIVER = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m"}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as master:
        yield master


def finding(of: str, printed: str) -> str:
    """The one line that says what was found out about it."""
    (line,) = [line for line in printed.splitlines() if line.startswith(of)]
    return line


def test_each_executor_writes(master: str, tmp_path: Path) -> None:
    done = examined(
        str(tmp_path / "new"), tmp_path / "conf", {**DRIVER, "spark.master": master}, PYSPARK_PYTHON=sys.executable
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"executors of {master}" in done.stdout
    assert "2 of 2 took tasks: 0 at 127.0.0." in done.stdout
    assert "4 task(s) wrote into a job, which was aborted" in done.stdout
    assert f"by {sys.executable}" in done.stdout
    assert not (tmp_path / "new").exists()


def test_the_master_of_the_arguments_and_a_python_that_lacks_the_package(tmp_path: Path) -> None:
    """Spark's own writers need none there: a warning."""
    done = examined(
        str(tmp_path / "new"),
        tmp_path / "conf",
        {"spark.master": "spark://nowhere:1"},
        PYSPARK_PYTHON=wrapper(tmp_path / "python", f'exec "{sys.executable}" -S "$@"'),
        PYSPARK_SUBMIT_ARGS="--master local[2] pyspark-shell",
        LC_ALL="C",
    )
    assert "warning" in finding("file names", done.stdout)
    assert "set LC_ALL=C.UTF-8" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tasks run in the driver's JVM (local mode); 2 task(s) wrote" in done.stdout
    line = finding("Python on executors", done.stdout)
    assert "warning" in line
    assert "No module named" in line
    assert "PYSPARK_PYTHON" in done.stdout
    assert "Spark's own writers do not" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_an_executor_that_sees_another_disk(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("nothing can be mounted here")
    (tmp_path / "lake").mkdir()
    elsewhere = f'mount -t tmpfs none "{tmp_path}/lake" && exec "{sys.executable}" "$0" "$@"'
    python = wrapper(tmp_path / "python", f"exec unshare -m --propagation private sh -c '{elsewhere}' \"$@\"")
    done = examined(
        str(tmp_path / "lake/new"),
        tmp_path / "conf",
        {},
        PYSPARK_PYTHON=python,
        PYSPARK_SUBMIT_ARGS="--master local[2] pyspark-shell",
    )
    line = finding("Python on executors", done.stdout)
    assert "warning" in line
    assert "does not see the job that the driver set up" in line
    assert "at the same path on each machine" in done.stdout
    assert list((tmp_path / "lake").iterdir()) == []


def test_a_password_that_only_the_driver_has(master: str, tmp_path: Path) -> None:
    password = {"HADOOP_CREDSTORE_PASSWORD": "of the driver"}
    with place_of("abfs", tmp_path / "server", key=KEY) as place:
        (name,) = [name for name, value in place.hadoop.items() if value == KEY]
        del place.hadoop[name]
        hadoop = {**place.hadoop, PROVIDERS: credential_file(tmp_path, {name: KEY}, **password)}
        settings = {
            **DRIVER,
            "spark.master": master,
            "spark.jars": ",".join(map(str, place.jars)),
            **{f"spark.hadoop.{key}": value for key, value in hadoop.items()},
        }
        done = examined(place.uri("t"), tmp_path / "conf", settings, PYSPARK_PYTHON=sys.executable, **password)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "the JVM sees the job that Python set up" in done.stdout
        line = finding("executors", done.stdout)
        assert "failed" in line
        assert "on executor " in line
        assert "no variable of its environment (HADOOP_CREDSTORE_PASSWORD)" in done.stdout
        assert KEY not in done.stdout + done.stderr
        assert place.read("t") == {}
