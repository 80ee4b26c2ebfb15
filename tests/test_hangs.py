"""What becomes of a test that hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HANGING = """
import time
from tests.hangs import HangingTests

watch = HangingTests(0.5, 0.5)
watch.pytest_runtest_protocol()
{before}
time.sleep(100)
"""

# pytest ends the watch before it shows a failure; the next test begins at once.
AFTER_A_FAILURE = """
import faulthandler
faulthandler.cancel_dump_traceback_later()
watch.pytest_exception_interact()
watch.pytest_runtest_protocol()
"""


@pytest.mark.parametrize("before", ["", AFTER_A_FAILURE], ids=["the first", "after a failure"])
def test_a_hanging_test_says_where_and_ends_the_run(before: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING.format(before=before)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=90,
        check=False,
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr, ended.stderr
    assert 'File "<string>"' in ended.stderr, ended.stderr


def test_this_run_is_watched(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("hanging tests")
