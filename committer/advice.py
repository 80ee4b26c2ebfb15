"""Calls and pages that errors advise.

An error names a complete call of the asyncio API in backticks; `blocking` and `committer.cli.text` translate it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from committer.errors import CommitterError

COMMIT_AGAIN: Final = "commit again"
"""Advice for a second try of an undecided job; replaced if the error aborts the job."""

AND_RUN_IT_AGAIN: Final = " and run it again"
"""End of the advice for a lack of space; a decided job is recovered instead."""

UNREADABLE: Final = (
    "see that the endpoint is that of the service, and that no proxy or login page answers in its place; then call it "
    "again"
)
"""Advice after a response that the service cannot have given."""

LOOK_BEFORE: Final = "look at the path before doing it again"
"""Advice for the caller of one store call after a lost response; a recovery of a job looks by itself."""

_AGAIN: Final = {
    "unchanged": "remove the cause, then call it again",
    "committed": "the job is committed; recover of its id finishes what is left",
}
_SEE_FIRST: Final = "look how far the job is (list_jobs, committer jobs); recover, abort or cleanup of its id ends it"

_AWAITED: Final = re.compile(r"`await committer\.(?=\w+\()")
_OF_JOB: Final = re.compile(r"`await (?=job\.)")
_ATTACHED: Final = re.compile(r"`job = await committer\.(?=attach_job\()")

BUCKET_GONE: Final = "what the job wrote is gone with its bucket or container: create that, and run the job again"


def call(name: str, *arguments: object, **keywords: object) -> str:
    """Renders a call of a public coroutine function, in backticks, without keywords that are False or None."""
    given = [repr(one) for one in arguments]
    given += [f"{key}={value!r}" for key, value in keywords.items() if value not in (False, None)]
    return f"`await committer.{name}({', '.join(given)})`"


def blocking(advice: str) -> str:
    """Translates an advice for a caller of `committer.sync`."""
    advice = _ATTACHED.sub("`job = committer.sync.", advice)
    return _OF_JOB.sub("`", _AWAITED.sub("`committer.sync.", advice))


def say_what_next(error: CommitterError, step: str = "") -> None:
    """Adds a next step to an error without one, for callers who do not call the store that raised it."""
    error.next_step = error.next_step or step or _AGAIN.get(error.outcome, _SEE_FIRST)


@contextmanager
def to_blocking_callers() -> Iterator[None]:
    """Translates the advice of the block's errors for callers without an event loop."""
    try:
        yield
    except CommitterError as error:
        tell_blocking_caller(error)
        raise


def tell_blocking_caller(error: BaseException | None) -> None:
    """Translates an error's next step and notes for a caller of `committer.sync`."""
    if isinstance(error, CommitterError):
        error.next_step = blocking(error.next_step)
    if error is not None and hasattr(error, "__notes__"):
        error.__notes__ = [blocking(note) for note in error.__notes__]


PAGES: Final = "https://github.com/lake-committer/committer/blob/main/docs"


def page(name: str) -> str:
    """Returns the URL of a page by its name below ``docs``, with ``#`` and a heading if needed."""
    return f"{PAGES}/{name}"
