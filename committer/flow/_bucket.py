"""aiolimiter's leaky bucket, on the runtime's clock and with a level that can be carried over.

`AsyncLimiter` reads the time of the running loop, and its rate is fixed when it is made. This subclass replaces the
one property it reads the clock through (`_loop`), so that injected time drives it, and reads and sets the two numbers
it keeps (`_level`, and as of when), so that a bucket of another rate goes on where this one stood. It never lets the
limiter queue any caller: its heap serves waiters by amount and starves large ones; the queue is the pacer's.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, cast

from aiolimiter import AsyncLimiter

from committer.flow.runtime import Runtime


class _Clock:
    """As much of an event loop as a bucket asks that never waits."""

    __slots__ = ("time",)

    def __init__(self, runtime: Runtime) -> None:
        self.time = runtime.monotonic


class Bucket(AsyncLimiter):
    """Requests per second, with a burst.

    Args:
        rate: Tokens that flow in, per second.
        burst: Tokens it holds when full, at least 1; it starts full.
        runtime: Whose clock it runs on.
    """

    __slots__ = ("_clock", "rate")

    if TYPE_CHECKING:
        _last_check: float
        _level: float

    def __init__(self, rate: float, burst: float, runtime: Runtime) -> None:
        super().__init__(burst, burst / rate)
        self.rate = rate
        self._clock = cast("AbstractEventLoop", _Clock(runtime))

    # aiolimiter asks this for the time, and would ask it for timers if a caller waited in `acquire`.
    @property
    def _loop(self) -> AbstractEventLoop:
        return self._clock

    def take(self, amount: float, now: float) -> float:
        """Takes `amount` tokens, at most the burst, if they are there.

        Args:
            amount: How many.
            now: The time on the runtime's clock.

        Returns:
            0 when they were taken; else the seconds until they will be there, if no other caller takes any.
        """
        # What `has_capacity` does, in one call: this is asked before each store call, whose caller knows the time.
        level = self._level
        if now > self._last_check:
            if level:
                level = max(0.0, level - (now - self._last_check) * self.rate)
            self._last_check = now
        if level + amount <= self.max_rate:
            self._level = level + amount
            return 0.0
        self._level = level
        return (level + amount - self.max_rate) / self.rate

    def drain(self, seconds: float) -> None:
        """Leaves one token at most, and that in `seconds`: what a pause saves up must not come out as a burst."""
        self._leak()
        self._level = max(self._level, self.max_rate - 1.0 + seconds * self.rate)

    def at_rate(self, rate: float, burst: float, runtime: Runtime) -> Bucket:
        """A bucket of another rate that holds what this one holds, or as much of it as fits."""
        self._leak()
        successor = Bucket(rate, burst, runtime)
        successor._last_check = self._last_check
        successor._level = max(0.0, burst - (self.max_rate - self._level))
        return successor
