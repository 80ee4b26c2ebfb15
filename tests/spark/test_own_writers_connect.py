"""One's own writers in Spark Connect: the job is opened and committed by the client."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .cluster import environment

CLIENT_NEEDS = ["grpc", "grpc_status", "google.rpc", "zstandard"]


def _is_missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


MISSING = [name for name in CLIENT_NEEDS if _is_missing(name)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.xdist_group("connect"),
    pytest.mark.skipif(bool(MISSING), reason=f"a Spark Connect client needs {', '.join(MISSING)}, not installed here"),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_driver.py")), str(root)],
        env=environment(root / "scratch"),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


def test_it_is_spark_connect(results: dict[str, Any]) -> None:
    assert results["session"] == "pyspark.sql.connect.session"


def test_a_worker_that_exits_is_tried_again_and_empty_partitions_count(results: dict[str, Any]) -> None:
    assert results["messages"] == [3, list(range(20))]


def test_batches(results: dict[str, Any]) -> None:
    assert results["arrow"] == [2, list(range(10))]


def test_no_partition(results: dict[str, Any]) -> None:
    assert results["nothing"] == [0, ["_SUCCESS"]]


def test_a_plain_foreach_partition(results: dict[str, Any]) -> None:
    assert results["listing"] == [3, list(range(20))]


def test_a_failing_task_aborts_the_job(results: dict[str, Any]) -> None:
    assert results["bad"] == [True, []]


def test_a_streaming_frame_is_refused(results: dict[str, Any]) -> None:
    assert "foreachBatch" in results["stream"]


def test_inside_foreach_batch_on_the_server(results: dict[str, Any]) -> None:
    assert results["batches"] == list(range(20))
