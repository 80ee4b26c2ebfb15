"""How a job is given up that can be neither finished nor taken back, and what that costs."""

from __future__ import annotations

from committer.advice import call
from committer.layout import JobLayout


def cleanup_call(layout: JobLayout, *, force: bool = False) -> str:
    """The call that removes what is left of a job."""
    return call("cleanup", str(layout.destination), job_id=layout.job_id, force=force)


def giving_up(layout: JobLayout) -> str:
    """What ends a job whose records are lost, or that can never be published whole, as a sentence."""
    return (
        f"{cleanup_call(layout, force=True)} ends the job: what it published stays; what it did not publish, and the "
        "old files that it moved aside, are deleted"
    )
