"""Shared pacer of each endpoint, and shares of its rate for other processes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from committer.flow.pacing import Claim, Pacer
from committer.flow.runtime import Runtime, current_runtime

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, Runtime], Pacer]] = WeakKeyDictionary()


def claim_limits(endpoint: str, *, concurrency: int, rate: float | None = None) -> Claim:
    """Claims limits of the running loop's shared pacer for an endpoint; raises as `Pacer.claim`.

    The lowest rate among the held claims applies to all of them, and the next lowest after its release. So a user
    who sees a store overloaded can start a job with a lower rate in the same process. The highest concurrency
    applies, for the life of the loop, since each job bounds its own work.
    """
    pacers = _shared.setdefault(asyncio.get_running_loop(), {})
    # Another runtime is another clock: one simulation must not affect the next.
    key = (endpoint, current_runtime())
    pacer = pacers.get(key)
    if pacer is None:
        pacer = pacers[key] = Pacer(endpoint, concurrency=concurrency, rate=rate)
    return pacer.claim(concurrency, rate)


def forget_limits(loop: asyncio.AbstractEventLoop) -> None:
    """Removes the pacers of a closed loop, which a runtime that refers to the loop would keep alive."""
    _shared.pop(loop, None)


# Rounding error of a rate that is divided and added up again.
_ROUNDING = 1e-9


class RateShares:
    """Shares of a rate (None for no limit) for a changing number of workers; those in use never exceed the rate.

    With fewer workers the remaining ones get more as soon as earlier shares return.
    """

    def __init__(self, rate: float | None, workers: Callable[[], int]) -> None:
        self._rate = rate
        self._workers = workers
        self._out: list[float] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> float | None:
        """Waits until a worker is free, and returns its share for `give_back`; None without a limit."""
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
        """Returns the share of a worker that ended."""
        self._out.remove(share or 0.0)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def rest(self, share: float | None) -> float | None:
        """Returns the part of the rate that no other share uses: this share and the unused rest."""
        if self._rate is None or share is None:
            return None
        return max(self._rate - sum(self._out) + share, share)
