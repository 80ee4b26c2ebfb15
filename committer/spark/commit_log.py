"""The progress of a commit as lines in a log, for processes that are not the user's."""

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
    """How far a commit is."""
    return (
        f"job {event.job_id}: {event.stage} {event.done} of {'?' if event.total is None else event.total},"
        f" {event.bytes_done} bytes, after {event.at_s:.1f} s {event.message}"
    ).rstrip()


def log_event(event: JobEvent) -> None:
    """Logs the progress of a commit.

    The process is not the user's: until `_SUCCESS` is there, its log alone says how far the commit is.
    """
    if event.kind in {"heartbeat", "message"}:
        _LOG.info("%s", line_of(event))


class DriverLog:
    """Lines of one commit in the log of Spark's driver, one every few seconds.

    Args:
        note: Writes a line there. It is called on a thread, since the JVM answers when it likes.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._latest_s = 0.0

    def __call__(self, event: JobEvent) -> None:
        """Notes an event, unless the latest line is only a moment old."""
        if event.kind == "message" or event.at_s - self._latest_s >= _APART_S:
            self._latest_s = event.at_s
            self.say(line_of(event))

    def say(self, line: str) -> None:
        """Notes a line. What becomes of it is no matter of the commit's."""
        # No thread takes it while the interpreter ends.
        with suppress(RuntimeError):
            _threads.submit(self._said, line)

    def _said(self, line: str) -> None:
        with suppress(Exception):
            self._note(line)


_threads: Final = ThreadPoolExecutor(1, thread_name_prefix="committer-driver-log")
