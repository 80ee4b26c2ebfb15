"""Many things, a portion at a time."""

from __future__ import annotations

import asyncio

import pytest

from committer.flow.workers import portions


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
async def test_all_items_come_once_and_others_run_between_portions(count: int) -> None:
    turns = 0
    ended = False

    async def other() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    seen: list[int] = []
    async for some in portions(range(count)):
        assert 0 < len(some) <= 1000
        seen += some
    at_the_end, ended = turns, True
    await running
    assert seen == list(range(count))
    assert at_the_end >= -(-count // 1000)
