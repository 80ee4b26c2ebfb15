"""Spark's own writers on an emulated account: drivers that are killed, executors' attempts that die, and no secret anywhere."""

from __future__ import annotations

import base64
import shutil
import signal
import time
from pathlib import Path

import pytest

from committer import sync

from .cluster import Driver
from .protocol_places import Place, place_of
from .test_protocol_stores import rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK to build the jar with"),
]

KEY = base64.b64encode(b"the canary of the account's key").decode()
# Every Python process of Spark's writes its log there.
LOGGING = """\
import logging, os
logging.basicConfig(filename=os.environ["PYTHON_LOG"], level=logging.DEBUG, format="%(process)d %(name)s %(message)s")
"""


def talkative_driver(place: Place, scratch: Path) -> Driver:
    """A driver all of whose processes log all they can."""
    (scratch / "python").mkdir()
    (scratch / "python" / "sitecustomize.py").write_text(LOGGING)
    (scratch / "events").mkdir()
    place.settings |= {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (scratch / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.ui.explainMode": "extended",
        # Spark's own does not know Azure's keys, and its event log shows every setting.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|account[.]key",
    }
    # PySpark logs every setting that it hands to the JVM, so the key is where it does not see it.
    (name,) = [name for name, value in place.hadoop.items() if value == KEY]
    (scratch / "core-site.xml").write_text(
        f"<configuration><property><name>{name}</name><value>{place.hadoop.pop(name)}</value></property></configuration>"
    )
    variables = {
        "HADOOP_CONF_DIR": str(scratch),
        "PYTHON_LOG": str(scratch / "python.log"),
        "PYTHONPATH": str(scratch / "python"),
        "SPARK_LOG_LEVEL": "DEBUG",
    }
    return place.driver(scratch / "driver", **variables)


def shown_in(place: Place, scratch: Path) -> dict[str, bytes]:
    """All that was logged, and all that lies in the account."""
    found = {str(path): path.read_bytes() for path in scratch.rglob("*") if path.is_file() and path.suffix != ".xml"}
    return found | place.read("t")


def test_a_driver_that_is_killed_in_an_overwrite(tmp_path: Path) -> None:
    new = {f"p={p}": [id for id in range(100, 130) if id % 3 == p] for p in range(3)}
    with place_of("abfs", tmp_path / "server", key=KEY) as place:
        table = place.uri("t")
        driver = talkative_driver(place, tmp_path)
        try:
            told = driver.run("write", dest=table, query="select id, id % 3 p from range(0, 30, 1, 2)", by=["p"])
            assert "error" not in told
            driver.start(
                "write",
                dest=table,
                query="select id, id % 3 p from range(100, 130, 1, 2)",
                by=["p"],
                mode="overwrite",
                killed="in the middle",
            )
            assert driver.process.wait(120) == -signal.SIGKILL
        finally:
            driver.close()
        everything = shown_in(place, tmp_path)
        assert any(b"DEBUG" in text for text in everything.values())
        assert any(b"SparkListenerSQLExecutionStart" in text for text in everything.values())
        assert any(b"py4j" in text for name, text in everything.items() if name.endswith("python.log"))
        assert not [name for name, text in everything.items() if KEY.encode() in text]

        (job,) = sync.list_jobs(table, storage_options=place.python)
        assert job.state == "committing"
        report = sync.recover(table, job.job_id, storage_options=place.python)
        assert (report.success, report.files_committed) == (True, 6)
        assert rows(place, "t") == new
        assert sync.validate(table, storage_options=place.python).ok


def test_a_key_for_python_alone(tmp_path: Path) -> None:
    """Python authenticates by it alone: what the session holds is not tried beside it."""
    with place_of("abfs", tmp_path / "server") as place:
        driver = place.driver(tmp_path / "driver", RIGHT_KEY=str(place.python["account_key"]), WRONG_KEY="d3Jvbmc=")

        def write(key: str) -> str:
            told = driver.run(
                "write", dest=place.uri("t"), query="select 1L id", options={"committer.storage.account_key": key}
            )
            return str(told.get("error"))

        try:
            wrong = write("env:WRONG_KEY")
            assert "StorePermissionError" in wrong
            assert "outcome: unchanged" in wrong
            assert "spark.hadoop.committer.storage." in wrong
            assert "must say where its value is found" in write("a secret")
            assert "NOWHERE_TO_BE_FOUND" in write("env:NOWHERE_TO_BE_FOUND")
            assert place.read("t") == {}
            assert write("env:RIGHT_KEY") == "None"
            assert rows(place, "t") == {"": [1]}
        finally:
            driver.close()


def test_the_directories_of_a_task_are_listed_side_by_side(tmp_path: Path) -> None:
    """Each listing waits; one after the other they would take longer than the bound."""
    directories, seconds = 96, 0.4
    with place_of("abfs", tmp_path / "server") as place:
        driver = place.driver(tmp_path / "driver")
        query = f"select id, id % 4 a, id b from range(0, {directories}, 1, 1)"
        try:
            assert "error" not in driver.run("write", dest=place.uri("first"), query="select 1L id, 1 a, 1 b")
            place.server.account.control("POST", "faults", {"kind": "latency", "operation": "list", "seconds": seconds})
            began = time.monotonic()
            assert "error" not in driver.run("write", dest=place.uri("t"), query=query, by=["a", "b"])
            took = time.monotonic() - began
            (fault,) = place.server.account.control("GET", "faults")
            place.server.account.control("DELETE", "faults")
        finally:
            driver.close()
        assert fault["hits"] > directories
        assert took < directories * seconds * 2 / 3
        assert len(rows(place, "t")) == directories
