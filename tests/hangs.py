"""A test that hangs prints every stack and ends the run instead of eating the machine's time.

pytest's own way (`faulthandler_timeout`) starts and ends a thread around each test, a fifth of what a small test costs; here
one thread waits through many tests.
"""

from __future__ import annotations

import faulthandler
import os
import time
from typing import Final

import pytest

TIMEOUT_S: Final = 600.0
# The thread is started anew where a test begins so long after it; a test may hang so much longer.
RENEWED_S: Final = 30.0
_NAME: Final = "hanging tests"


def watch(config: pytest.Config) -> None:
    """Watches all tests of this process."""
    if not config.pluginmanager.has_plugin(_NAME):
        config.pluginmanager.register(HangingTests(), _NAME)


class HangingTests:
    """The watch, a plugin of pytest.

    Args:
        timeout_s: What each test has at least.
        renewed_s: What it may have beside that.
    """

    def __init__(self, timeout_s: float = TIMEOUT_S, renewed_s: float = RENEWED_S) -> None:
        self._longest_s = timeout_s + renewed_s
        self._renewed_s = renewed_s
        self._renewed_at = 0.0
        # What is captured while a test runs is lost with the process.
        self._errors = os.dup(2)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """A test begins, in this process: a process that gives tests to others does not come here."""
        now = time.monotonic()
        if now >= self._renewed_at:
            faulthandler.dump_traceback_later(self._longest_s, file=self._errors, exit=True)
            self._renewed_at = now + self._renewed_s

    def pytest_exception_interact(self) -> None:
        """pytest itself ended the watch before it showed a failure."""
        self._renewed_at = 0.0

    def pytest_enter_pdb(self) -> None:
        """The same."""
        self._renewed_at = 0.0

    def pytest_unconfigure(self) -> None:
        """Ends the watch."""
        faulthandler.cancel_dump_traceback_later()
        os.close(self._errors)
