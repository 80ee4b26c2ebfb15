"""Interpreters of Spark's that lack something: the error says what, where, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, PySparkImportError, PythonException
from pyspark.sql import SparkSession

import committer
import committer.spark
from committer.errors import UnsupportedError
from committer.spark.sessions import missing_in_worker

from .conftest import wrapper
from .trees import data_files, everything


def python_without(module: str, root: Path) -> str:
    """The interpreter of an environment that has all that this one has, but for one module."""
    venv.create(root, symlinks=True)
    packages = next(root.glob("lib/python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        # Names of modules, and the file by which a clone is installed.
        if entry.name.partition(".")[0] != module and not (module == "committer" and "lake_committer" in entry.name):
            (packages / entry.name).symlink_to(entry)
    # Spark's processes look into the current directory too, where these tests run in a clone.
    python = shlex.quote(str(root / "bin" / "python"))
    # Its daemon is Spark's own: that of these tests imports what is missing here, or is not found.
    own = 'if [ "$2" = tests.spark.preloaded ]; then shift 2; set -- -m pyspark.daemon "$@"; fi'
    return wrapper(root / "python.sh", f'unset PYTHONPATH\n{own}\nPYTHONSAFEPATH=1 exec {python} "$@"')


def executors_with(python: str, root: Path) -> str:
    """A `python` that is another one for tasks than for what Spark asks of a data source beside its driver."""
    here, there = shlex.quote(sys.executable), shlex.quote(python)
    return wrapper(root, f'case "$*" in *pyspark.sql.worker*) exec {here} "$@" ;; *) exec {there} "$@" ;; esac')


def test_the_extra_brings_what_pyspark_asks_for_here() -> None:
    """foreach_partition runs through mapInArrow, which takes pandas and pyarrow of the driver's interpreter."""
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    names = {re.split(r"[^\w-]", one)[0] for one in pyproject["project"]["optional-dependencies"]["spark"]}
    assert {"pandas", "pyarrow", "pyspark"} <= names


def test_an_interpreter_that_is_not_there(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = str(tmp_path / "python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", nowhere)
    spark.dataSource.register(committer.spark.CommitterDataSource)
    for call in (
        lambda: committer.spark.write(spark.range(2), tmp_path / "t", writer="python"),
        lambda: committer.spark.foreach_partition(spark.range(2), tmp_path / "u", lambda rows, task: None),
    ):
        with pytest.raises(UnsupportedError, match=rf"cannot start the Python interpreter {nowhere}; .*PYSPARK_PYTHON"):
            call()
    monkeypatch.undo()
    spark.dataSource.register(committer.spark.CommitterDataSource)
    assert not data_files(tmp_path / "t")


# --- In the tests' own session: what runs functions is chosen anew for each ------------------------------------------


@pytest.fixture(params=["pyarrow", "committer"])
def missing(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The module that Spark's tasks cannot import in this test."""
    module: str = request.param
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_without(module, tmp_path / "python"))
    return module


def test_one_s_own_writers(spark: SparkSession, tmp_path: Path, missing: str) -> None:
    with pytest.raises(UnsupportedError, match=f"Spark's Python workers cannot import {missing}") as raised:
        committer.spark.foreach_partition(spark.range(3), tmp_path / "t", lambda rows, task: None)
    assert raised.value.outcome == "unchanged"
    assert "PYSPARK_PYTHON" in raised.value.next_step
    assert isinstance(raised.value.__cause__, PythonException)
    assert everything(tmp_path / "t") == set()


def test_a_write_finds_its_report_without_spark_s_workers(spark: SparkSession, tmp_path: Path, missing: str) -> None:
    # The data source that Spark found by itself runs another interpreter than functions, and this one has everything.
    report = committer.spark.write(spark.range(3), tmp_path / "t")
    assert report.files_committed == len(data_files(tmp_path / "t")) > 0


def test_a_write_whose_report_cannot_be_fetched_says_that_it_is_committed(
    spark: SparkSession, tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the caller does not reach the store: then a Spark task has to.
    monkeypatch.setattr("committer.spark.fetching._report_from_here", lambda options, job_id: None)
    with pytest.raises(UnsupportedError, match=f"cannot import {missing}") as raised:
        committer.spark.write(spark.range(3), tmp_path / "t", job_id="written")
    assert raised.value.outcome == "committed"
    assert raised.value.next_step.startswith("do not write again")
    assert "'written') returns it" in raised.value.__notes__[0]
    assert asyncio.run(committer.recover(tmp_path / "t", "written")).files_committed == len(data_files(tmp_path / "t"))


def test_modules_of_others_are_spark_s_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    def write(rows: Any, task: Any) -> None:
        import no_such_module  # noqa: F401

    with pytest.raises(PythonException, match="No module named 'no_such_module'"):
        committer.spark.foreach_partition(spark.range(1), tmp_path / "t", write)


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("Traceback:\nModuleNotFoundError: No module named 'msgspec'\n", "msgspec"),
        ("ModuleNotFoundError: No module named 'committer.spark.sessions'", "committer.spark.sessions"),
        ("ModuleNotFoundError: No module named 'committer_of_mine'", None),
        ("ModuleNotFoundError: No module named 'pyarrow'\n\nDuring handling\nValueError: 1\n", "pyarrow"),
        ("No module named 'pyarrow', it was said", None),
    ],
)
def test_what_is_missing_is_read_from_spark_s_text(text: str, module: str | None) -> None:
    found = missing_in_worker(RuntimeError(text))
    assert (found.message.split(":")[0].rpartition(" ")[2] if found else None) == module


@pytest.mark.parametrize(("action", "told"), [("initialize", True), ("commit or abort", False)])
def test_after_a_commit_nothing_is_certain(action: str, told: bool) -> None:
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'anyio'\n"
    parameters = {"action": action, "type": "write", "msg": text}
    error = PySparkException(text, errorClass="PYTHON_DATA_SOURCE_ERROR", messageParameters=parameters)
    assert (missing_in_worker(error) is not None) is told


def test_spark_s_own_words_for_arrow() -> None:
    said = PySparkImportError(
        errorClass="PACKAGE_NOT_INSTALLED", messageParameters={"package_name": "PyArrow", "minimum_version": "18.0.0"}
    )
    assert "cannot import pyarrow" in str(missing_in_worker(said))


# --- In sessions of their own: which interpreter runs the data source is settled when Java starts ---------------------

SCRIPT = """
import json, os, sys, warnings

warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
import committer.spark

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
root = sys.argv[1]


def told(call):
    try:
        return ["committed", str(call())]
    except Exception as error:
        return [type(error).__name__, str(error)]


format = spark.range(3).write.format("committer").mode("append")
write = committer.spark.write
print(json.dumps({
    "format": told(lambda: format.save(root + "/format")),
    "write": told(lambda: write(spark.range(3), root + "/write").files_committed),
    "ignore": told(lambda: write(spark.range(3), root + "/write", mode="ignore").job_id),
    "format again": told(lambda: format.save(root + "/again")),
    "left": sorted(name for name in os.listdir(root) if os.path.isdir(f"{root}/{name}") and os.listdir(f"{root}/{name}")),
}))
"""


def told_by_a_session(root: Path, **variables: str) -> dict[str, Any]:
    from .cluster import environment

    dest = root / "tables"
    dest.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(dest)],
        env={**environment(root / "scratch"), "PYTHONPATH": "", **variables},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("module", ["pyarrow", "committer"])
def test_executors_that_lack_a_module(tmp_path: Path, module: str) -> None:
    python = executors_with(python_without(module, tmp_path / "python"), tmp_path / "python.sh")
    told = told_by_a_session(tmp_path, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    assert told["format"][0] == "PythonException"
    assert f"ModuleNotFoundError: No module named '{module}'" in told["format"][1]
    for call in ("write", "ignore"):
        assert told[call][0] == "UnsupportedError"
        assert f"Spark's Python workers cannot import {module}" in told[call][1]
        assert "outcome: unchanged" in told[call][1]
    assert told["left"] == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
def test_a_driver_s_python_that_is_none(tmp_path: Path) -> None:
    """As with PYSPARK_DRIVER_PYTHON=jupyter: Spark does not find the data source, and `write` registers it."""
    told = told_by_a_session(tmp_path, PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON="/nowhere/jupyter")
    assert "[DATA_SOURCE_NOT_FOUND]" in told["format"][1]
    assert told["write"][0] == told["ignore"][0] == told["format again"][0] == "committed"
    assert told["left"] == ["again", "write"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.java
def test_no_python_of_spark_s_has_this_package(tmp_path: Path) -> None:
    python = python_without("committer", tmp_path / "python")
    told = told_by_a_session(tmp_path, PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    assert "[DATA_SOURCE_NOT_FOUND]" in told["format"][1]
    assert told["write"][0] == "UnsupportedError"
    assert "cannot import committer" in told["write"][1]
    assert told["left"] == []
