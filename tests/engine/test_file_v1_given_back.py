"""A driver of `file-v1` that gives back what it took, while other drivers of the job take it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

import committer
from committer.errors import CommitterError
from committer.testing.faults import Call
from tests.engine.file_jobs import FIRST, OTHER, commit_refused, commit_there, job_of_two, process
from tests.engine.file_places import FileInMemory

Stop = Callable[[Call], bool]

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])


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


@PROFILES
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


def _gives_back(call: Call) -> bool:
    return call.operation == "rename_directory" and call.path.parent.name == "returning"


def _has_deleted_what_is_outside(call: Call) -> bool:
    return call.operation == "rename_directory" and call.destination is not None and ".removed" in call.destination.name


@PROFILES
@pytest.mark.parametrize("how", ["abort", "cleanup"])
async def test_what_is_given_back_while_the_job_is_removed_goes_with_it(profile: str, how: str) -> None:
    """The removal looked at the directories that jobs share before. A driver of Hadoop's would publish what lies there."""
    place, job = await job_of_two(profile)
    refused, removing = Halting(place), Halting(place)

    async def remove() -> None:
        options = {"store": removing.store}
        if how == "cleanup":
            await committer.cleanup(place.dest, job_id="j", storage_options=options)
            return
        async with committer.attach_job(job.spec, storage_options=options) as attached:
            await attached.abort()

    await refused.run_to(_gives_back, commit_refused(job, refused.store))
    await removing.run_to(_has_deleted_what_is_outside, remove())
    await refused.finish()
    await removing.finish()
    assert place.temporary() <= {"_temporary"}
    assert place.files() == {}


def _writes(name: str) -> Stop:
    def stop(call: Call) -> bool:
        target = call.destination or call.path
        return call.operation in ("put", "rename_file") and target.name == name

    return stop


def _publishes(call: Call) -> bool:
    return (
        call.operation == "rename_file" and call.destination is not None and call.destination.name in {**FIRST, **OTHER}
    )


@PROFILES
@pytest.mark.parametrize("counts_by", ["its intent", "the decision"])
async def test_driver_looks_for_others_before_it_gives_each_back(profile: str, counts_by: str) -> None:
    """Another one rests on what this one moved away in one rename: the same rename the other way, and nothing else."""
    place, job = await job_of_two(profile)
    refused, other = Halting(place), Halting(place)
    await refused.run_to(_nth(1, "rename_directory", "tasks"), commit_refused(job, refused.store))
    gives_back = refused.store.count() - 1
    await other.run_to(_writes("decision") if counts_by == "its intent" else _publishes, commit_there(job, other.store))
    await refused.finish()
    calls = refused.store.calls[gives_back:]
    moves = [call for call in calls if call.operation == "rename_directory" and call.destination is not None]
    named = [(call.path.name, call.destination.name) for call in moves if call.destination is not None]
    assert named[:2] == [("tasks", "returning"), ("returning", "tasks")]
    assert "returning" not in {call.path.parent.name for call in moves}
    away, back = moves[0].number, moves[1].number
    assert any(
        call.operation == "list" and call.path.name == job.spec.unique_id and away < call.number < back
        for call in calls
    )
    await other.finish()
    if place.temporary():
        await place.recover("j")
    assert place.files() == {**OTHER, **FIRST}
