"""One Spark session for all of these tests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from committer.errors import UnsupportedError
from committer.spark.examining import configure_environment
from committer.spark.protocol_jar import jar_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Use = Callable[[str], None]

HERE = Path(__file__).parent
TIME_ZONE = "America/New_York"
PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"
SPARKS_OWN = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"

if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.hookimpl(tryfirst=True)  # before `-m` selects, and before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and str(item.path).startswith(f"{HERE}{os.sep}"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.java)
            # PySpark's own remark about the version of one of its dependencies.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))


@pytest.fixture(scope="session", autouse=True)
def compiled_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Every Python process of Spark's imports pandas and pyarrow; where no compiled code may be written beside them, that
    # takes longer than all else. One place for the workers of xdist.
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        if "PYTHONPYCACHEPREFIX" not in os.environ:
            environment.setenv("PYTHONPYCACHEPREFIX", str(shared / "pycache"))
        yield


@pytest.fixture(scope="session")
def spark(compiled_code: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        # What configure_environment sets is taken back afterwards.
        environment.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
        environment.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        # Without a UTF-8 locale Java cannot spell file names beyond ASCII.
        environment.setenv("LC_ALL", "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8")
        try:
            configure_environment()
        except UnsupportedError as error:
            pytest.skip(str(error))
        # Java starts Python workers where it was started itself, and they find the module of their daemon there.
        with warnings.catch_warnings(), contextlib.chdir(HERE.parents[1]):
            # PySpark's own remarks about the versions of its dependencies.
            warnings.simplefilter("ignore")
            session = _start(tmp_path_factory.mktemp("warehouse"))
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def active_session(request: pytest.FixtureRequest) -> None:
    # Spark looks for Python data sources in the active session of the calling thread, and a test that interrupts a write,
    # or writes from other threads, may leave this one without.
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        # The settings that this package's own writers go by: a snippet of a page, or a test that failed, may leave them.
        session.conf.set(PROTOCOL_KEY, SPARKS_OWN)
        for left in "spark.sql.sources.partitionOverwriteMode", "spark.sql.caseSensitive":
            session.conf.unset(left)


@pytest.fixture
def committing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, whose own writers commit through this package."""
    from committer.spark import configure

    if not _jar():
        pytest.skip("there is no JDK to build the jar of the commit protocol with")
    yield configure(spark)
    configure(spark)  # without the choices that the test made
    spark.conf.set(PROTOCOL_KEY, SPARKS_OWN)


@pytest.fixture
def use_python(committing: SparkSession) -> Iterator[Use]:
    """Says which interpreter the JVM starts; in place of this process, which is not registered any more."""
    jvm = committing.sparkContext._jvm
    assert jvm is not None
    jvm.io.github.lakecommitter.spark.Driver.register(None)
    conf = committing.sparkContext._jsc.sc().conf()
    yield lambda python: conf.set("spark.committer.python", python)
    conf.remove("spark.committer.python")


def wrapper(path: Path, command: str) -> str:
    """An interpreter that does something else, too."""
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return str(path)


def _jar() -> str:
    try:
        return jar_path()
    except UnsupportedError:
        return ""


def _start(warehouse: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    session = (
        # Two tries a task: local[2] would give it only one, and a cluster's four only take longer to fail.
        SparkSession.builder.master("local[2,2]")
        .appName("committer tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.python.daemon.module", "tests.spark.preloaded")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dsun.jnu.encoding=UTF-8")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", TIME_ZONE)
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.jars", _jar())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session
