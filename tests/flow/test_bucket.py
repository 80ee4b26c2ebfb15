"""The bucket of tokens: driven by the runtime's clock."""

from __future__ import annotations

import asyncio

import pytest

from committer.flow.pacing import Bucket
from committer.testing.virtual_time import VirtualRuntime


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
