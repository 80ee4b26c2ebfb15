"""Times in the headers of responses: the store's clock, and how long to wait.

Three forms are in use: `x-ms-retry-after-ms` and `retry-after-ms`, milliseconds, Azure's own; `Retry-After` as seconds;
and `Retry-After` as a date (RFC 9110, 10.2.3, with the three date forms of 5.6.7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from committer.flow.pacing import LONGEST_PAUSE_S
from committer.flow.runtime import current_runtime

MILLISECOND_HEADERS: Final = ("x-ms-retry-after-ms", "retry-after-ms")
"""Headers that hold milliseconds; the first that can be read wins, and wins over `Retry-After`, which is coarser."""

# RFC 9110 knows whole seconds only; servers and proxies that send a fraction mean what they say.
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?", re.ASCII)

# Longer texts are neither a sensible number nor a date, and would only cost time.
_LONGEST_TEXT = 64


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the sender of these headers asks to wait, 0 to `LONGEST_PAUSE_S`; no store call.

    A date is measured from the answer's own `Date`, so that a clock that is wrong on either side changes nothing; from
    `now` where there is none. A date that has passed is 0. What is no number of zero or more and no date says nothing,
    and the next header is looked at.

    Args:
        headers: Of the answer, names in any case.
        now: The date and time here, aware.

    Returns:
        None when no header says anything that can be read.
    """
    found = {name.lower(): value for name, value in headers.items()}
    for name in MILLISECOND_HEADERS:
        milliseconds = _number(found.get(name, ""))
        if milliseconds is not None:
            return _bounded(milliseconds / 1000.0)
    text = found.get("retry-after", "")
    seconds = _number(text)
    if seconds is not None:
        return _bounded(seconds)
    until = date_of(text)
    if until is None:
        return None
    return _bounded((until - (date_of(found.get("date", "")) or now)).total_seconds())


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), LONGEST_PAUSE_S)


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if len(text) <= _LONGEST_TEXT and _NUMBER.fullmatch(text) else None


def date_of(text: str) -> datetime | None:
    """The moment that a header's date is, aware; None where it is none."""
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # The forms without a zone, and `-0000`, are of UTC here.
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


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
