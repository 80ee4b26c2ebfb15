"""The virtual clock itself: everything else that tests time relies on it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from committer.flow.runtime import Runtime, current_runtime, use_runtime
from committer.testing.virtual_time import BEGINNING, VirtualRuntime

pytestmark = pytest.mark.every_loop


async def test_hours_pass_at_once_and_in_order() -> None:
    runtime = VirtualRuntime()
    seen: list[tuple[float, str]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await runtime.sleep(seconds)
        seen.append((runtime.monotonic(), name))

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 7200.0), ("a", 1.0), ("d", 7200.0), ("b", 60.0)):
            group.create_task(sleeper(name, seconds))
    assert seen == [(1.0, "a"), (60.0, "b"), (7200.0, "c"), (7200.0, "d")]
    assert (runtime.now() - BEGINNING).total_seconds() == 7200.0
    assert time.monotonic() - began < 2


async def test_time_stands_still_while_anything_runs() -> None:
    runtime = VirtualRuntime()
    sleeping = asyncio.create_task(runtime.sleep(1))
    for _ in range(50):
        await asyncio.sleep(0)
        assert runtime.monotonic() == 0.0
    await sleeping


async def test_time_stands_still_while_a_thread_works() -> None:
    runtime = VirtualRuntime()
    let_go = threading.Event()
    sleeping = asyncio.create_task(runtime.sleep(1))
    blocked = asyncio.create_task(runtime.run_blocking(lambda: let_go.wait(10)))
    await asyncio.sleep(0.02)
    assert runtime.monotonic() == 0.0
    assert not sleeping.done()
    let_go.set()
    assert await blocked
    await sleeping
    assert runtime.monotonic() == 1.0


async def test_advance_moves_by_hand_and_settles_each_moment() -> None:
    runtime = VirtualRuntime(auto_advance=False)
    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            await runtime.sleep(10)
            ticks.append(runtime.monotonic())

    ticking = asyncio.create_task(ticker())
    await runtime.advance(35)
    assert ticks == [10.0, 20.0, 30.0]
    assert runtime.monotonic() == 35.0
    await runtime.advance(5)
    assert ticks == [10.0, 20.0, 30.0, 40.0]
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)
    await runtime.advance(100)
    assert len(ticks) == 4


async def test_hold_keeps_time_from_passing_by_itself() -> None:
    runtime = VirtualRuntime()
    with runtime.hold():
        sleeping = asyncio.create_task(runtime.sleep(1))
        await asyncio.sleep(0.01)
        await runtime.settle()
        assert runtime.monotonic() == 0.0
    await sleeping
    assert runtime.monotonic() == 1.0


async def test_a_cancelled_sleep_leaves_no_timer() -> None:
    runtime = VirtualRuntime()
    with runtime.hold():
        sleeping = asyncio.create_task(runtime.sleep(100))
        await runtime.settle()
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
    await runtime.sleep(1)
    assert runtime.monotonic() == 1.0


async def test_timers_run_in_the_context_they_were_made_in() -> None:
    runtime = VirtualRuntime()
    seen: list[object] = []
    other = VirtualRuntime()
    with use_runtime(other):
        runtime.call_later(1, lambda: seen.append(current_runtime()))
    await runtime.sleep(2)
    assert seen == [other]


def test_the_same_seed_draws_the_same() -> None:
    one, two, three = VirtualRuntime(7), VirtualRuntime(7), VirtualRuntime(8)
    drawn = [(runtime.nonce(), runtime.nonce(3), runtime.uuid(), runtime.random()) for runtime in (one, two, three)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0][0]) == 12
    assert len(drawn[0][1]) == 6


def test_one_runtime_serves_one_loop_after_another() -> None:
    runtime = VirtualRuntime()
    for expected in (1.0, 2.0):
        asyncio.run(runtime.sleep(1))
        assert runtime.monotonic() == expected


async def test_the_system_runtime_is_the_default() -> None:
    runtime = current_runtime()
    assert type(runtime) is Runtime
    fired = asyncio.Event()
    runtime.call_later(0.001, fired.set)
    await fired.wait()
    await runtime.sleep(0)
    assert await runtime.run_blocking(threading.get_ident) != threading.get_ident()
    assert runtime.now().utcoffset() is not None
    assert runtime.monotonic() <= runtime.monotonic()
    assert len(runtime.nonce()) == 12
    assert runtime.nonce() != runtime.nonce()
    assert len(runtime.uuid()) == 36
    assert 0 <= runtime.random() < 1


async def test_a_runtime_in_force_reaches_tasks_and_ends_with_its_block() -> None:
    virtual = VirtualRuntime()
    with use_runtime(virtual):
        assert await asyncio.create_task(_runtime_here()) is virtual
    assert current_runtime() is not virtual


async def _runtime_here() -> object:
    return current_runtime()
