"""Checks `_SUCCESS` when it appears, and when all jobs of a destination are over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from committer_testing.simulate.contents import Files
from committer_testing.simulate.watch import JobWatch, speaker_of


def is_same_marker(marker: bytes | None, old: bytes | None) -> bool:
    """Whether a marker is the old one; a rollback on objects puts it back with a blank more."""
    return marker == old or (marker is not None and old is not None and marker.rstrip(b" ") == old.rstrip(b" "))


def may_be_incomplete(speaker: JobWatch, jobs: Iterable[JobWatch]) -> bool:
    """Whether files that a `_SUCCESS` names may be gone.

    Another job replaced them that writes no `_SUCCESS`, or that replaces single files. Or, on objects only, a driver
    stood still before it created the marker, and the job that replaces its files has not ended (E1).
    """
    for other in jobs:
        if other is speaker or not other.decided:
            continue
        config = other.ledger.config
        if config.existing_target == "replace" or (other.replacing and not config.mark_successful_jobs):
            return True
        if other.on_objects and other.replacing and other.unfinished:
            return True
    return False


def wrong_at_the_end(marker: bytes | None, old: bytes | None, jobs: Mapping[str, JobWatch], visible: Files) -> str:
    """What is wrong with a `_SUCCESS`, or with there being none; empty where nothing is.

    Args:
        marker: What exists there; None where nothing does.
        old: What existed there before the jobs.
        jobs: The jobs of the destination.
        visible: What readers see beside it.
    """
    marking = [watch for watch in jobs.values() if watch.committed and watch.ledger.config.mark_successful_jobs]
    if not marking:
        return "" if is_same_marker(marker, old) else "G4, G9: no job that writes _SUCCESS committed, and it changed"
    speaks = speaker_of(marker, jobs.values())
    if speaks not in marking:
        return "G9: a job committed and _SUCCESS does not say so"
    if not speaks.ledger.is_complete(visible) and not may_be_incomplete(speaks, jobs.values()):
        return f"G9: _SUCCESS is of {speaks.job_id}, and its files are gone"
    return ""
