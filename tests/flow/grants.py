"""Callers that take permits of an endpoint, and note when each came."""

from __future__ import annotations

import asyncio
from itertools import accumulate

import pytest

from committer.errors import StoreThrottledError
from committer.flow.pacing import Pacer

# Much virtual time, which depends on no loop, and takes ten times as long on uvloop.
one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])

A_LITTLE = 1e-6


async def turns(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


class Grants:
    """Takes permits and notes when each came, and how many were held."""

    def __init__(self, pacer: Pacer) -> None:
        self.pacer = pacer
        self.given: list[tuple[float, int]] = []
        self.names: list[str] = []
        self.most_held = 0

    async def take(self, amount: int = 1, *, after: float = 0.0, hold: float = 0.0, name: str = "") -> float:
        runtime = self.pacer.runtime
        if after:
            await runtime.sleep(after)
        async with self.pacer.permit("write", amount) as permit:
            self.given.append((runtime.monotonic(), amount))
            self.names.append(name)
            self.most_held = max(self.most_held, self.pacer.in_use)
            if hold:
                await runtime.sleep(hold)
        return permit.waited_s

    def check(self, rate: float, burst: float) -> None:
        """In no stretch of time more than the rate and one burst."""
        times = [at for at, _ in self.given]
        sums = [0, *accumulate(amount for _, amount in self.given)]
        for first in range(len(times)):
            for last in range(first, len(times)):
                allowed = burst + rate * (times[last] - times[first])
                assert sums[last + 1] - sums[first] <= allowed + A_LITTLE


async def refused(pacer: Pacer, retry_after_s: float | None = None) -> None:
    with pytest.raises(StoreThrottledError):
        async with pacer.permit():
            raise StoreThrottledError("slow down", retry_after_s=retry_after_s)
