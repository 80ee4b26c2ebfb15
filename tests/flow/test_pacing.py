"""Permits of an endpoint: order, rate, burst, concurrency, pauses, adapting to throttling."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from committer.errors import (
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow._adaptive import STORM_S
from committer.flow._bucket import Bucket
from committer.flow.pacing import DEFAULT_PAUSE_S, LONGEST_PAUSE_S, Claim, Pacer, claim_limits
from committer.flow.runtime import use_runtime
from committer.testing.virtual_time import VirtualRuntime

pytestmark = pytest.mark.every_loop

# Much virtual time, which depends on no loop, and takes ten times as long on uvloop.
one_loop = pytest.mark.asyncio(loop_factories=["asyncio"])

A_LITTLE = 1e-6

# Seconds from the end of the last pause to the full limits, at most; docs/pacing.md says so.
RECOVERED_S = 25.0


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


async def test_unlimited_permits_never_wait() -> None:
    grants = Grants(Pacer("e", concurrency=3, runtime=VirtualRuntime()))
    for _ in range(1000):
        assert await grants.take() == 0.0
    assert grants.pacer.rate is None
    assert grants.pacer.granted == {"read": 0, "write": 1000, "delete": 0}
    assert grants.pacer.in_use == 0


async def test_never_more_in_flight_than_the_concurrency() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=7, runtime=runtime))
    await asyncio.gather(*(grants.take(hold=1.0) for _ in range(70)))
    assert grants.most_held == 7
    assert runtime.monotonic() == pytest.approx(10.0)
    assert grants.pacer.in_use == grants.pacer.waiting == 0


calls = st.lists(
    st.tuples(
        st.floats(0, 20),  # when it comes
        st.floats(0, 5),  # how long the call takes
        st.floats(0, 1),  # how much of the burst it takes
    ),
    min_size=1,
    max_size=60,
)


@one_loop
@given(rate=st.floats(0.3, 500), burst=st.integers(1, 150), concurrency=st.integers(1, 20), calls=calls)
@example(rate=1000.0, burst=100, concurrency=200, calls=[(0.0, 0.0, 0.0)] * 150)
async def test_the_rate_is_never_exceeded(
    rate: float, burst: int, concurrency: int, calls: list[tuple[float, float, float]]
) -> None:
    grants = Grants(Pacer("e", concurrency=concurrency, rate=rate, burst=burst, runtime=VirtualRuntime()))
    effective = max(1.0, min(burst, rate))
    await asyncio.gather(
        *(grants.take(max(1, int(effective * share)), after=after, hold=hold) for after, hold, share in calls)
    )
    assert len(grants.given) == len(calls)
    grants.check(rate, effective)
    assert grants.most_held <= concurrency


@one_loop
@given(
    rate=st.floats(20, 500),
    calls=st.lists(st.tuples(st.floats(0, 30), st.sampled_from(["ok"] * 4 + ["throttle", "retry-after"])), max_size=80),
)
async def test_the_rate_is_never_exceeded_while_it_adapts(rate: float, calls: list[tuple[float, str]]) -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=8, rate=rate, burst=10, runtime=runtime))

    async def call(after: float, ending: str) -> None:
        await runtime.sleep(after)
        try:
            async with grants.pacer.permit():
                grants.given.append((runtime.monotonic(), 1))
                if ending != "ok":
                    raise StoreThrottledError("slow down", retry_after_s=1.0 if ending == "retry-after" else None)
        except StoreThrottledError:
            pass

    await asyncio.gather(*(call(after, ending) for after, ending in calls))
    grants.check(rate, 10)
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


async def test_a_large_acquire_is_served_in_its_turn() -> None:
    runtime = VirtualRuntime()
    grants = Grants(Pacer("e", concurrency=100, rate=100.0, burst=50, runtime=runtime))
    stop = False

    async def stream() -> None:
        while not stop:
            await grants.take(name="small")

    streams = [asyncio.create_task(stream()) for _ in range(20)]
    await runtime.sleep(1.0)
    asked = runtime.monotonic()
    await grants.take(50, name="large")
    # 20 small ones were ahead of it, and its own 50 tokens take half a second.
    assert runtime.monotonic() - asked <= 0.75
    stop = True
    await asyncio.gather(*streams)
    grants.check(100.0, 50)


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
    with pytest.raises(ValueError, match="negative"):
        grants.pacer.permit(amount=-1)


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


async def test_everyone_cancelled_leaves_an_empty_queue_and_no_timer() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    grants = Grants(Pacer("e", concurrency=5, rate=1.0, burst=1, runtime=runtime))
    tasks = [asyncio.create_task(grants.take()) for _ in range(20)]
    await runtime.settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert grants.pacer.waiting == grants.pacer.in_use == 0
    await runtime.advance(5)
    assert await grants.take() == 0.0


# --- Throttling ---------------------------------------------------------------------------------------------------


async def refused(pacer: Pacer, retry_after_s: float | None = None) -> None:
    with pytest.raises(StoreThrottledError):
        async with pacer.permit():
            raise StoreThrottledError("slow down", retry_after_s=retry_after_s)


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


# --- Sharing ------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "limits", [{"concurrency": 0}, {"concurrency": 1, "rate": 0.0}, {"concurrency": 1, "rate": -1.0},
               {"concurrency": 1, "rate": float("inf")}, {"concurrency": 1, "burst": 0}]
)  # fmt: skip
async def test_limits_that_make_no_sense(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"concurrency|rate|burst"):
        Pacer("e", **limits)  # type: ignore[arg-type]


async def test_no_thread_is_started() -> None:
    threads = threading.active_count()
    grants = Grants(Pacer("e", concurrency=2, rate=100.0, runtime=VirtualRuntime()))
    await asyncio.gather(*(grants.take(hold=0.1) for _ in range(200)))
    assert threading.active_count() == threads


async def test_on_the_real_clock() -> None:
    grants = Grants(Pacer("e", concurrency=50, rate=2000.0, burst=20))
    began = time.monotonic()
    await asyncio.gather(*(grants.take() for _ in range(120)))
    # The other bounds need clocks that do not run on between two readings.
    assert time.monotonic() - began >= 0.05
    assert len(grants.given) == 120


# --- The bucket ---------------------------------------------------------------------------------------------------


def test_the_bucket_is_driven_by_the_runtime_and_never_asks_for_a_loop() -> None:
    # No loop runs here: whatever of aiolimiter's inside the bucket relies on would show if it changed.
    runtime = VirtualRuntime(auto_advance=False)
    bucket = Bucket(10.0, 5.0, runtime)
    assert [bucket.take(1) for _ in range(5)] == [0.0] * 5
    assert bucket.take(1) == pytest.approx(0.1)
    assert bucket.take(5) == pytest.approx(0.5)
    asyncio.run(runtime.advance(0.25))
    assert bucket.take(2) == 0.0
    assert bucket.take(1) == pytest.approx(0.05)
    faster = bucket.at_rate(100.0, 50.0, runtime)
    assert faster.take(1) == pytest.approx(0.005)
    asyncio.run(runtime.advance(10))
    assert faster.take(50) == 0.0
    assert faster.take(1) > 0
    asyncio.run(runtime.advance(10))
    assert faster.at_rate(1.0, 1.0, runtime).take(1) == 0.0
