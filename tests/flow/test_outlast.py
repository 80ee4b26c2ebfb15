"""Clean-up runs to its end, or its bound, however often its caller is cancelled."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from committer.flow.shielded import run_shielded

pytestmark = pytest.mark.every_loop


async def test_result_and_error_of_the_work() -> None:
    async def fine() -> None:
        await asyncio.sleep(0)

    async def broken() -> None:
        raise ValueError("broken")

    assert await run_shielded(fine, bound_s=10)
    with pytest.raises(ValueError, match="broken"):
        await run_shielded(broken, bound_s=10)


@pytest.mark.parametrize("breaks", [False, True])
async def test_cancelled_several_times(breaks: bool) -> None:
    go, done = asyncio.Event(), False

    async def work() -> None:
        nonlocal done
        await go.wait()
        done = True
        if breaks:
            raise ValueError("broken")

    task = asyncio.create_task(run_shielded(work, bound_s=10))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done


async def test_within_a_cancelled_scope() -> None:
    done = False

    async def work() -> None:
        nonlocal done
        await asyncio.sleep(0)
        await anyio.lowlevel.checkpoint()
        done = True

    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_shielded(work, bound_s=10)
    assert done


async def test_bound() -> None:
    ended = False

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            ended = True

    assert not await run_shielded(work, bound_s=0)
    assert ended
