"""A commit that was refused before the decision: what ends the job all the same, with nothing published.

A recoverer of a job whose driver died can change neither what its tasks wrote nor its choices.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from committer.errors import (
    CommitterError,
    JobNotFoundError,
    MultipleError,
    PreflightError,
    RecordError,
    StoreNotFoundError,
    TaskError,
    TaskMissingError,
)
from committer.stages.base import StageContext
from committer.stages.job_directory import look_at_job

_OF_THE_OUTPUT: Final = (
    PreflightError,
    RecordError,
    TaskError,
    TaskMissingError,
    JobNotFoundError,
    StoreNotFoundError,
    MultipleError,
)

TO_BE_ABORTED: Final = "is to be aborted, which changes nothing"
"""How the next step of a job ends whose work another one has done; one that the error aborts has it replaced."""

_ABORTED: Final = "was aborted, which changed nothing"
_ENDS: Final = "ends the job with nothing published"
_CLAUSE: Final = re.compile(rf"(; )?`[^`]*` {_ENDS}")


@asynccontextmanager
async def naming_the_end(context: StageContext) -> AsyncIterator[None]:
    """Around a commit by a caller who did not set the job up: an error of its output names what ends the job, too.

    One listing where it fails so: of a job that another driver decided, or ended, it says nothing.
    """
    try:
        yield
    except _OF_THE_OUTPUT as error:
        if error.outcome == "unchanged" and await _is_undecided(context):
            back = f"{context.recover_call(rollback=True)} {_ENDS}"
            error.next_step = f"{error.next_step}; {back}" if error.next_step else back
        raise


def without_the_end(advice: str) -> str:
    """Advice for the caller of a job that the error aborts."""
    return _CLAUSE.sub("", advice).replace(TO_BE_ABORTED, _ABORTED)


async def _is_undecided(context: StageContext) -> bool:
    try:
        found = await look_at_job(context.store, context.layout)
    except CommitterError:
        return False
    return (found.set_up or found.attempts) and not (found.decided or found.ended)
