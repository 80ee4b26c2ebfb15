"""What several jobs of a process ask of one endpoint: which limits hold, and for how long."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from committer.flow.pacing import Claim, Pacer, claim_limits
from committer.flow.runtime import use_runtime
from committer.testing.virtual_time import VirtualRuntime
from tests.flow.grants import Grants, refused

pytestmark = pytest.mark.every_loop


async def test_an_endpoint_has_one_pacer() -> None:
    first = claim_limits("abfs://c@a", concurrency=16)
    assert claim_limits("abfs://c@b", concurrency=16).pacer is not first.pacer
    second = claim_limits("abfs://c@a", concurrency=8)
    assert second.pacer is first.pacer
    assert (first.pacer.concurrency, first.pacer.rate) == (16, None)


async def test_the_lowest_rate_that_is_claimed_holds_and_then_the_next() -> None:
    pacer = Pacer("e", concurrency=16, runtime=VirtualRuntime())
    fast, unlimited = pacer.claim(32, 10_000.0), pacer.claim(4)
    assert (pacer.concurrency, pacer.rate) == (32, 10_000.0)
    slow, slowest = pacer.claim(8, 300.0), pacer.claim(8, 30.0)
    assert (pacer.concurrency, pacer.rate) == (32, 30.0)
    slow.release()
    assert pacer.rate == 30.0
    slowest.release()
    slowest.release()
    assert pacer.rate == 10_000.0
    fast.release()
    assert (pacer.concurrency, pacer.rate) == (32, None)
    unlimited.release()
    assert (pacer.concurrency, pacer.rate) == (32, None)


async def test_the_last_claim_may_be_collected_while_another_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was never released, in a cycle: it is counted, and gone when the claims are asked what they ask for."""
    pacer = Pacer("e", concurrency=4)
    released, forgotten = pacer.claim(8), [pacer.claim(16)]
    forgotten.append(forgotten)  # type: ignore[arg-type]
    gc.disable()
    try:
        del forgotten

        class Collecting(weakref.WeakSet[Claim]):
            def __bool__(self) -> bool:
                counted = len(self) > 0
                gc.collect()
                return counted

        claims = Collecting(pacer._claims)
        monkeypatch.setattr(pacer, "_claims", claims)
        released.release()
        gc.collect()
        assert not len(claims)
        released.release()
    finally:
        gc.enable()


async def test_a_rate_claimed_after_a_greater_one_ended_holds_on_the_wire() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=1000, runtime=runtime))
    earlier = grants.pacer.claim(1000, 10_000.0)
    await asyncio.gather(*(grants.take() for _ in range(500)))
    earlier.release()
    later = grants.pacer.claim(1000, 30.0)
    grants.given.clear()
    await asyncio.gather(*(grants.take() for _ in range(100)))
    grants.check(30.0, 30)
    later.release()


async def test_a_lower_rate_holds_for_callers_that_wait_already() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    grants = Grants(Pacer("e", concurrency=1000, rate=100.0, burst=1, runtime=runtime))
    tasks = [asyncio.create_task(grants.take()) for _ in range(101)]
    await runtime.advance(0.5)
    assert 50 <= len(grants.given) <= 51
    claim = grants.pacer.claim(1000, 1.0)
    await runtime.advance(10)
    assert 60 <= len(grants.given) <= 62
    unlimited = grants.pacer.claim(1000)
    claim.release()
    await runtime.settle()
    await asyncio.gather(*tasks)
    unlimited.release()


async def test_a_claim_that_was_dropped_unreleased_counts_no_more() -> None:
    pacer = Pacer("e", concurrency=1)
    claim: Claim | None = pacer.claim(1, 5.0)
    claim = None
    gc.collect()
    assert claim is None
    fast = pacer.claim(1, 50.0)
    assert pacer.rate == fast.rate == 50.0


async def test_a_greater_claim_serves_those_who_wait() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    grants = Grants(Pacer("e", concurrency=1, rate=1.0, burst=50, runtime=runtime))
    tasks = [asyncio.create_task(grants.take(hold=1000)) for _ in range(10)]
    await runtime.settle()
    assert len(grants.given) == 1
    claim = grants.pacer.claim(10, 100.0)
    await runtime.advance(0.2)
    assert len(grants.given) == 10
    await runtime.advance(1000)
    await asyncio.gather(*tasks)
    claim.release()


async def test_a_greater_claim_after_a_cut_grows_step_by_step() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=10, rate=10.0, runtime=runtime)
    await refused(pacer)
    claim = pacer.claim(100, 100.0)
    assert (pacer.concurrency, pacer.rate) == (7, 7.0)
    await runtime.sleep(1)
    async with pacer.permit():
        pass
    # Eight tenths of a second after the pause; the ninth call a second was in sight of the tenth, which was refused.
    assert (pacer.concurrency, pacer.rate) == (9, pytest.approx(9.06))
    claim.release()


async def test_a_low_rate_that_ends_does_not_forget_what_the_store_refused() -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=10, rate=1000.0, runtime=runtime)
    fast = pacer.claim(10, 1000.0)
    await refused(pacer)
    slow = pacer.claim(10, 5.0)
    assert pacer.rate == 5.0
    slow.release()
    assert pacer.rate == 700.0
    await runtime.sleep(2)
    async with pacer.permit():
        pass
    assert 700.0 < (pacer.rate or 0) <= 900.0
    fast.release()


async def test_another_clock_has_another_pacer() -> None:
    outside = claim_limits("e", concurrency=1).pacer
    with use_runtime(VirtualRuntime()) as runtime:
        inside = claim_limits("e", concurrency=1).pacer
        assert inside.runtime is runtime
    assert inside is not outside
    assert claim_limits("e", concurrency=1).pacer is outside


def test_a_pacer_lives_as_long_as_its_loop() -> None:
    pacers: list[weakref.ref[Pacer]] = []

    async def use() -> None:
        pacer = claim_limits("e", concurrency=1, rate=1000.0).pacer
        pacers.append(weakref.ref(pacer))
        await asyncio.gather(*(Grants(pacer).take() for _ in range(3)))
        del pacer
        gc.collect()
        assert pacers[-1]() is not None

    asyncio.run(use())
    asyncio.run(use())
    gc.collect()
    assert [pacer() for pacer in pacers] == [None, None]
