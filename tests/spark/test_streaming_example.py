"""examples/spark_streaming.py: what it prints, and that it ends well."""

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

SCRIPT = Path(committer.__file__).parent.parent / "examples" / "spark_streaming.py"

EXPECTED = """\
data source: three batches: 90 orders in 9 files
data source: the last one came again: 90 orders in 9 files
data source: and a fourth: 120 orders in 12 files
data source: outcomes kept: 2
foreach_batch: three batches: 90 orders in 9 files
foreach_batch: the last one came again: 90 orders in 9 files
foreach_batch: and a fourth: 120 orders in 12 files
foreach_batch: outcomes kept: 2
"""


@pytest.mark.spark
@pytest.mark.java
def test_every_order_arrives_once(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None or not SCRIPT.exists():
        pytest.skip("needs the extra spark and a clone")
    try:
        find_java()
    except UnsupportedError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "orders")],
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == EXPECTED
