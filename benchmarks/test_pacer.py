"""What a permit of the endpoint's pacer costs, and whether a rate is reached and held."""

from __future__ import annotations

import asyncio
import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.suite import WORKERS, Sized
from committer.flow.pacing import Pacer
from committer.flow.workers import run_workers

BURST = 100


async def _take(permits: int, rate: float | None) -> float:
    pacer = Pacer("benchmark", concurrency=WORKERS, rate=rate, burst=BURST)

    async def one(_number: int) -> None:
        async with pacer.permit():
            pass

    started = time.perf_counter()
    await run_workers(range(permits), one, workers=WORKERS)
    assert pacer.in_use == 0
    assert sum(pacer.granted.values()) == permits
    return time.perf_counter() - started


@pytest.mark.parametrize("rate", [None, 1e9], ids=["no rate", "a rate that is never reached"])
def test_free_permits(benchmark: BenchmarkFixture, sized: Sized, rate: float | None) -> None:
    permits = sized(100_000, 1_000)
    with asyncio.Runner() as runner:
        benchmark(lambda: runner.run(_take(permits, rate)))
    benchmark.extra_info["permits"] = permits


@pytest.mark.parametrize("rate", [10_000.0, 30_000.0], ids=lambda rate: f"{rate:g} a second")
def test_permits_at_a_rate(benchmark: BenchmarkFixture, sized: Sized, rate: float) -> None:
    permits = int(rate * sized(200, 5) / 100)
    with asyncio.Runner() as runner:
        cpu = time.process_time()
        lasted = benchmark.pedantic(lambda: runner.run(_take(permits, rate)), rounds=1)
        used = time.process_time() - cpu
    benchmark.extra_info.update(permits=permits, share=permits / lasted / rate, cpu_us=used / permits * 1e6)
    # A rate that is exceeded is a fault on any machine; one that is not reached may be the machine's.
    assert permits - BURST <= lasted * rate * 1.001
