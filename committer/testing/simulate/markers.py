"""What `_SUCCESS` must say when all jobs of a destination are over."""

from __future__ import annotations

from collections.abc import Mapping

from committer.testing.simulate.contents import Files
from committer.testing.simulate.watch import JobWatch, speaker_of


def wrong_at_the_end(marker: bytes | None, old: bytes | None, jobs: Mapping[str, JobWatch], visible: Files) -> str:
    """What is wrong with a `_SUCCESS`, or with there being none; empty where nothing is.

    Args:
        marker: What stands there; None where nothing does.
        old: What stood there before the jobs.
        jobs: The jobs of the destination.
        visible: What readers see beside it.
    """
    marking = [watch for watch in jobs.values() if watch.committed and watch.ledger.config.mark_successful_jobs]
    if not marking:
        return "G4, G9: no job that writes _SUCCESS committed, and it changed" if marker != old else ""
    newest = max(marking, key=lambda watch: watch.ended_at)
    if marker is None and _may_be_withdrawn(newest, jobs, visible):
        return ""
    speaks = speaker_of(marker, jobs.values())
    if speaks not in marking:
        return "G9: a job committed and _SUCCESS does not say so"
    if speaks.ended_at < newest.ended_at:
        return f"G9: _SUCCESS is of {speaks.job_id}, and {newest.job_id} committed later"
    return ""


def _may_be_withdrawn(newest: JobWatch, jobs: Mapping[str, JobWatch], visible: Files) -> bool:
    """Whether the newest `_SUCCESS` may be gone: a later job that writes none replaced files that it named.

    That job leaves it. A driver of the older one that stood still when it wrote `_SUCCESS` cannot know whether its
    request came before those files went, and takes it away rather than leave one that is not true.
    """
    replaced = any(watch.committed and watch.replacing and watch.ended_at > newest.ended_at for watch in jobs.values())
    return replaced and not newest.ledger.is_complete(visible)
