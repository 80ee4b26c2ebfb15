"""Spark Connect: the same calls, from a client that has no SparkContext. One server for all of it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import UnsupportedError
from committer.spark.examining import find_java
from committer.spark.protocol_jar import jar_path
from committer.spark.protocol_session import PROTOCOL, PROTOCOL_KEY

from .cluster import QUICK_JAVA
from .trees import data_files, rows_by_directory

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.xdist_group("connect")]

if importlib.util.find_spec("grpc") is None:
    pytest.skip("Spark Connect needs grpcio", allow_module_level=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("connect")
    try:
        home = str(find_java())
    except UnsupportedError as error:
        pytest.skip(str(error))
    environment = {
        **os.environ,
        "JAVA_HOME": home,
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "LC_ALL": "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(root / "conf"),
    }
    environment.pop("SPARK_REMOTE", None)
    (root / "conf").mkdir()
    (root / "conf" / "spark-defaults.conf").write_text(defaults())
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_script.py")), str(root)],
        capture_output=True,
        text=True,
        check=False,
        timeout=230,
        env=environment,
        cwd=root,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "root": root}


def defaults() -> str:
    """What the page of Spark says of a server of Spark Connect; nothing where the jar cannot be had."""
    try:
        jar = jar_path()
    except UnsupportedError:
        return ""
    settings = {"spark.jars": jar, PROTOCOL_KEY: PROTOCOL, "spark.committer.python": sys.executable}
    return "".join(f"{key} {value}\n" for key, value in settings.items())


def check_write_returns_the_jobs_report(found: dict[str, Any]) -> None:
    assert found["session"].startswith("pyspark.sql.connect")
    success, job_id, files, size = found["report"]
    assert (success, job_id, files) == (True, "connect-1", 6)
    assert size > 0
    assert found["rows"] == 6


def check_modes(found: dict[str, Any]) -> None:
    kind, text, *_ = found["error"]
    assert (kind, "holds data already" in text) == ("TargetExistsError", True)
    assert found["ignored"] == ""
    kind, text, *_ = found["undecided"]
    assert (kind, "it is not said whether" in text) == ("ConfigurationError", True)
    dynamic = [[0, 0], [3, 0], [101, 1], [104, 1], [2, 2], [5, 2]]
    appended = [[v, v % 3] for v in range(6)]
    assert found["values"] == sorted(dynamic + appended)
    assert not (found["root"] / "t" / "_temporary").exists()


def check_a_path_without_scheme_is_the_servers(found: dict[str, Any]) -> None:
    told = found["without scheme"]
    assert told["relative"] == ["own", "write"]
    # Resolved, and of no store of this package.
    assert "no store is known for viewfs" in told["viewfs"][1]
    kind, text, *_ = told["silent"]
    assert (kind, "give the URI: file:///data/x" in text) == ("InvalidPathError", True)
    assert not Path("/data/x").exists()


def check_what_spark_says_before_it_asks_the_data_source(found: dict[str, Any]) -> None:
    kind, text, *_ = found["partitionBy"]
    assert (kind, "provided partitioning" in text) == ("IllegalArgumentException", True)
    kind, text, *_ = found["default mode"]
    assert (kind, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in text) == ("AnalysisException", True)


def check_an_interrupted_commit_goes_on(found: dict[str, Any]) -> None:
    _kind, text, *notes = found["interrupted"]
    assert "OPERATION_CANCELED" in text
    assert any("committer.sync.recover" in note and "'connect-2'" in note for note in notes)
    dest = found["root"] / "interrupted"
    report = asyncio.run(committer.recover(dest, "connect-2"))
    assert (report.success, report.files_committed) == (True, 40)
    assert len(data_files(dest)) == 40
    assert sum(map(len, rows_by_directory(dest, "v").values())) == 40


def check_spark_s_own_writers(found: dict[str, Any]) -> None:
    if not defaults():
        return
    told, dest = found["spark's own"], found["root"] / "spark"
    assert told == {"failed": [], "rows": [[1, 1], [2, 2], [4, 1], [5, 2]], "sql": [7]}
    assert asyncio.run(committer.validate(dest)).ok
    assert asyncio.run(committer.validate(f"{dest}-sql")).ok


def check_one_s_own_writers(found: dict[str, Any]) -> None:
    assert found["own"] == [2, ["part-0.txt", "part-1.txt"]]


def check_streams(found: dict[str, Any]) -> None:
    for told in found["streams"].values():
        assert told["rows"] == [0, 1, 2, 10, 11, 12]
        before, after = told["repeated"]
        assert after == before != []
        assert told["noted"] == ["0", "1"]
    _kind, text, *_ = found["no query"]
    assert "which query this batch belongs to cannot be told here" in text
    assert 'foreach_batch(..., query="...")' in text


def check_nothing_of_a_classic_session_is_asked_for(found: dict[str, Any]) -> None:
    assert found["touched"] == []
    assert {told["touched"] for told in found["streams"].values()} == {""}


def test_connect(found: dict[str, Any]) -> None:
    # One test, since a server takes one port of the machine and half a minute: spread over workers there would be two.
    check_write_returns_the_jobs_report(found)
    check_modes(found)
    check_a_path_without_scheme_is_the_servers(found)
    check_what_spark_says_before_it_asks_the_data_source(found)
    check_spark_s_own_writers(found)
    check_one_s_own_writers(found)
    check_streams(found)
    check_an_interrupted_commit_goes_on(found)
    check_nothing_of_a_classic_session_is_asked_for(found)


def test_xdist_knows_these_tests_as_one_group(request: pytest.FixtureRequest) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("runs in a worker of xdist")
    assert request.node.nodeid.endswith("@connect")
