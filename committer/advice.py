"""Calls and pages that errors advise.

Errors name a call in backticks, complete and with ``await``: the asyncio API's. The blocking API and the command line
turn it into their own (`blocking`, `committer.cli.text`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from committer.errors import CommitterError

COMMIT_AGAIN: Final = "commit again"
"""How the next step of an undecided job names its second try; a job that the error aborts has it replaced."""

AND_RUN_IT_AGAIN: Final = " and run it again"
"""How the next step of what had no room ends; a job that is decided is recovered instead."""

UNREADABLE: Final = (
    "see that the endpoint is that of the service, and that no proxy or login page answers in its place; then call it "
    "again"
)
"""What is done about an answer that the service cannot have given."""

LOOK_BEFORE: Final = "look at the path before doing it again"
"""What the caller of one store call does whose answer was lost; a recovery of a job looks by itself."""

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
    """A call of a public coroutine function, in backticks; a keyword that is False or None is left out."""
    given = [repr(one) for one in arguments]
    given += [f"{key}={value!r}" for key, value in keywords.items() if value not in (False, None)]
    return f"`await committer.{name}({', '.join(given)})`"


def blocking(advice: str) -> str:
    """The same advice for a caller of `committer.sync`."""
    advice = _ATTACHED.sub("`job = committer.sync.", advice)
    return _OF_JOB.sub("`", _AWAITED.sub("`committer.sync.", advice))


def say_what_next(error: CommitterError, step: str = "") -> None:
    """Gives an error without a next step one, for callers who do not call the store that raised it."""
    error.next_step = error.next_step or step or _AGAIN.get(error.outcome, _SEE_FIRST)


@contextmanager
def to_blocking_callers() -> Iterator[None]:
    """Around work whose caller has no event loop of its own: what its errors advise names blocking calls."""
    try:
        yield
    except CommitterError as error:
        tell_blocking_caller(error)
        raise


def tell_blocking_caller(error: BaseException | None) -> None:
    """Replaces the asynchronous calls in an error's next step and notes by those of `committer.sync`."""
    if isinstance(error, CommitterError):
        error.next_step = blocking(error.next_step)
    if error is not None and hasattr(error, "__notes__"):
        error.__notes__ = [blocking(note) for note in error.__notes__]


PAGES: Final = "https://github.com/lake-committer/committer/blob/main/docs"


def page(name: str) -> str:
    """The address of a page.

    Args:
        name: Its name below ``docs``, with ``#`` and a heading where it is about one.
    """
    return f"{PAGES}/{name}"
