"""What a pacer promises, whatever its callers do: limits, pauses, order, and that every permit comes back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from committer.errors import StoreThrottledError
from committer.flow.pacing import Kind, Pacer
from committer.testing.virtual_time import VirtualRuntime

# Arithmetic of virtual time, the same on every loop.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

A_LITTLE = 1e-6


@dataclass
class Caller:
    """One caller, and what it is to do.

    Attributes:
        after: When it comes.
        hold: How long its call takes.
        kind: What it does.
        amount: What it costs.
        refused: What the store asks for when it refuses the call; None when it answers.
        gives_up: When it is cancelled, counted from its coming; None when it is not.
    """

    after: float
    hold: float
    kind: Kind
    amount: float
    refused: float | None
    gives_up: float | None


# Round times make things happen at one moment: a grant, and the cancellation of who got it.
ROUND = st.sampled_from([0.0, 0.5, 1.0, 2.0])

CALLERS = st.lists(
    st.builds(
        Caller,
        after=ROUND | st.floats(0, 15),
        hold=ROUND | st.floats(0, 3),
        kind=st.sampled_from(["read", "write", "delete"]),
        amount=st.sampled_from([0.0, 0.5, 1.0, 1.0, 1.0, 3.0, 10.0]),
        refused=st.none() | st.none() | st.none() | st.floats(0, 3),
        gives_up=st.none() | ROUND | st.floats(0, 5),
    ),
    min_size=1,
    max_size=60,
)


@dataclass
class Watch:
    """Runs callers against a pacer, and looks at every grant."""

    pacer: Pacer
    granted: list[tuple[float, float]] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    most_held: int = 0
    held: int = 0

    async def run(self, callers: list[Caller]) -> None:
        await asyncio.gather(*(self._cancelled_in_time(caller) for caller in callers))

    async def _cancelled_in_time(self, caller: Caller) -> None:
        runtime = self.pacer.runtime
        await runtime.sleep(caller.after)
        task = asyncio.ensure_future(self._call(caller))
        if caller.gives_up is not None:
            await runtime.sleep(caller.gives_up)
            task.cancel()
        with suppress(asyncio.CancelledError, StoreThrottledError):
            await task

    async def _call(self, caller: Caller) -> None:
        runtime = self.pacer.runtime
        async with self.pacer.permit(caller.kind, caller.amount):
            now = runtime.monotonic()
            self.granted.append((now, caller.amount))
            self.held += 1
            self.most_held = max(self.most_held, self.held)
            # Some may have been granted and not know yet.
            assert self.held <= self.pacer.in_use
            assert not any(begun < now < over - A_LITTLE for begun, over in self.pauses)
            try:
                await runtime.sleep(caller.hold)
                if caller.refused is not None:
                    now = runtime.monotonic()
                    self.pauses.append((now, now + caller.refused))
                    raise StoreThrottledError("slow down", retry_after_s=caller.refused)
            finally:
                self.held -= 1


@settings(max_examples=150)
@given(rate=st.none() | st.floats(1, 300), burst=st.integers(1, 50), concurrency=st.integers(1, 12), callers=CALLERS)
async def test_whatever_callers_do(rate: float | None, burst: int, concurrency: int, callers: list[Caller]) -> None:
    watch = Watch(Pacer("e", concurrency=concurrency, rate=rate, burst=burst, runtime=VirtualRuntime()))
    await watch.run(callers)
    pacer = watch.pacer
    assert watch.most_held <= concurrency
    # Every permit came back.
    assert pacer.in_use == pacer.waiting == watch.held == 0
    assert pacer.throttles == len(watch.pauses)
    if rate is not None:
        # A permit that costs more than the burst is taken in helpings, and counts here when the last is there.
        most = max(1.0, min(burst, rate))
        most += max([0.0, *(amount for _, amount in watch.granted if amount > most)])
        for first, (begun, _) in enumerate(watch.granted):
            given_out = 0.0
            for at, amount in watch.granted[first:]:
                given_out += amount
                assert given_out <= most + rate * (at - begun) + A_LITTLE * len(watch.granted)
    # Nothing is left behind that would hold back the next caller, but a pause and the tokens of the largest.
    async with pacer.permit("read", 1) as permit:
        pass
    assert permit.waited_s <= 3.0 + A_LITTLE + (max(caller.amount for caller in callers) + 1.0) / (
        pacer.rate or float("inf")
    )


@given(
    rate=st.floats(10, 1000),
    burst=st.integers(1, 100),
    large=st.floats(0, 400),
    streams=st.integers(1, 40),
    comes=st.floats(0.1, 3),
)
async def test_a_large_acquire_waits_for_those_before_it_and_no_longer(
    rate: float, burst: int, large: float, streams: int, comes: float
) -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=1000, rate=rate, burst=burst, runtime=runtime)
    served = False

    async def stream() -> None:
        while not served:
            async with pacer.permit():
                await runtime.sleep(0.001)

    tasks = [asyncio.ensure_future(stream()) for _ in range(streams)]
    await runtime.sleep(comes)
    before = pacer.waiting
    async with pacer.permit("delete", large) as permit:
        served = True
    # A timer is a millisecond long at least, and there is one for each caller and each helping.
    timers = before + 2 + large / min(burst, rate)
    assert permit.waited_s <= (before + 1 + large) / rate + 0.001 * timers + A_LITTLE
    await asyncio.gather(*tasks)


@given(pauses=st.lists(st.tuples(st.floats(0, 10), st.floats(-1, 400)), min_size=1, max_size=8))
async def test_a_pause_lets_nothing_pass(pauses: list[tuple[float, float]]) -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=5, rate=50.0, runtime=runtime)
    granted: list[float] = []
    paused: list[tuple[float, float]] = []
    over = False

    async def stream() -> None:
        while not over:
            async with pacer.permit():
                granted.append(runtime.monotonic())
                await runtime.sleep(0.5)

    tasks = [asyncio.ensure_future(stream()) for _ in range(8)]
    for after, seconds in pauses:
        await runtime.sleep(after)
        now = runtime.monotonic()
        pacer.pause(seconds)
        paused.append((now, now + min(seconds, 300.0)))
    over = True
    await asyncio.gather(*tasks)
    for begun, until in paused:
        assert not [at for at in granted if begun < at < until - A_LITTLE]


@given(seconds=st.floats(0.5, 100), rate=st.floats(1, 1000), burst=st.integers(1, 100))
async def test_a_pause_saves_up_no_burst(seconds: float, rate: float, burst: int) -> None:
    runtime = VirtualRuntime()
    pacer = Pacer("e", concurrency=1000, rate=rate, burst=burst, runtime=runtime)
    pacer.pause(seconds)
    granted: list[float] = []

    async def take() -> None:
        async with pacer.permit():
            granted.append(runtime.monotonic())

    await asyncio.gather(*(take() for _ in range(20)))
    assert granted[0] >= seconds - A_LITTLE
    for number, at in enumerate(granted):
        assert number <= 1.0 + rate * (at - seconds) + A_LITTLE * 20
