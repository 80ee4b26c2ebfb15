"""A loop whose clock is virtual: time passes at once, in order, and a program that cannot go on is seen."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import anyio
import pytest

from committer.flow.pacing import claim_limits
from committer.flow.runtime import current_runtime
from committer_testing.virtual_loop import DeadlockError, run_virtually


def test_hours_pass_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        await current_runtime().sleep(3600)
        return current_runtime().monotonic()

    began = time.monotonic()
    assert run_virtually(main) == 7200
    assert time.monotonic() - began < 5


def test_deadlines_of_the_loop_are_virtual_too() -> None:
    async def main() -> bool:
        with anyio.move_on_after(60) as scope:
            await asyncio.sleep(61)
        return scope.cancelled_caught

    assert run_virtually(main)


def test_sleepers_wake_in_order() -> None:
    async def main() -> list[int]:
        woken: list[int] = []

        async def sleep(seconds: int) -> None:
            await asyncio.sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(sleep(seconds) for seconds in (5, 1, 3)))
        return woken

    assert run_virtually(main) == [1, 3, 5]


def test_cancelled_calls_are_not_made() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        made: list[str] = []
        calls = [loop.call_soon(made.append, "soon"), loop.call_later(1, made.append, "later")]
        for call in calls:
            call.cancel()
        loop.call_at(loop.time() + 2, made.append, "last")
        await asyncio.sleep(3)
        assert [call.cancelled() for call in calls] == [True, True]
        return made

    assert run_virtually(main) == ["last"]


def test_calls_of_one_moment_are_made_in_one_turn() -> None:
    """Before anything that one of them leads to."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        made: list[str] = []

        def first() -> None:
            made.append("first")
            loop.call_soon(made.append, "what it leads to")

        loop.call_at(0.1 + 0.2, first)
        loop.call_at(0.3, first)
        await asyncio.sleep(1)
        return made

    assert run_virtually(main) == ["first", "first", "what it leads to", "what it leads to"]


def test_a_call_that_fails_is_told_and_the_loop_goes_on() -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        told: list[object] = []
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        loop.call_soon(int, "no number")
        await asyncio.sleep(1)
        return told

    (error,) = run_virtually(main)
    assert isinstance(error, ValueError)


def test_a_deadlock_is_seen() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError):
        run_virtually(main)


def test_chance_comes_from_the_seed() -> None:
    async def main() -> tuple[str, str, float]:
        runtime = current_runtime()
        return runtime.nonce(), runtime.uuid(), runtime.random()

    assert run_virtually(main, seed=1) == run_virtually(main, seed=1)
    assert run_virtually(main, seed=1) != run_virtually(main, seed=2)


def test_blocking_calls_are_made_on_the_loop() -> None:
    async def main() -> int:
        return await current_runtime().run_blocking(lambda: 7)

    assert run_virtually(main) == 7


def test_what_is_left_running_is_cancelled() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("cancelled")

    async def main() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtually(main)
    assert ended == ["cancelled"]


def test_a_loop_that_is_over_is_let_go_of() -> None:
    """A search of a hundred thousand seeds has as many loops, each with limits for its stores."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        claim_limits("somewhere", concurrency=1).release()

    run_virtually(main)
    gc.collect()
    assert loops[0]() is None
