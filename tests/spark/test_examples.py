"""The Spark examples, run as a user runs them: what they print, and that they end well."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import committer
from committer.errors import UnsupportedError
from committer.spark.examining import find_java

from .cluster import QUICK_JAVA

ROOT = Path(committer.__file__).parent.parent

pytestmark = [pytest.mark.spark, pytest.mark.java]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = ROOT / "examples" / script
    if importlib.util.find_spec("pyspark") is None or not path.exists():
        pytest.skip("needs the extra spark and a clone")
    if "--connect" in arguments and importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio")
    try:
        find_java()
    except UnsupportedError as error:
        pytest.skip(str(error))
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        env={
            **os.environ,
            "JAVA_TOOL_OPTIONS": QUICK_JAVA,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )


STREAMED = "".join(
    f"{way}: three batches: 90 orders in 9 files\n"
    f"{way}: the last one came again: 90 orders in 9 files\n"
    f"{way}: and a fourth: 120 orders in 12 files\n"
    f"{way}: outcomes kept: 2\n"
    for way in ("data source", "foreach_batch")
)
OVERWRITTEN = """\
three days: 9 files
the second day again: 3 files
2026-11-01: 10 orders from 0
2026-11-02: 10 orders from 1001
2026-11-03: 10 orders from 2
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(["spark_streaming.py"], STREAMED, id="streaming"),
        pytest.param(["spark_overwrite.py"], OVERWRITTEN, id="overwrite"),
        pytest.param(
            ["spark_overwrite.py", "--connect"],
            OVERWRITTEN,
            id="overwrite through Connect",
            marks=[pytest.mark.slow, pytest.mark.xdist_group("connect")],
        ),
    ],
)
def test_what_it_prints(command: list[str], expected: str, tmp_path: Path) -> None:
    done = run(*command, str(tmp_path / "orders"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == expected


@pytest.mark.slow
def test_a_task_fails_and_every_record_is_there_once(tmp_path: Path) -> None:
    done = run("spark_foreach_partition.py", str(tmp_path / "sales"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"job [0-9a-f-]{36} committed 14 files, 5,840 bytes", first)
    assert second == f"365 records, 365 of them different, in {tmp_path / 'sales'}"
    assert sorted(path.name for path in (tmp_path / "sales").iterdir()) == sorted(
        ["_SUCCESS", *(f"month={month}" for month in range(1, 13))]
    )


@pytest.mark.slow
def test_a_destination_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("spark_foreach_partition.py", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
