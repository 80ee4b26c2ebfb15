"""A driver of `file-v1` that gives back what it took, while other drivers of the job take it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from committer.errors import CommitterError
from committer.testing.faults import Call
from tests.engine.file_jobs import FIRST, OTHER, commit_refused, commit_there, job_of_two, process
from tests.engine.file_places import FileInMemory

Stop = Callable[[Call], bool]


class Halting:
    """A process that stops before the calls that are picked, one after the other, and goes on when it is let."""

    def __init__(self, place: FileInMemory) -> None:
        self.store = process(place)
        self.store.before_call = self._before
        self._stop: Stop | None = None
        self._stopped, self._go = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[object] | None = None

    async def _before(self, call: Call) -> None:
        if self._stop is not None and self._stop(call):
            self._stop = None
            self._stopped.set()
            await self._go.wait()

    async def run_to(self, stop: Stop, work: Awaitable[object] | None = None) -> None:
        """Begins the work, or goes on with it, up to the call that is picked."""
        self._stop, self._stopped = stop, asyncio.Event()
        if work is None:
            self._go.set()
        else:
            self._running = asyncio.ensure_future(work)
        self._go = asyncio.Event()
        await self._stopped.wait()

    async def finish(self) -> None:
        assert self._running is not None
        self._go.set()
        with suppress(CommitterError):
            await self._running


def _nth(number: int, operation: str, name: str) -> Stop:
    left = number

    def stop(call: Call) -> bool:
        nonlocal left
        left -= call.operation == operation and call.path.name == name
        return left == 0

    return stop


def _once_taken() -> Stop:
    """The look at what was taken that comes after two listings of it, which a driver rests on."""
    listed = 0

    def stop(call: Call) -> bool:
        nonlocal listed
        looks = call.operation == "list" and "tasks" in (call.path.name, call.path.parent.name)
        listed += looks
        return looks and listed > 2

    return stop


def _any(call: Call) -> bool:
    return True


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
async def test_driver_commits_no_part_of_what_another_one_gives_back(profile: str) -> None:
    """One gives back what it took, a second one took it before that, and a third one finds nothing and makes room."""
    place, job = await job_of_two(profile)
    refused, second, third = Halting(place), Halting(place), Halting(place)
    await refused.run_to(_nth(1, "rename_directory", "tasks"), commit_refused(job, refused.store))
    await second.run_to(_once_taken(), commit_there(job, second.store))
    await third.run_to(_nth(1, "list", "tasks"), commit_there(job, third.store))
    await refused.run_to(_any)
    await third.run_to(_nth(1, "rename_directory", "returning"))
    await second.finish()
    await third.finish()
    await refused.finish()
    if place.temporary():
        await place.recover("j")
    assert place.files() == {**OTHER, **FIRST}
