"""An endpoint that asks to slow down: its limits are cut, it pauses, and they grow back."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from committer.errors import StoreNotFoundError, StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.flow.pacing import DEFAULT_PAUSE_S, LONGEST_PAUSE_S, STORM_S, Pacer
from committer.testing.virtual_time import VirtualRuntime
from tests.flow.grants import Grants, one_loop, refused, turns

pytestmark = pytest.mark.every_loop

# Seconds from the end of the last pause to the full limits, at most; docs/pacing.md says so.
RECOVERED_S = 25.0


async def test_throttling_cuts_the_limits_and_pauses_the_endpoint() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=64, rate=200.0, runtime=runtime)
    await refused(pacer, 30.0)
    assert (pacer.concurrency, pacer.rate, pacer.throttles) == (44, 140.0, 1)
    async with pacer.permit() as permit:
        assert permit.waited_s == pytest.approx(30.0)


async def test_a_pause_without_a_time_is_short_and_an_absurd_one_is_bounded() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=4, runtime=runtime)
    await refused(pacer)
    async with pacer.permit() as permit:
        assert permit.waited_s == pytest.approx(DEFAULT_PAUSE_S)
    await refused(pacer, 1e9)
    async with pacer.permit() as permit:
        assert permit.waited_s == pytest.approx(LONGEST_PAUSE_S)


async def test_a_pause_holds_everyone_and_is_never_shortened() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=4, runtime=runtime))
    grants.pacer.pause(10)
    grants.pacer.pause(2)
    await asyncio.gather(*(grants.take() for _ in range(6)))
    assert [at for at, _ in grants.given] == [10.0] * 6


async def test_a_pause_reaches_those_who_wait_already() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=9, rate=1.0, burst=1, runtime=runtime))
    waiting = [asyncio.create_task(grants.take()) for _ in range(3)]
    await turns()
    grants.pacer.pause(20)
    await asyncio.gather(*waiting)
    assert [at for at, _ in grants.given] == pytest.approx([0.0, 20.0, 21.0], abs=0.01)


async def test_a_storm_is_one_sign() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=64, rate=200.0, runtime=runtime)

    async def call() -> None:
        with pytest.raises(StoreThrottledError):
            async with pacer.permit():
                await runtime.sleep(0.5)
                raise StoreThrottledError("slow down")

    await asyncio.gather(*(call() for _ in range(64)))
    assert (pacer.concurrency, pacer.rate, pacer.throttles) == (44, 140.0, 64)
    # Calls sent with the lower limits and still refused are another, and then the cut is deeper.
    await asyncio.gather(*(call() for _ in range(16)))
    assert (pacer.concurrency, pacer.rate) == (22, 70.0)


async def test_a_cut_long_after_the_last_one_is_a_small_one() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=100, rate=200.0, runtime=runtime)
    await refused(pacer)
    await runtime.sleep(STORM_S)
    await refused(pacer)
    assert (pacer.concurrency, pacer.rate) == (49, pytest.approx(98.0))


async def test_the_limits_keep_a_floor() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=64, rate=200.0, runtime=runtime)
    slow = Pacer("slow", concurrency=1, rate=0.25, runtime=runtime)
    for _ in range(20):
        await refused(pacer)
        await refused(slow)
    assert (pacer.concurrency, pacer.rate) == (1, 1.0)
    assert (slow.concurrency, slow.rate) == (1, 0.25)


@one_loop
async def test_the_limits_recover_after_a_storm() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=64, rate=200.0, runtime=runtime)
    for _ in range(6):
        await refused(pacer)
    assert (pacer.concurrency, pacer.rate) == (1, 4.375)
    storm_over = runtime.monotonic()
    seen: list[tuple[float, float]] = []

    async def work() -> None:
        while pacer.concurrency < 64 or pacer.rate != 200.0:
            async with pacer.permit():
                await runtime.sleep(0.05)
            seen.append((runtime.monotonic(), pacer.rate or 0.0))

    await asyncio.gather(*(work() for _ in range(64)))
    assert 10 <= runtime.monotonic() - storm_over <= RECOVERED_S
    # Step by step: a hundredth of the full rate for a tenth of a second.
    assert all(then <= rate + 20.0 * (later - at) + 2.0 for (at, rate), (later, then) in pairwise(seen))


@one_loop
@pytest.mark.parametrize("rate", [1.0, 3.0, 100.0, 10_000.0])
@pytest.mark.parametrize("refusals", [1, 2, 5, 40])
@pytest.mark.parametrize("retry_after_s", [None, 5.0])
async def test_the_full_rate_is_back_in_25_seconds(rate: float, refusals: int, retry_after_s: float | None) -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=256, rate=rate, runtime=runtime)
    for _ in range(refusals):
        await refused(pacer, retry_after_s)
    over = runtime.monotonic() + (retry_after_s or DEFAULT_PAUSE_S)

    full: list[float] = []

    async def work() -> None:
        while not full:
            async with pacer.permit():
                await runtime.sleep(0.05)
            if pacer.rate == rate and pacer.concurrency == 256:
                full.append(runtime.monotonic())

    await asyncio.gather(*(work() for _ in range(20)))
    assert full[0] - over <= RECOVERED_S


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), StoreOutcomeUnknownError("lost"), ValueError("x")])
async def test_only_answers_let_the_limits_grow(error: Exception) -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=64, runtime=runtime)
    await refused(pacer)

    async def call(ending: Exception) -> None:
        for _ in range(100):
            with pytest.raises(type(ending)):
                async with pacer.permit():
                    await runtime.sleep(0.1)
                    raise ending

    await call(error)
    assert pacer.concurrency == 44
    await call(StoreNotFoundError("nothing there"))
    await call(StoreNotFoundError("nothing there"))
    assert pacer.concurrency == 64


async def test_throttling_told_from_outside_cuts_once_a_second() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=64, runtime=runtime)
    pacer.throttled(None)
    pacer.throttled(None)
    assert pacer.concurrency == 44
    await runtime.sleep(1.5)
    pacer.throttled(0)
    assert pacer.concurrency == 22


async def test_a_cut_does_not_hand_out_another_burst() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=1000, rate=400.0, runtime=runtime))
    await asyncio.gather(*(grants.take() for _ in range(100)))
    grants.pacer.throttled(0)
    grants.given.clear()
    await asyncio.gather(*(grants.take() for _ in range(100)))
    # Empty when it was cut: the first comes a 280th of a second later, and so on while the rate grows back.
    assert grants.given[0][0] > 0
    grants.check(292.0, 2)
