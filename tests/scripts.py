"""Python scripts that tests run in processes of their own, because these fork, exit or are interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import committer

ROOT = Path(committer.__file__).parent.parent
LIMIT_S = 300


def start(tmp_path: Path, prelude: str, body: str) -> subprocess.Popen[str]:
    """Starts a script, whose first argument is the directory ``out``."""
    script = tmp_path / "script.py"
    script.write_text(prelude + textwrap.dedent(body))
    # Whatever a warning would print counts as printed; but newer Pythons warn of every fork beside threads.
    strict = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *strict, str(script), str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], *, code: int = 0) -> str:
    """Waits for a script that ends with `code`, and nothing on standard error; returns what it printed."""
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        # Its children hold the pipes too.
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"hung; printed {process.communicate()}")
    assert (process.returncode, errors) == (code, ""), output + errors
    return output


def visible(root: Path) -> list[str]:
    """The names that a reader sees."""
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("_"))
