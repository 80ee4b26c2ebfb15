"""examples/spark_foreach_partition.py, run as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import committer

ROOT = Path(committer.__file__).parent.parent
SCRIPT = ROOT / "examples" / "spark_foreach_partition.py"

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_task_fails_and_every_record_is_there_once(tmp_path: Path) -> None:
    done = run(str(tmp_path / "sales"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"job [0-9a-f-]{36} committed 14 files, 5,840 bytes", first)
    assert second == f"365 records, 365 of them different, in {tmp_path / 'sales'}"
    assert sorted(path.name for path in (tmp_path / "sales").iterdir()) == sorted(
        ["_SUCCESS", *(f"month={month}" for month in range(1, 13))]
    )


def test_a_destination_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
