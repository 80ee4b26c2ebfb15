"""Time in response headers: the store's clock, and requested waits.

A requested wait has three forms: `x-ms-retry-after-ms` and `retry-after-ms` in milliseconds (Azure); `Retry-After`
in seconds; `Retry-After` as a date (RFC 9110, 10.2.3, with the three date forms of 5.6.7).
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
"""Headers in milliseconds; the first valid one wins, also over `Retry-After`, which is coarser."""

# RFC 9110 has whole seconds only; fractions of other servers and proxies are taken as they are.
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?", re.ASCII)

# Longer texts are no sensible number or date, and would only cost time.
_LONGEST_TEXT = 64


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns the seconds that response headers ask to wait, 0 to `LONGEST_PAUSE_S`; None if none is valid.

    A date is compared with the response's own `Date`, so that wrong clocks do not matter; with `now` if there is
    none. A past date is 0. An invalid header is ignored.
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
    """Parses the date of a header, aware; None if it is invalid."""
    if len(text) > _LONGEST_TEXT:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # Forms without a zone, and `-0000`, are in UTC.
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


LARGE_S: Final = 600.0
"""Smallest difference of the clocks that is reported, in seconds."""


class StoreClock:
    """Difference of this machine's clock to a store's: `ahead_s`, 0 if unknown or below `LARGE_S`."""

    def __init__(self) -> None:
        self.ahead_s: float = 0.0

    def told(self, date: str) -> None:
        """Takes the date header of a response that just arrived."""
        moment = date_of(date)
        if moment is not None:
            # The date has no fractions: a file written a moment ago must not be in the future.
            ahead = (current_runtime().now() - moment).total_seconds() - 1.0
            self.ahead_s = ahead if abs(ahead) >= LARGE_S else 0.0

    def now(self) -> float:
        """Returns the store's time in seconds since the epoch."""
        return current_runtime().now().timestamp() - self.ahead_s


watched_clock: ContextVar[StoreClock | None] = ContextVar("watched_clock", default=None)
"""The clock that takes the dates of responses; usually None."""


@contextmanager
def watching_clock() -> Iterator[StoreClock]:
    """Yields the clock of the store that the block calls."""
    clock = StoreClock()
    token = watched_clock.set(clock)
    try:
        yield clock
    finally:
        watched_clock.reset(token)
