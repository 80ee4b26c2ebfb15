"""Jobs that append to one destination and end at once: the last to end has its `_SUCCESS` stay, in whatever order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from committer.testing.faults import Call, FaultyStore
from tests.neighbours.ending import job, marked
from tests.neighbours.meeting import Table, writes_success

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])


@PROFILES
async def test_the_last_to_end_wins(profile: str) -> None:
    table = Table(profile)
    first, second = await job(table, "first"), await job(table, "second")
    await first.until(writes_success)
    await second.until(writes_success)
    await second.to_the_end()
    assert marked(table) == "second"
    await first.to_the_end()
    assert first.party.error is second.party.error is None
    assert marked(table) == "first"
    assert set(table.files()) == {"p=1/first", "p=1/second"}
    assert table.temporary() == set()


class Turns:
    """Lets one of many processes do its next store call, and then one again, as a seed says."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def wait_in(self, store: FaultyStore, number: int) -> None:
        async def before(_call: Call) -> None:
            turn = asyncio.get_running_loop().create_future()
            self._waiting[number * 100 + len(self._waiting)] = turn
            await turn

        store.before_call = before

    async def go_on(self, running: list[asyncio.Task[None]]) -> None:
        """Until all are done."""
        while not all(each.done() for each in running):
            for _settling in range(5):
                await asyncio.sleep(0)
            if self._waiting:
                self._waiting.pop(self._random.choice(sorted(self._waiting))).set_result(None)


@PROFILES
@pytest.mark.parametrize("seed", range(8))
async def test_jobs_that_end_in_any_turn_leave_the_marker_of_one_of_them(profile: str, seed: int) -> None:
    table, turns, names = Table(profile), Turns(seed), ["a", "b", "c", "d"]
    jobs = [await job(table, name) for name in names]
    for each in jobs:
        await each.until(writes_success)
    for number, each in enumerate(jobs):
        turns.wait_in(each.party.store, number)
    ends = [asyncio.create_task(each.to_the_end()) for each in jobs]
    await turns.go_on(ends)
    for end in ends:
        await end
    assert {each.party.error for each in jobs} == {None}
    assert marked(table) in names
    assert set(table.files()) == {f"p=1/{name}" for name in names}
    assert table.temporary() == set()
