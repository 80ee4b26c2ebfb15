"""Shares of one rate, for workers in other processes: together they never ask for more than all of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# What is left over where a rate is divided and added up again.
_ROUNDING = 1e-9


class RateShares:
    """Gives out shares of a rate, one for each worker, as many as there are workers at the time.

    The number of workers may change: where there are fewer, those that are left get more once earlier shares came back,
    and where there are more each gets less. The shares that are out never add up to more than the rate.

    Args:
        rate: What is shared; None for no limit, then only the workers are counted.
        workers: How many there are; asked each time, taken as 1 at least.
    """

    def __init__(self, rate: float | None, workers: Callable[[], int]) -> None:
        self._rate = rate
        self._workers = workers
        self._out: list[float] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> float | None:
        """Waits until a worker is free, and returns its share; None without a limit. `give_back` wants it again."""
        while True:
            workers = max(1, self._workers())
            share = 0.0 if self._rate is None else self._rate / workers
            free = self._rate is None or self._rate - sum(self._out) >= share * (1 - _ROUNDING)
            if not self._out or (len(self._out) < workers and free):
                self._out.append(share)
                return None if self._rate is None else share
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def give_back(self, share: float | None) -> None:
        """Ends a share: its worker is done, or dead."""
        self._out.remove(share or 0.0)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def rest(self, share: float | None) -> float | None:
        """What no other share takes of the rate: a share, and what is not given out."""
        if self._rate is None or share is None:
            return None
        return max(self._rate - sum(self._out) + share, share)
