"""A limit that gives way when a store refuses, and comes back: additive increase, multiplicative decrease.

Plain additive increase runs into the store's ceiling again as fast as it left the ground, and every collision costs a
pause. So the value at which the store last refused is remembered: the limit comes back quickly to a little below it,
and from there takes its time. Past it nothing is known any more, and growth is quick again. docs/pacing.md has the
figures these constants were chosen by.
"""

from __future__ import annotations

import math
from typing import Final

DECREASE: Final = 0.7
"""What a refusal leaves of a limit that had held for a while."""

DECREASE_IN_A_STORM: Final = 0.5
"""What a refusal leaves of a limit that was cut a moment ago: the ceiling is far below, or the service is down."""

STORM_S: Final = 3.0
"""Seconds within which a further cut is part of a storm; a pause of a second or two lies between two cuts."""

GROWTH_INTERVAL_S: Final = 0.1
"""Seconds that one step of growth stands for."""

MOST_STEPS: Final = 10
"""Steps that one answer can bring, so that a rate of one a second grows as fast as any, and an idle hour brings
nothing."""

GROWTH_STEPS: Final = 100
"""Steps from nothing to the full limit."""

CAUTION: Final = 0.9
"""Where the slow approach begins, as a share of the value that was refused."""

CAUTIOUS_STEPS: Final = 100
"""Steps from there to the value that was refused."""


class AdaptiveLimit:
    """One number: calls a second, or calls in flight.

    Args:
        most: The full limit, where it begins.
        least: Where cuts end; a full limit below it is not cut at all.

    Attributes:
        most: The full limit.
    """

    __slots__ = ("_least", "_reached", "_refused", "most")

    def __init__(self, most: float, least: float) -> None:
        self.most: float = most
        # How far it came since the last cut, which `most` may hide; without bound when it was never cut, or came back.
        self._reached = math.inf
        self._least = least
        self._refused = 0.0

    @property
    def value(self) -> float:
        """The limit now."""
        return min(self._reached, self.most)

    @property
    def is_full(self) -> bool:
        """Whether nothing is left to grow."""
        return self._reached >= self.most

    def cut(self, *, in_a_storm: bool) -> None:
        """The store refused at this value."""
        value = self._refused = self.value
        kept = value * (DECREASE_IN_A_STORM if in_a_storm else DECREASE)
        self._reached = max(min(self._least, value), kept)

    def grow(self, steps: int) -> None:
        """The store answered, that many intervals after the last step."""
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        value = self.value
        careful = CAUTION * self._refused
        if careful <= value < self._refused:
            grown = value + (self._refused - careful) / CAUTIOUS_STEPS
        else:
            grown = value + self.most / GROWTH_STEPS
            if value < careful:
                grown = min(grown, careful)
        self._reached = grown if grown < self.most else math.inf

    def limit(self, most: float) -> None:
        """Changes the full limit. What a refusal cut, and has not grown back yet, stays cut below a wider one."""
        self.most = most
