"""The two limits of an endpoint, calls in flight and calls a second: cut together, and grown back together."""

from __future__ import annotations

import math

from committer.flow._adaptive import GROWTH_INTERVAL_S, MOST_STEPS, STORM_S, AdaptiveLimit

SLOWEST_RATE = 1.0
DECREASE_INTERVAL_S = 1.0


class Limits:
    """What an endpoint allows now, and how far that is from all it was made with.

    Attributes:
        in_flight: Permits held at once.
        per_second: Tokens a second; None for no limit.
        reduced: Whether a cut has not grown back yet.
    """

    __slots__ = ("_grown_at", "_reduced_at", "in_flight", "per_second", "reduced")

    def __init__(self, concurrency: int, rate: float | None) -> None:
        self.in_flight = AdaptiveLimit(concurrency, 1.0)
        self.per_second: AdaptiveLimit | None = None if rate is None else AdaptiveLimit(rate, SLOWEST_RATE)
        self.reduced: bool = False
        self._reduced_at = -math.inf
        self._grown_at = -math.inf

    def cut(self, now: float, granted_at: float | None) -> bool:
        """The store refused a call; False where that is no new sign, and cuts nothing.

        All calls that were in flight when the limits were last cut are one sign, not many.

        Args:
            now: The time.
            granted_at: When the refused call got its permit; when not known, cuts are a second apart.
        """
        is_new = now >= self._reduced_at + DECREASE_INTERVAL_S if granted_at is None else granted_at > self._reduced_at
        if not is_new:
            return False
        in_a_storm = now < self._reduced_at + STORM_S
        self.reduced = True
        self._reduced_at = self._grown_at = now
        self.in_flight.cut(in_a_storm=in_a_storm)
        if self.per_second is not None:
            self.per_second.cut(in_a_storm=in_a_storm)
        return True

    def grow(self, now: float, granted_at: float, paused_until: float) -> bool:
        """The store answered: limits that were cut grow, by a step for each tenth of a second since they last did.

        Args:
            now: The time.
            granted_at: When the call that was answered got its permit: one from before the last cut says nothing.
            paused_until: When the last pause ended; it lets nothing grow.

        Returns:
            Whether they grew.
        """
        steps = min(int((now - max(self._grown_at, paused_until)) / GROWTH_INTERVAL_S), MOST_STEPS)
        if granted_at <= self._reduced_at or steps < 1:
            return False
        self._grown_at = now
        self.in_flight.grow(steps)
        if self.per_second is not None:
            self.per_second.grow(steps)
        self.reduced = not self._is_full
        return True

    def change(self, concurrency: int, rate: float | None) -> None:
        """Other limits hold when nothing is cut. Concurrency only grows; what a cut took stays cut."""
        self.in_flight.limit(max(self.in_flight.most, concurrency))
        if rate is None:
            self.per_second = None
        elif self.per_second is None:
            self.per_second = AdaptiveLimit(rate, SLOWEST_RATE)
        else:
            self.per_second.limit(rate)
        self.reduced = not self._is_full

    @property
    def _is_full(self) -> bool:
        return self.in_flight.is_full and (self.per_second is None or self.per_second.is_full)
