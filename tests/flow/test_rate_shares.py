"""Shares of a rate: never more than all of it, and all of it again where a worker is gone."""

from __future__ import annotations

import asyncio

import pytest

from committer.flow.pacing import RateShares


async def test_as_many_shares_as_workers() -> None:
    shares = RateShares(100.0, lambda: 4)
    assert [await shares.take() for _ in range(4)] == [25.0] * 4
    waiting = asyncio.create_task(shares.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    shares.give_back(25.0)
    assert await waiting == 25.0


async def test_without_a_limit_workers_are_counted() -> None:
    shares = RateShares(None, lambda: 2)
    assert [await shares.take(), await shares.take()] == [None, None]
    waiting = asyncio.create_task(shares.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    shares.give_back(None)
    assert await waiting is None
    assert shares.rest(None) is None


@pytest.mark.parametrize(("before", "after"), [(4, 3), (2, 4), (5, 1), (1, 3), (3, 0)])
async def test_the_rate_is_shared_out_anew_where_the_number_of_workers_changes(before: int, after: int) -> None:
    number = before
    shares = RateShares(60.0, lambda: number)
    out = [await shares.take() for _ in range(before)]
    number = after
    taking: list[asyncio.Task[float | None]] = []
    for _ in range(20):
        shares.give_back(out.pop(0))
        taking.append(asyncio.create_task(shares.take()))
        await asyncio.sleep(0.001)
        out += [task.result() for task in taking if task.done()]
        taking = [task for task in taking if not task.done()]
        assert sum(share or 0 for share in out) <= 60.0 + 1e-6
        assert out
    for _ in range(max(after, 1)):
        taking.append(asyncio.create_task(shares.take()))
    await asyncio.sleep(0.001)
    out += [task.result() for task in taking if task.done()]
    assert out == pytest.approx([60.0 / max(after, 1)] * max(after, 1))
    for task in taking:
        task.cancel()


async def test_a_waiter_that_is_cancelled_keeps_no_other_waiting() -> None:
    shares = RateShares(10.0, lambda: 1)
    await shares.take()
    first, second = asyncio.create_task(shares.take()), asyncio.create_task(shares.take())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    shares.give_back(10.0)
    assert await asyncio.wait_for(second, 1) == 10.0


async def test_the_rest_is_what_no_other_has() -> None:
    shares = RateShares(90.0, lambda: 3)
    first = await shares.take()
    second = await shares.take()
    assert shares.rest(first) == 60.0
    shares.give_back(second)
    assert shares.rest(first) == 90.0
