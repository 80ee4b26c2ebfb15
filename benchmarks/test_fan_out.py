"""What the engine's fan-out costs an item: workers over one iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import uvloop
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.suite import WORKERS, Sized
from committer.flow.workers import run_workers

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def _nothing(_item: int) -> None:
    return


async def _one_turn(_item: int) -> None:
    await asyncio.sleep(0)


WORK = {"nothing": _nothing, "one turn of the loop": _one_turn}


async def _numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("work", WORK)
def test_workers_over_an_iterator(benchmark: BenchmarkFixture, sized: Sized, work: str, loop: str) -> None:
    count = sized(100_000, 1_000)
    _run(benchmark, LOOPS[loop], lambda: run_workers(range(count), WORK[work], workers=WORKERS), count)


def test_workers_over_an_asynchronous_iterator(benchmark: BenchmarkFixture, sized: Sized) -> None:
    count = sized(100_000, 1_000)
    _run(benchmark, LOOPS["asyncio"], lambda: run_workers(_numbers(count), _one_turn, workers=WORKERS), count)


def _run(
    benchmark: BenchmarkFixture,
    loop: Callable[[], asyncio.AbstractEventLoop],
    work: Callable[[], Awaitable[int]],
    count: int,
) -> None:
    async def all_of_it() -> int:
        return await work()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert benchmark(lambda: runner.run(all_of_it())) == count
    benchmark.extra_info["items"] = count
