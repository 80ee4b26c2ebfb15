"""A cleanup that decides against what no setup record explains says nothing of how the job ended whose id that has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import JobNotFoundError
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.engine.places import MemoryPlace

LATE = "_temporary/j/00/tasks/attempt_j_m_000000_1-3048fef4dfa7/part-0"
HADOOPS = "_temporary/j/00/tasks/attempt_j_m_000000_1/part-0"

flat_stores = pytest.mark.parametrize("profile", ["adls", "gcs", "s3", "azure-flat"])
every_store = pytest.mark.parametrize("profile", ["adls", "gcs", "s3", "azure-flat", "local", "hdfs"])


async def _commit(place: MemoryPlace, *, marked: bool) -> None:
    config = CommitterConfig(mark_successful_jobs=marked)
    async with place.open_job(job_id="j", config=config) as job:
        await place.run_task(job, 0, {"part-0": b"data"})


async def _stopped(place: MemoryPlace, left: str) -> AsyncIterator[int]:
    """Lets a cleanup of what is left stop after each of its calls in turn; what stands then is the caller's to look at.

    Args:
        place: Where.
        left: The file that is left.
    """
    for number in count(1):
        place.write(left, b"late")
        store = FaultyStore(place.space.store(), [Fault(kind="crash_after", call=number)])
        try:
            await committer.cleanup(place.dest, job_id="j", storage_options={"store": store})
        except SimulatedCrash:
            yield number
        else:
            # A listing of nothing has no answer after which a process could stop.
            if store.count() < number:
                return
        with suppress(JobNotFoundError):
            await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
        assert place.temporary() <= {"_temporary"}


@flat_stores
@pytest.mark.parametrize("rollback", [False, True])
@pytest.mark.parametrize("marked", [False, True])
async def test_a_recoverer_beside_the_cleanup_of_what_late_tasks_left(
    profile: str, rollback: bool, marked: bool
) -> None:
    """The job committed: that is what it says, or that it does not know; and not that it was aborted."""
    place = MemoryPlace(profile)
    await _commit(place, marked=marked)
    decided = 0
    async for _number in _stopped(place, LATE):
        decided += "_temporary/j/decision" in place.all_files()
        if marked:
            # Its directory alone, which a late task made, is no job.
            with suppress(JobNotFoundError):
                assert (await place.recover("j", rollback=rollback)).success
        else:
            with pytest.raises(JobNotFoundError) as caught:
                await place.recover("j", rollback=rollback)
            assert caught.value.outcome == "unchanged"
        assert place.files() == {"part-0": b"data"}
    assert decided


@every_store
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_decision_against_remains_is_removed_by_who_meets_it(profile: str, rollback: bool) -> None:
    place = MemoryPlace(profile)
    decided = False
    async for _number in _stopped(place, HADOOPS):
        if "_temporary/j/decision" in place.all_files():
            decided = True
            assert await place.states() == {"j": "unknown"}
            with pytest.raises(JobNotFoundError):
                await place.recover("j", rollback=rollback)
            assert place.temporary() == set()
    assert decided


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3", "local", "hdfs"])
@pytest.mark.parametrize("joins", ["attach", "hadoop"])
async def test_a_driver_of_a_job_of_hadoops_that_is_cleaned_up_commits_nothing(profile: str, joins: str) -> None:
    place = MemoryPlace(profile)
    decided = False
    async for _number in _stopped(place, HADOOPS):
        if "_temporary/j/decision" in place.all_files():
            decided = True
            spec = JobSpec.for_hadoop(place.dest, "j")
            joined: committer.Job | None = None
            with pytest.raises(JobNotFoundError):
                if joins == "attach":
                    joined = await place.attach_job("j")
                else:
                    joined = await committer.attach_job(spec, storage_options=place.options)
                await joined.commit()
            if joined is not None:
                await joined.close()
            assert place.files() == {}
    assert decided


async def _kept_while(place: MemoryPlace, act: Callable[[], Awaitable[object]]) -> bytes:
    """The decision that stood while something was done."""
    kept = b""

    async def before(call: Call) -> None:
        nonlocal kept
        kept = place.all_files().get("_temporary/j/decision", kept)

    place.store.before_call = before
    await act()
    place.store.before_call = None
    assert kept
    return kept


@flat_stores
async def test_a_decision_against_remains_that_arrives_once_the_id_is_set_up_anew(profile: str) -> None:
    """It says nothing of the job that has the id by then: its driver removes it, and commits."""
    place = MemoryPlace(profile)
    place.write(LATE, b"late")
    kept = await _kept_while(place, lambda: committer.cleanup(place.dest, job_id="j", storage_options=place.options))
    assert place.temporary() == set()
    async with place.open_job(job_id="j") as job:
        await place.run_task(job, 0, {"part-0": b"data"})
        place.write("_temporary/j/decision", kept)
        assert (await job.commit()).success
    assert place.files() == {"part-0": b"data"}
    assert place.temporary() == set()


@flat_stores
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_decision_against_remains_that_arrives_when_nothing_is_left(profile: str, rollback: bool) -> None:
    place = MemoryPlace(profile)
    await _commit(place, marked=False)
    place.write(LATE, b"late")
    kept = await _kept_while(place, lambda: committer.cleanup(place.dest, job_id="j", storage_options=place.options))
    for with_rest in (False, True):
        place.write("_temporary/j/decision", kept)
        if with_rest:
            place.write(LATE, b"late")
        with pytest.raises(JobNotFoundError):
            await place.recover("j", rollback=rollback)
        assert place.temporary() == set()
    assert place.files() == {"part-0": b"data"}


@flat_stores
async def test_a_claim_whose_record_is_gone_is_not_looked_at_again_and_again(profile: str) -> None:
    """The process that claimed the id removed its record; a task made the job's directory again since."""
    place = MemoryPlace(profile)
    claimed = 0
    async for _number in _stopped(place, "_temporary/j/.abc.tmp"):
        if "_temporary/j/setup" not in place.all_files() or "_temporary/j/decision" in place.all_files():
            continue
        claimed += 1
        operator = FaultyStore(place.space.store())

        async def before(call: Call, place: MemoryPlace = place, operator: FaultyStore = operator) -> None:
            # Once it was found: when its driver looks where the job stands.
            if call.operation == "list" and operator.counts()["list"] == 2:
                for name in [name for name in place.all_files() if name.startswith("_temporary/j/")]:
                    place.remove(name)
                place.write(LATE, b"late")

        operator.before_call = before
        with pytest.raises(JobNotFoundError):
            await committer.recover(place.dest, "j", rollback=True, storage_options={"store": operator})
        assert LATE in place.all_files()
    assert claimed
