"""examples/spark_overwrite.py, classic and through Connect: what it prints, and that it ends well."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import committer
from committer.errors import UnsupportedError
from committer.spark.examining import find_java

from .cluster import QUICK_JAVA

ROOT = Path(committer.__file__).parent.parent
SCRIPT = ROOT / "examples" / "spark_overwrite.py"

pytestmark = [pytest.mark.spark, pytest.mark.java]

EXPECTED = """\
three days: 9 files
the second day again: 3 files
2026-11-01: 10 orders from 0
2026-11-02: 10 orders from 1001
2026-11-03: 10 orders from 2
"""


@pytest.mark.parametrize(
    "connect",
    [False, pytest.param(True, marks=[pytest.mark.slow, pytest.mark.xdist_group("connect")])],
    ids=["classic", "connect"],
)
def test_one_day_is_replaced(connect: bool, tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None or not SCRIPT.exists():
        pytest.skip("needs the extra spark and a clone")
    if connect and importlib.util.find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio")
    try:
        find_java()
    except UnsupportedError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *(["--connect"] * connect), str(tmp_path / "orders")],
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
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == EXPECTED
