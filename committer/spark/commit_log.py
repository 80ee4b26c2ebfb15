"""Logs the progress of a commit in processes that the user does not see."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from committer.events import JobEvent
from committer.logs import job_logger

_LOG = job_logger("committer.spark")
_APART_S: Final = 5.0


def line_of(event: JobEvent) -> str:
    """Describes the progress of a commit in one line."""
    return (
        f"job {event.job_id}: {event.stage} {event.done} of {'?' if event.total is None else event.total},"
        f" {event.bytes_done} bytes, after {event.at_s:.1f} s {event.message}"
    ).rstrip()


def log_event(event: JobEvent) -> None:
    """Logs heartbeats and messages: until `_SUCCESS` exists, this log alone shows how far the commit is."""
    if event.kind in {"heartbeat", "message"}:
        _LOG.info("%s", line_of(event))


class DriverLog:
    """Listener that writes lines of one commit to the log of Spark's driver, at most one every 5 seconds.

    `note` writes a line; it runs on a thread, because the JVM may answer late.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._latest_s = 0.0

    def __call__(self, event: JobEvent) -> None:
        """Logs an event, unless the latest line is recent."""
        if event.kind == "message" or event.at_s - self._latest_s >= _APART_S:
            self._latest_s = event.at_s
            self.say(line_of(event))

    def say(self, line: str) -> None:
        """Writes a line; a failure does not affect the commit."""
        # The pool refuses work while the interpreter shuts down.
        with suppress(RuntimeError):
            _threads.submit(self._said, line)

    def _said(self, line: str) -> None:
        with suppress(Exception):
            self._note(line)


_threads: Final = ThreadPoolExecutor(1, thread_name_prefix="committer-driver-log")
