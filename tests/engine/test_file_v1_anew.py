"""`file-v1` when a driver stands still, at any of its calls, while its job is ended and its id is set up anew.

All jobs of one id use the same names where tasks commit. The driver that goes on may take nothing of the new job.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import committer
from committer.errors import CommitterError, JobNotFoundError, JobStateError, TaskMissingError
from committer.testing.faults import Call, FaultyStore
from tests.engine.file_jobs import (
    FIRST,
    OTHER,
    SECOND,
    Work,
    calls_of,
    commit_refused,
    commit_there,
    job_of_two,
    process,
    run_second,
)
from tests.engine.file_places import FileInMemory
from tests.rotation import Share

PROFILES = pytest.mark.parametrize(
    "profile", [pytest.param(profile, marks=pytest.mark.one_in(4)) for profile in ("local", "hdfs", "adls")]
)
NEW = {"new": b"33"}


class Stopped:
    """A driver that stands still before the call that comes after so many, until it is told to go on."""

    def __init__(self, place: FileInMemory, job: committer.Job, work: Work, number: int) -> None:
        self._number = number
        self._reached, self._going_on = asyncio.Event(), asyncio.Event()
        store = process(place)
        store.before_call = self._before
        self._work = asyncio.create_task(self._run(work(place, job, store)))

    async def _before(self, call: Call) -> None:
        if call.number > self._number and not self._reached.is_set():
            self._reached.set()
            await self._going_on.wait()

    async def _run(self, work: object) -> None:
        with suppress(CommitterError):
            await work  # type: ignore[misc]

    async def stands_still(self) -> None:
        await self._reached.wait()

    async def goes_on(self) -> None:
        self._going_on.set()
        await self._work


async def _committing(place: FileInMemory, job: committer.Job, store: FaultyStore) -> object:
    return await commit_there(job, store)


async def _refused(place: FileInMemory, job: committer.Job, store: FaultyStore) -> object:
    return await commit_refused(job, store)


async def _aborting(place: FileInMemory, job: committer.Job, store: FaultyStore) -> object:
    async with committer.attach_job(job.spec, storage_options={"store": store}) as attached:
        return await attached.abort_task(1, 0)


async def _set_up_anew(place: FileInMemory) -> committer.Job | None:
    """Ends the job without a word to its driver, and sets its id up; None where it was committed by then."""
    with suppress(JobNotFoundError):
        await committer.cleanup(place.dest, job_id="j", force=True, storage_options={"store": process(place)})
    if place.files():
        return None
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, NEW)
    await place.run_task(job, 1, FIRST)
    return job


WORKS = pytest.mark.parametrize("work", [_committing, _refused, _aborting])


@PROFILES
@WORKS
async def test_a_driver_that_goes_on_before_a_task_commits_again(profile: str, work: Work, share: Share) -> None:
    """Of two commits of a task the last counts, whatever the driver of the job before took."""
    met = 0
    for number in share.of(range(await calls_of(profile, work))):
        place, job = await job_of_two(profile)
        driver = Stopped(place, job, work, number)
        await driver.stands_still()
        anew = await _set_up_anew(place)
        await driver.goes_on()
        if anew is None:
            continue
        try:
            await run_second(place, anew, process(place))
        except CommitterError as error:
            assert error.outcome == "unchanged"
            expected = FIRST
        else:
            expected = SECOND
        await commit_there(anew, process(place))
        assert (place.files(), "j" in await place.states()) == ({**NEW, **expected}, False), number
        met += 1
    assert met > 10 or not share.is_whole


@PROFILES
@WORKS
async def test_a_driver_that_goes_on_beside_the_new_jobs(profile: str, work: Work, share: Share) -> None:
    """At every twentieth call of the new job's commit, others at each call of the old driver."""
    met = 0
    for number in share.of(range(await calls_of(profile, work))):
        for later in range(number % 20, 60, 20):
            place, job = await job_of_two(profile)
            driver = Stopped(place, job, work, number)
            await driver.stands_still()
            anew = await _set_up_anew(place)
            if anew is None:
                await driver.goes_on()
                break
            await _commit_beside(place, anew, driver, later)
            await driver.goes_on()
            assert place.files() == {**NEW, **FIRST}, (number, later)
            met += 1
    assert met > 20 or not share.is_whole


async def _commit_beside(place: FileInMemory, job: committer.Job, other: Stopped, later: int) -> None:
    store = process(place)
    store.before_call = Once(later, other).before
    try:
        await commit_there(job, store)
    except CommitterError as error:
        # What the old driver wrote was in the way for a moment. Nothing was published, so the commit is repeated.
        assert error.outcome == "unchanged"
        await commit_there(job, process(place))


class Once:
    """Lets a driver go on, to its end, before the call that comes after so many."""

    def __init__(self, number: int, driver: Stopped) -> None:
        self._number, self._driver, self._done = number, driver, False

    async def before(self, call: Call) -> None:
        if call.number > self._number and not self._done:
            self._done = True
            await self._driver.goes_on()


@PROFILES
async def test_what_drivers_took_that_were_refused_beside_each_other_counts(profile: str, share: Share) -> None:
    """Neither knows that it may give back. A task that commits again then is told so, and the job can be committed."""
    told = set()
    for number in share.of(range(await calls_of(profile, _refused))):
        place, job = await job_of_two(profile)
        first = Stopped(place, job, _refused, number)
        await first.stands_still()
        store = process(place)
        store.before_call = Once(12, first).before
        await commit_refused(job, store)
        await first.goes_on()
        try:
            await run_second(place, job, process(place))
        except JobStateError as error:
            assert error.outcome == "unchanged"
            expected = FIRST
        else:
            expected = SECOND
        with pytest.raises(TaskMissingError):
            await job.commit(tasks=3)
        await commit_there(job, process(place))
        assert (place.files(), place.temporary()) == ({**OTHER, **expected}, set()), number
        told.add(expected is FIRST)
    assert told == {True, False} or not share.is_whole
