"""The pacer of each endpoint, and shares of its rate for other processes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from committer.flow.pacing import Claim, Pacer
from committer.flow.runtime import Runtime, current_runtime

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, Runtime], Pacer]] = WeakKeyDictionary()


def claim_limits(endpoint: str, *, concurrency: int, rate: float | None = None) -> Claim:
    """Asks for limits of the pacer that everything in the running loop shares for an endpoint, and names it.

    The lowest rate that a claim which is held asks for holds for all of them; when that claim is released, the next. So
    a user who finds a store overloaded can start a job with a lower rate in a living process, and a process that must
    stay below some rate is below it as long as one of its jobs says so. Of concurrencies the greatest holds, for as
    long as the loop: each job bounds its own work.

    Raises:
        ValueError: `concurrency` is below 1, or `rate` is neither positive nor None.
        RuntimeError: No event loop is running.
    """
    pacers = _shared.setdefault(asyncio.get_running_loop(), {})
    # Another runtime is another clock: what one simulation learnt must not leak into the next.
    key = (endpoint, current_runtime())
    pacer = pacers.get(key)
    if pacer is None:
        pacer = pacers[key] = Pacer(endpoint, concurrency=concurrency, rate=rate)
    return pacer.claim(concurrency, rate)


def forget_limits(loop: asyncio.AbstractEventLoop) -> None:
    """Lets go of the pacers of a loop that is closed: one whose runtime refers to the loop would keep it for ever."""
    _shared.pop(loop, None)


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
