"""Overwrites inside Spark, by its own protocol and by this engine's, in small."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kept import ROOT
from benchmarks.spark_overwrite import PROTOCOLS, Shape, rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="PySpark is not installed"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no Java compiler"),
]


def test_both_sides_replace_a_table(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    sizes = ["--shape", "2x100x100", "--scale", "0.05", "--rounds", "1"]
    # A process of its own: it ends its session.
    command = [sys.executable, "-m", "benchmarks.spark_overwrite", *sizes, "--root", str(tmp_path), "--json", str(kept)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(kept.read_text())
    assert found["files"] == 10
    assert found["directories"] == 5
    assert all(len(found["sides"][side]) == 1 for side in PROTOCOLS)
    assert len(rows(found)) == 3
    assert not list(tmp_path.glob("benchmark-*"))


def test_a_share_of_a_shape() -> None:
    assert Shape.of("100x1000x1000", 0.1) == Shape(100, 100, 100)
    assert Shape.of("2x3x4", 0.01) == Shape(2, 1, 1)
