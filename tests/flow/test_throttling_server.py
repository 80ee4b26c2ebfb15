"""A server that serves so many requests a second and refuses the rest, and a client that begins too fast.

All of it in virtual time, so that the figures are the same on every machine. What counts is the server's own counter.
docs/pacing.md shows more of these figures, and how the constants of `committer.flow.pacing` follow from them.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from committer.errors import StoreThrottledError
from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.flow.runtime import Timer, use_runtime
from committer.paths import StorePath
from committer.stores.memory import MemoryStore
from committer.stores.paced import PacedStore
from committer.testing.virtual_time import VirtualRuntime

# Nothing here depends on the loop, and where time is virtual uvloop is ten times as slow.
pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

CALLS = 10_000
TOO_FAST = 1.43
SOURCE, TARGET = StorePath.of("memory://throttling/a"), StorePath.of("memory://throttling/b")


class ThrottlingStore(MemoryStore):
    """Renames nothing, at `rate` a second; more are refused with a Retry-After.

    Args:
        runtime: Whose time it is.
        rate: Requests served a second.
        saved_s: Seconds whose requests it saves up while it is idle; None counts by whole seconds instead.
        retry_after_s: What it says when it refuses.
        latency_s: The longest way there, and back.
    """

    def __init__(
        self, runtime: VirtualRuntime, rate: float, saved_s: float | None, retry_after_s: float | None, latency_s: float
    ) -> None:
        super().__init__("throttling")
        self.runtime = runtime
        self.rate = rate
        self.saved_s = saved_s
        self.retry_after_s = retry_after_s
        self.latency_s = latency_s
        self.served: Counter[int] = Counter()
        self.refused: Counter[int] = Counter()
        self._chance = random.Random(0)
        self._level = rate * (saved_s or 0.0)
        self._at = 0.0

    async def rename_file(self, source: StorePath, destination: StorePath, **_choices: object) -> None:
        await self.runtime.sleep(self.latency_s * self._chance.random())
        admitted = self._admit()
        (self.served if admitted else self.refused)[int(self.runtime.monotonic())] += 1
        await self.runtime.sleep(self.latency_s * self._chance.random())
        if not admitted:
            raise StoreThrottledError("503 ServerBusy", operation="rename_file", retry_after_s=self.retry_after_s)

    def _admit(self) -> bool:
        now = self.runtime.monotonic()
        if self.saved_s is None:
            return self.served[int(now)] < self.rate
        self._level = min(max(1.0, self.rate * self.saved_s), self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True

    def goodput(self, after_s: int) -> float:
        """Served in the whole seconds after `after_s`, in relation to what it would have served at most."""
        seconds = range(after_s, max(self.served))
        return sum(self.served[second] for second in seconds) / (len(seconds) * self.rate)


class BusyMachine(VirtualRuntime):
    """The time of another runtime, on which one timer in fifty comes late, by up to 0.3 s."""

    def __init__(self, actual: VirtualRuntime) -> None:
        super().__init__()
        self._actual = actual
        self._chance = random.Random(3)

    def monotonic(self) -> float:
        return self._actual.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        if self._chance.random() < 0.02:
            seconds += 0.3 * self._chance.random()
        return self._actual.call_later(seconds, callback)


async def rename_all(
    store: ThrottlingStore, rate: float | None, calls: int = CALLS, *, busy: bool = False
) -> Statistics:
    """Renames `calls` files with 256 workers, each of which fails the run when one rename fails."""
    statistics = Statistics(store.runtime)
    pacer = Pacer("e", concurrency=256, rate=rate, runtime=BusyMachine(store.runtime) if busy else store.runtime)
    paced = PacedStore(store, pacer=pacer, statistics=statistics)
    left = iter(range(calls))

    async def work() -> None:
        for _ in left:
            await paced.rename_file(SOURCE, TARGET)

    with use_runtime(store.runtime):
        async with asyncio.TaskGroup() as group:
            for _ in range(256):
                group.create_task(work())
    assert pacer.in_use == pacer.waiting == 0
    assert pacer.throttles == statistics.counter("store_io_throttled")
    return statistics


@pytest.mark.parametrize("saved_s", [0.1, 1.0, None], ids=["bucket of 0.1 s", "bucket of 1 s", "whole seconds"])
@pytest.mark.parametrize("server_rate", [250.0, 1000.0])
async def test_ten_thousand_calls_that_begin_too_fast_all_end_well(server_rate: float, saved_s: float | None) -> None:
    store = ThrottlingStore(VirtualRuntime(), server_rate, saved_s, retry_after_s=1.0, latency_s=0.02)
    statistics = await rename_all(store, TOO_FAST * server_rate)
    assert store.goodput(after_s=5) >= 0.8
    assert sum(store.served.values()) == CALLS
    # One refused call in a hundred, not one in three as without the pacer's memory.
    assert 0 < sum(store.refused.values()) <= 0.015 * CALLS
    counters = statistics.snapshot().counters
    assert counters["store_io_throttled"] == counters["store_io_retry"] == sum(store.refused.values())
    assert counters["store_io_request"] == CALLS + counters["store_io_retry"]
    assert statistics.snapshot().meanstatistics["store_io_rate_limited.mean"].samples > 0


@pytest.mark.parametrize(("retry_after_s", "goodput"), [(None, 0.85), (0.25, 0.85), (2.0, 0.7)])
async def test_other_pauses(retry_after_s: float | None, goodput: float) -> None:
    store = ThrottlingStore(VirtualRuntime(), 500.0, 0.1, retry_after_s, latency_s=0.02)
    await rename_all(store, TOO_FAST * 500.0)
    assert store.goodput(after_s=5) >= goodput


async def test_ten_times_too_fast() -> None:
    store = ThrottlingStore(VirtualRuntime(), 100.0, 0.1, retry_after_s=1.0, latency_s=0.02)
    await rename_all(store, 1000.0, calls=4000)
    assert store.goodput(after_s=5) >= 0.8


async def test_as_the_emulated_bucket_of_the_storm() -> None:
    """tests/stores/test_storms.py in virtual time, where no other program takes the processor."""
    store = ThrottlingStore(VirtualRuntime(), 200.0, 0.1, retry_after_s=None, latency_s=0.02)
    await rename_all(store, TOO_FAST * 200.0, calls=3000)
    assert store.goodput(after_s=5) >= 0.95


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
async def test_a_client_that_is_late_now_and_then_sends_no_burst(retry_after_s: float | None) -> None:
    """Permits saved up while another program had the processor were refused, and halved its rate: 0.4 of R."""
    store = ThrottlingStore(VirtualRuntime(), 200.0, 0.1, retry_after_s, latency_s=0.02)
    await rename_all(store, TOO_FAST * 200.0, calls=4000, busy=True)
    assert store.goodput(after_s=5) >= 0.7
    assert sum(store.refused.values()) <= 100


async def test_without_a_rate_concurrency_alone_gives_way() -> None:
    store = ThrottlingStore(VirtualRuntime(), 500.0, 0.1, retry_after_s=1.0, latency_s=0.05)
    await rename_all(store, None)
    assert store.goodput(after_s=5) >= 0.6


async def test_a_store_that_refuses_everything_for_half_a_minute() -> None:
    """As an account does that fails over, or that other programs keep busy: more than five refusals each."""
    runtime = VirtualRuntime()
    store = ThrottlingStore(runtime, 1000.0, 0.1, retry_after_s=1.0, latency_s=0.02)
    admit = store._admit
    store._admit = lambda: not 5 <= runtime.monotonic() < 35 and admit()  # type: ignore[method-assign]
    await rename_all(store, 900.0, calls=30_000)
    assert sum(store.served.values()) == 30_000
    assert sum(store.served[second] for second in range(62, 64)) >= 0.85 * 2000
