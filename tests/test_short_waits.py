"""Waits that are short: how far the clocks go, and what keeps its time."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from committer.errors import StoreUnavailableError
from committer.flow.retry import RetryPolicy, retry
from committer.flow.runtime import use_runtime
from tests.short_waits import ShortWaits


async def test_a_wait_moves_both_clocks_and_takes_a_thousandth() -> None:
    runtime = ShortWaits()
    began, clock, date = time.monotonic(), runtime.monotonic(), runtime.now()
    await runtime.sleep(60)
    assert time.monotonic() - began < 30
    assert runtime.monotonic() - clock >= 60
    assert runtime.now() - date >= timedelta(seconds=60)


async def test_waits_at_the_same_time_move_the_clocks_once() -> None:
    runtime = ShortWaits()
    clock = runtime.monotonic()
    await asyncio.gather(*(runtime.sleep(20) for _ in range(20)))
    assert 20 <= runtime.monotonic() - clock < 200


async def test_tries_end_with_their_budget() -> None:
    """What is left out of the waits counts: a call is not made again forever."""
    made = 0

    async def refused() -> None:
        nonlocal made
        made += 1
        raise StoreUnavailableError("refused")

    with use_runtime(ShortWaits()):
        with pytest.raises(StoreUnavailableError):
            await retry(refused, policy=RetryPolicy(attempts=10**6, base_s=60, cap_s=60, budget_s=600))
    assert 10 < made < 1000


async def test_a_timer_keeps_its_time() -> None:
    runtime, rang = ShortWaits(), asyncio.Event()
    clock = time.monotonic()
    runtime.call_later(0.05, rang.set)
    await rang.wait()
    assert time.monotonic() - clock >= 0.04
