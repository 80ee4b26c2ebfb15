"""The progress of a commit as lines in a log, for processes that are not the user's."""

from __future__ import annotations

from committer.events import JobEvent
from committer.logs import job_logger

_LOG = job_logger("committer.spark")


def log_event(event: JobEvent) -> None:
    """Logs the progress of a commit.

    The process is not the user's: until `_SUCCESS` is there, its log alone says how far the commit is.
    """
    if event.kind in {"heartbeat", "message"}:
        _LOG.info(
            "job %s: %s %d of %s, %d bytes, after %.1f s %s",
            event.job_id,
            event.stage,
            event.done,
            "?" if event.total is None else event.total,
            event.bytes_done,
            event.at_s,
            event.message,
        )
