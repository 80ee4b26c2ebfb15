"""What holds no record of any job keeps no id: the next that opens it claims it, and cleanup takes it without force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobExistsError, JobNotFoundError, JobUndecidedError
from committer.records.job_state import Intent, encode_record
from committer.stages.job_directory import JobDirectory, look_at_job
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.engine.places import MemoryPlace, Place, make_place, place_fixture, plain_store

place = place_fixture("disk", "local", "adls", "gcs", "s3")

INTENT = encode_record(Intent(job_id="J", driver="gone", created="2020-01-01T00:00:00+00:00"))


def _leave_intents(place: Place) -> None:
    """What two late drivers of an earlier job leave, and a temporary file."""
    for name in ("intent", "intent-abc", "plan-00000-abc", ".abc.tmp"):
        place.write(f"_temporary/J/{name}", INTENT)


async def _commit(place: Place) -> None:
    async with place.open_job(job_id="J") as job:
        await place.run_task(job, 0, {"a": b"a"})


async def test_late_intents_do_not_keep_an_id(place: Place) -> None:
    _leave_intents(place)
    assert (await place.states()) == {"J": "unknown"}
    with pytest.raises(JobNotFoundError):
        await place.recover("J")
    with pytest.raises(JobNotFoundError):
        await place.attach_job("J")
    job = await place.open_job(job_id="J")
    found = await look_at_job(plain_store(place), job.spec.layout)
    assert found.intents == []
    with pytest.raises(JobUndecidedError):
        await place.recover("J")
    await place.run_task(job, 0, {"a": b"a"})
    await job.commit()
    await job.close()
    assert place.files() == {"a": b"a"}
    assert place.temporary() == set()


@pytest.mark.parametrize("choice", [{"job_id": "J"}, {"older_than": 0}], ids=["by name", "by age"])
async def test_late_intents_are_cleaned_up(place: Place, choice: dict[str, Any]) -> None:
    _leave_intents(place)
    report = await committer.cleanup(place.dest, storage_options=place.options, **choice)
    assert report.removed == ["J"]
    assert place.temporary() == set()


@pytest.mark.parametrize("name", ["file", "00/task", "intent.txt", "tasks/x"])
async def test_what_another_put_there_is_refused(place: Place, name: str) -> None:
    place.write("_temporary/J/.abc.tmp", b"")
    place.write(f"_temporary/J/{name}", b"another's")
    with pytest.raises(JobExistsError):
        await place.open_job(job_id="J")
    assert place.read(f"_temporary/J/{name}") == b"another's"


async def test_driver_dies_before_it_removed_old_intents(place: Place) -> None:
    """Then a recovery does not take them for the new job's."""
    for number in count(1):
        _leave_intents(place)
        store = FaultyStore(plain_store(place), [Fault(kind="crash_after", call=number)])
        try:
            job = await committer.open_job(place.dest, job_id="J", storage_options={"store": store})
        except SimulatedCrash:
            pass
        else:
            await job.close()
            break
        with pytest.raises((JobUndecidedError, JobNotFoundError)):
            await place.recover("J")
        assert place.files() == {}
        await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
        assert place.temporary() == set(), number
    assert number > 5


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
@pytest.mark.parametrize("durability", ["none", "fsync"])
async def test_driver_dies_at_every_store_call_of_its_setup(place: Place, kind: Any, durability: Any) -> None:
    config = CommitterConfig(durability=durability)
    for number in count(1):
        store = FaultyStore(plain_store(place), [Fault(kind=kind, call=number)])
        try:
            job = await committer.open_job(place.dest, job_id="J", config=config, storage_options={"store": store})
        except SimulatedCrash:
            pass
        else:
            await job.close()
            await job_is_over(place)
            break
        try:
            await _commit(place)
        except JobExistsError:
            await job_is_over(place)
            await _commit(place)
        assert place.files() == {"a": b"a"}
        assert place.temporary() == set()
        place.remove("a")
    assert number > 1


async def job_is_over(place: Place) -> None:
    """Its setup record stands: it is a job, which can be joined, and aborted."""
    async with place.attach_job("J") as job:
        await job.abort()
    assert place.temporary() == set()


@pytest.mark.parametrize("left", ["nothing", "temporary file", "intents"])
async def test_one_of_several_wins(place: Place, left: str) -> None:
    if left == "intents":
        _leave_intents(place)
    elif left == "temporary file":
        place.write("_temporary/J/.abc.tmp", b"")
    tries = [place.open_job(job_id="J") for _ in range(5)]
    jobs = await asyncio.gather(*(_opened(one) for one in tries), return_exceptions=True)
    won = [job for job in jobs if isinstance(job, committer.Job)]
    assert len(won) == 1, jobs
    assert all(isinstance(job, JobExistsError) for job in jobs if job is not won[0])
    await place.run_task(won[0], 0, {"a": b"a"})
    await won[0].commit()
    await won[0].close()
    assert place.files() == {"a": b"a"}
    assert place.temporary() == set()


async def _opened(opening: Awaitable[committer.Job]) -> committer.Job:
    return await opening


@pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])
async def test_cleanup_meets_one_that_claims_the_id(profile: str) -> None:
    """At every call of the cleanup another driver opens the id: it keeps its job whole, or is refused."""
    kept = refused = 0
    for number in count(1):
        place: Place = MemoryPlace(profile)
        _leave_intents(place)
        store = FaultyStore(plain_store(place))
        job: committer.Job | None = None

        async def before(call: Call, number: int = number, place: Place = place) -> None:
            nonlocal job
            if call.number == number:
                try:
                    job = await place.open_job(job_id="J")
                except JobExistsError:
                    job = None

        store.before_call = before
        report = None
        try:
            report = await committer.cleanup(place.dest, job_id="J", storage_options={"store": store})
        except CommitterError:
            assert job is not None
        if store.count() < number:
            break
        if job is None:
            refused += 1
            continue
        try:
            await place.run_task(job, 0, {"a": b"a"})
            await job.commit([await job.recover_task(0, 0)])
        except CommitterError:
            # Decided against, as any open job that is cleaned up by its name: its driver is told.
            assert report is not None, number
            assert report.removed, number
            assert place.files() == {}
        else:
            kept += 1
            assert place.files() == {"a": b"a"}
        await job.close()
    assert refused
    assert kept


def test_names_of_remains(tmp_path: Path) -> None:
    layout = make_place("disk", tmp_path).layout("J")
    assert JobDirectory(layout, {}).is_remains
    assert not JobDirectory(layout, {}, beside=True).is_remains
