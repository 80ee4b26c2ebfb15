"""A job of two tasks with a file committer, of which processes of their own run the parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import committer
from committer.errors import JobNotFoundError, TaskMissingError
from committer.testing.faults import Call, FaultyStore
from tests.committers.file_places import FileInMemory

Work = Callable[[FileInMemory, committer.Job, FaultyStore], Awaitable[object]]

FIRST = {"a=1/first": b"1", "b=1/first": b"1"}
SECOND = {"a=1/second": b"22", "c=1/second": b"22"}
OTHER = {"other": b"0"}


async def job_of_two(profile: str, *, commits: bool = True) -> tuple[FileInMemory, committer.Job]:
    """A job of two tasks, whose second has committed once, or not yet."""
    place = FileInMemory("file-v1", profile)
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, OTHER)
    if commits:
        await place.run_task(job, 1, FIRST)
    return place, job


def process(place: FileInMemory) -> FaultyStore:
    """The connection of a process of its own."""
    return FaultyStore(place.space.store())


async def run_second(place: FileInMemory, job: committer.Job, store: FaultyStore) -> None:
    """The second attempt of the second task."""
    async with committer.open_task(job.spec, task=1, attempt=1, storage_options={"store": store}) as task:
        for name, data in SECOND.items():
            async with task.open(name) as file:
                await file.write(data)


async def commit_there(job: committer.Job, store: FaultyStore) -> committer.JobReport:
    """A commit by a driver of its own."""
    async with committer.attach_job(job.spec, storage_options={"store": store}) as attached:
        return await attached.commit()


def before(number: int, then: Callable[[], Awaitable[None]]) -> Callable[[Call], Awaitable[None]]:
    """Does something once, before the call that comes after so many."""
    done = False

    async def hook(call: Call) -> None:
        nonlocal done
        if call.number > number and not done:
            done = True
            await then()

    return hook


async def calls_of(profile: str, work: Work, *, commits: bool = True) -> int:
    """How many calls a piece of work takes that nothing disturbs."""
    place, job = await job_of_two(profile, commits=commits)
    store = process(place)
    await work(place, job, store)
    return store.count()


async def commit_refused(job: committer.Job, store: FaultyStore) -> None:
    """A commit that takes the tasks' directories, and gives them back: it expects another number of tasks."""
    with suppress(TaskMissingError, JobNotFoundError):
        async with committer.attach_job(job.spec, storage_options={"store": store}) as attached:
            await attached.commit(tasks=5)
