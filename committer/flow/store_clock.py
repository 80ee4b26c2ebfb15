"""The clock of a store, read from the dates of its responses, by which the age of a job is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from committer.flow.retry_after import date_of
from committer.flow.runtime import current_runtime

LARGE_S: Final = 600.0
"""Smallest difference of the clocks that is reported, in seconds."""


class StoreClock:
    """How far this machine's clock is ahead of that of a store, by its answers.

    Attributes:
        ahead_s: Seconds; 0 where no answer told, or less than `LARGE_S`.
    """

    def __init__(self) -> None:
        self.ahead_s: float = 0.0

    def told(self, date: str) -> None:
        """Takes the date of an answer that just came, as its header has it."""
        moment = date_of(date)
        if moment is not None:
            # The date has no fractions: what was written a moment ago must not be of the future.
            ahead = (current_runtime().now() - moment).total_seconds() - 1.0
            self.ahead_s = ahead if abs(ahead) >= LARGE_S else 0.0

    def now(self) -> float:
        """The store's time, in seconds since 1970."""
        return current_runtime().now().timestamp() - self.ahead_s


watched_clock: ContextVar[StoreClock | None] = ContextVar("watched_clock", default=None)
"""The clock that answers tell their dates to; None nearly always."""


@contextmanager
def watching_clock() -> Iterator[StoreClock]:
    """The clock of the store that the block calls."""
    clock = StoreClock()
    token = watched_clock.set(clock)
    try:
        yield clock
    finally:
        watched_clock.reset(token)
