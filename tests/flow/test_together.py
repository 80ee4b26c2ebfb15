"""A few calls at once: results in order, the first failure as it is, and a cancellation that nothing hides."""

from __future__ import annotations

import asyncio

import pytest

from committer.flow.together import both, together

pytestmark = pytest.mark.every_loop


async def ends_with(error: Exception, started: asyncio.Event) -> None:
    """Fails while it is being cancelled, as a request does whose connection is torn down."""
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        raise error


async def test_both_results_in_order() -> None:
    assert await both(asyncio.sleep(0.001, "slow"), asyncio.sleep(0, "fast")) == ("slow", "fast")


async def test_first_failure_is_raised_as_it_is_and_cancels_the_others() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def fails() -> None:
        await started.wait()
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await together(waits(), fails())
    assert cancelled.is_set()


async def test_cancellation_of_the_caller_is_not_hidden_by_a_call_that_fails_meanwhile() -> None:
    started = asyncio.Event()
    caller = asyncio.create_task(together(ends_with(ValueError("torn down"), started), asyncio.Event().wait()))
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    assert isinstance(caught.value.__cause__, ValueError)


async def test_failure_is_told_by_a_caller_that_was_cancelled_before_and_cleans_up() -> None:
    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            started = asyncio.Event()
            with pytest.raises(ValueError, match="failed"):
                await together(fails(started), started.wait())
            raise

    async def fails(started: asyncio.Event) -> None:
        started.set()
        raise ValueError("failed")

    caller = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
