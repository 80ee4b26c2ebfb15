"""Permits of an endpoint: order, rate, burst, concurrency, callers that give up."""

from __future__ import annotations

import asyncio
import time

import pytest

from committer.flow.pacing import Bucket, Pacer
from committer.testing.virtual_time import VirtualRuntime
from tests.flow.grants import Grants, one_loop, turns

pytestmark = pytest.mark.every_loop


async def test_unlimited_permits_never_wait() -> None:
    grants = Grants(Pacer("e", concurrency=3, runtime=VirtualRuntime()))
    for _ in range(1000):
        assert await grants.take() == 0.0
    assert grants.pacer.rate is None
    assert grants.pacer.granted == {"read": 0, "write": 1000, "delete": 0}
    assert grants.pacer.in_use == 0


async def test_a_burst_goes_through_at_once_and_no_more() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=1000, rate=1000.0, runtime=runtime))
    await asyncio.gather(*(grants.take() for _ in range(300)))
    assert sum(1 for at, _ in grants.given if at == 0.0) == 100
    assert runtime.monotonic() == pytest.approx(0.2, abs=0.01)
    # Rest fills the bucket again, to the burst and not beyond it.
    await runtime.sleep(100)
    at = runtime.monotonic()
    grants.given.clear()
    await asyncio.gather(*(grants.take() for _ in range(300)))
    assert sum(1 for given, _ in grants.given if given == at) == 100


async def test_the_burst_is_no_more_than_a_second_of_a_slow_rate() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=1000, rate=5.0, runtime=runtime))
    await asyncio.gather(*(grants.take() for _ in range(20)))
    assert sum(1 for at, _ in grants.given if at == 0.0) == 5
    slow = Grants(Pacer("e", concurrency=9, rate=0.5, runtime=runtime))
    started = runtime.monotonic()
    await asyncio.gather(*(slow.take() for _ in range(3)))
    assert runtime.monotonic() - started == pytest.approx(4.0, abs=0.01)


@one_loop
async def test_the_full_rate_is_reached() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=64, rate=500.0, runtime=runtime))
    await asyncio.gather(*(grants.take(hold=0.02) for _ in range(1600)))
    assert runtime.monotonic() == pytest.approx(3.0, rel=0.02)


async def test_more_than_the_burst_is_taken_in_helpings_while_others_wait() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=9, rate=10.0, runtime=runtime))
    await asyncio.gather(
        grants.take(10, name="first"), grants.take(40, name="huge"), *(grants.take(name="after") for _ in range(3))
    )
    assert grants.names == ["first", "huge", "after", "after", "after"]
    assert [at for at, _ in grants.given] == pytest.approx([0.0, 4.0, 4.1, 4.2, 4.3], abs=0.02)


async def test_first_in_first_out() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=2, rate=50.0, burst=3, runtime=runtime))
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(grants.take(1 + number % 3, hold=0.1, name=str(number)))
            await turns(2)
    assert grants.names == [str(number) for number in range(40)]


async def test_waits_are_told() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=1, rate=2.0, runtime=runtime))
    waits = await asyncio.gather(*(grants.take() for _ in range(4)))
    assert waits == pytest.approx([0.0, 0.0, 0.5, 1.0], abs=0.01)


async def test_an_amount_of_nothing_takes_a_slot_only() -> None:
    grants = Grants(Pacer("e", concurrency=1, rate=1.0, runtime=VirtualRuntime()))
    for _ in range(10):
        assert await grants.take(0) == 0.0


# --- Cancellation -------------------------------------------------------------------------------------------------


async def test_a_claim_that_gives_up_waiting_holds_nothing_back() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    grants = Grants(Pacer("e", concurrency=5, rate=1.0, burst=1, runtime=runtime))
    await grants.take()
    large = asyncio.create_task(grants.take(1000))
    small = asyncio.create_task(grants.take())
    await runtime.settle()
    assert grants.pacer.waiting == 2
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await runtime.advance(2.5)
    assert small.done()
    assert grants.pacer.waiting == grants.pacer.in_use == 0


async def test_a_claim_that_is_cancelled_when_granted_gives_the_slot_back() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=1, runtime=runtime)
    grants = Grants(pacer)
    async with pacer.permit():
        first = asyncio.create_task(grants.take(name="first"))
        second = asyncio.create_task(grants.take(name="second"))
        await turns()
    # The slot went to the first in this very turn; it does not know yet.
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert grants.names == ["second"]
    assert pacer.in_use == 0


async def test_on_the_real_clock() -> None:
    grants = Grants(Pacer("e", concurrency=50, rate=2000.0, burst=20))
    began = time.monotonic()
    await asyncio.gather(*(grants.take() for _ in range(120)))
    # The other bounds need clocks that do not run on between two readings.
    assert time.monotonic() - began >= 0.05
    assert len(grants.given) == 120


def test_the_bucket_is_driven_by_the_runtime_and_never_asks_for_a_loop() -> None:
    # No loop runs here: whatever of aiolimiter's inside the bucket relies on would show if it changed.
    runtime = VirtualRuntime(auto_advance=False)
    bucket = Bucket(10.0, 5.0, runtime)
    assert [bucket.take(1, runtime.monotonic()) for _ in range(5)] == [0.0] * 5
    assert bucket.take(1, runtime.monotonic()) == pytest.approx(0.1)
    assert bucket.take(5, runtime.monotonic()) == pytest.approx(0.5)
    asyncio.run(runtime.advance(0.25))
    assert bucket.take(2, runtime.monotonic()) == 0.0
    assert bucket.take(1, runtime.monotonic()) == pytest.approx(0.05)
    faster = bucket.at_rate(100.0, 50.0, runtime)
    assert faster.take(1, runtime.monotonic()) == pytest.approx(0.005)
    asyncio.run(runtime.advance(10))
    assert faster.take(50, runtime.monotonic()) == 0.0
    assert faster.take(1, runtime.monotonic()) > 0
    asyncio.run(runtime.advance(10))
    assert faster.at_rate(1.0, 1.0, runtime).take(1, runtime.monotonic()) == 0.0


def test_a_moment_that_is_past_fills_nothing_and_takes_nothing_back() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    bucket = Bucket(10.0, 5.0, runtime)
    assert bucket.take(5, 100.0) == 0.0
    assert bucket.take(1, 99.0) == pytest.approx(0.1)
    assert bucket.take(1, 100.0) == pytest.approx(0.1)
    assert bucket.take(1, 100.25) == 0.0
