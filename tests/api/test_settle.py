"""`settle`: what an earlier run of a job id left is ended, and its caller learns whether the id is committed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.api.cleanup import BEGUN, Cleaning, clean_directory
from committer.errors import CommitterError, ConfigurationError, JobExistsError
from committer.layout import DirectoryName
from committer.paths import StorePath
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.places import MemoryPlace, Place, place_fixture

place = place_fixture("disk", "gcs", "s3", "adls")


async def settle(at: Place, job_id: str = "J", **arguments: Any) -> committer.JobReport | None:
    return await committer.settle(at.dest, job_id, storage_options=at.options, **arguments)


async def left_open(at: Place, config: CommitterConfig | None = None) -> None:
    job = await at.open_job(job_id="J", config=config)
    await at.run_task(job, 0, {"a": b"1"})
    await job.close()


async def died(at: Place, fault: Fault, config: CommitterConfig | None = None) -> None:
    """A driver that dies at a store call of its commit."""
    await left_open(at, config)
    inner = at.store.inner
    job = await committer.attach_job(at.dest, job_id="J", storage_options={"store": FaultyStore(inner, [fault])})
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)


async def test_an_id_that_was_never_used_is_free(place: Place) -> None:
    assert await settle(place) is None
    assert await settle(place, force=True) is None
    assert await settle(place, older_than=timedelta(days=7)) is None


async def test_a_committed_job_is_told_again(place: Place) -> None:
    await place.run_job({"a": b"1"}, job_id="J")
    report = await settle(place)
    assert report is not None
    assert (report.job_id, report.success, report.files_committed) == ("J", True, 1)


@pytest.mark.parametrize("keeps", ["nothing", "summary", "outcome"])
async def test_once_a_later_job_wrote_success_what_is_kept_says_it(place: Place, keeps: str) -> None:
    directory = f"{place.dest.rpartition('/')[0]}/reports"
    config = CommitterConfig(
        outcome_kept=keeps == "outcome", summary_report_directory=directory if keeps == "summary" else ""
    )
    await place.run_job({"a": b"1"}, job_id="J", config=config)
    await place.run_job({"b": b"2"}, job_id="later")
    report = await settle(place, config=config)
    assert (report is not None) == (keeps != "nothing")
    await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
    assert (await settle(place, config=config) is not None) == (keeps != "nothing")


async def test_an_undecided_job_whose_driver_runs_is_left_alone(place: Place) -> None:
    await left_open(place)
    before = place.all_files()
    for older_than in (None, 3600):
        with pytest.raises(JobExistsError, match="its driver runs, and is this process") as caught:
            await settle(place, older_than=older_than)
        assert (caught.value.state, caught.value.operation) == ("open", "settle")
    assert place.all_files() == before


async def test_a_cell_that_runs_twice_is_told_what_frees_the_id(place: Place) -> None:
    await left_open(place)
    with pytest.raises(JobExistsError, match="its driver runs, and is this process") as caught:
        await place.open_job(job_id="J")
    assert "commit or abort that job; if no variable holds it any more" in caught.value.next_step
    assert "'J', force=True" in caught.value.next_step
    assert await settle(place, force=True) is None
    await place.run_job({"a": b"2"}, job_id="J")


@pytest.mark.parametrize("how", [{"force": True}, {"older_than": 0}])
async def test_an_undecided_job_goes_by_force_or_age(place: Place, how: dict[str, Any]) -> None:
    await left_open(place, CommitterConfig(driver_hidden=("process",)))
    with pytest.raises(JobExistsError, match="whether its driver runs is not known here") as caught:
        await settle(place)
    step = f"`await committer.settle({str(StorePath.of(place.dest))!r}, 'J', force=True, storage_options={{'store': ...}})`"
    assert step in caught.value.next_step
    assert await settle(place, **how) is None
    assert (place.files(), place.temporary()) == ({}, set())
    await place.run_job({"a": b"2"}, job_id="J")
    assert place.files() == {"a": b"2"}


@pytest.mark.parametrize("record", ["decision", "outcome"])
async def test_a_decided_job_is_finished_though_its_driver_may_run(place: Place, record: str) -> None:
    await died(place, Fault(kind="crash_after", operation="put", path=f"/{record}"))
    with pytest.raises(JobExistsError) as caught:
        await place.open_job(job_id="J")
    assert caught.value.state == {"decision": "committing", "outcome": "committed"}[record]
    assert "nothing is left to run" in caught.value.next_step
    report = await settle(place)
    assert report is not None
    assert (place.files(), report.files_committed) == ({"a": b"1"}, 1)


async def test_an_intent_of_a_driver_of_this_process_counts(place: Place) -> None:
    await died(place, Fault(kind="crash_after", operation="put", path="/intent-"))
    with pytest.raises(JobExistsError, match="its driver runs"):
        await settle(place)
    assert await settle(place, force=True) is None
    assert (place.files(), place.temporary()) == ({}, set())


async def test_what_was_aborted_or_taken_back_leaves_the_id_free(place: Place) -> None:
    await left_open(place)
    store = FaultyStore(place.store.inner, [Fault(kind="crash_after", operation="put", path="/decision")])
    job = await committer.attach_job(place.dest, job_id="J", storage_options={"store": store})
    with pytest.raises(SimulatedCrash):
        await job.abort()
    with pytest.raises(JobExistsError) as caught:
        await place.open_job(job_id="J")
    assert (caught.value.state, "then run the job again" in caught.value.next_step) == ("aborted", True)
    assert await settle(place) is None
    assert place.temporary() == set()

    await died(place, Fault(kind="crash_after", operation="put", path="/decision"))
    store = FaultyStore(place.store.inner, [Fault(kind="crash_after", operation="put", path="/outcome")])
    with pytest.raises(SimulatedCrash):
        await committer.recover(place.dest, "J", rollback=True, force=True, storage_options={"store": store})
    with pytest.raises(JobExistsError) as caught:
        await place.open_job(job_id="J")
    assert caught.value.state == "rolled-back"
    assert await settle(place) is None
    assert (place.files(), place.temporary()) == ({}, set())


async def test_a_run_that_was_aborted_hides_no_earlier_commit_of_the_id(place: Place) -> None:
    """`_SUCCESS` is of the first run: a third one would publish its rows again."""
    await place.run_job({"a": b"1"}, job_id="J")
    await left_open(place)
    report = await settle(place, force=True)
    assert report is not None
    assert report.files_committed == 1


@pytest.mark.parametrize("profile", ["gcs", "s3"])
async def test_killed_before_every_store_call_of_an_object_store(profile: str) -> None:
    """The process that settles cannot know that such a driver is dead, so its caller says it."""
    ends = []
    for number in count():
        at = MemoryPlace(profile)
        calls = 0

        async def before(_call: object, number: int = number) -> None:
            nonlocal calls
            calls += 1
            if calls > number:
                raise SimulatedCrash

        store = FaultyStore(at.store.inner)
        store.before_call = before
        try:
            async with committer.open_job(at.dest, job_id="J", storage_options={"store": store}) as job:
                async with job.task_attempt(0) as task, task.open("a") as file:
                    await file.write(b"1")
                await job.commit(tasks=1)
            break
        except (SimulatedCrash, CommitterError):
            pass
        report = await settle(at, force=True)
        ends.append(report is not None)
        assert at.files() == ({} if report is None else {"a": b"1"}), number
        if report is None:
            await at.run_job({"b": b"2"}, job_id="J")
            assert at.files() == {"b": b"2"}, number
        assert await settle(at) is not None, number
    assert ends == sorted(ends)
    assert set(ends) == {False, True}


async def test_arguments_are_checked(place: Place) -> None:
    for wrong in ({"force": "false"}, {"older_than": -1}):
        with pytest.raises(ConfigurationError):
            await settle(place, **wrong)
    with pytest.raises(ConfigurationError):
        await settle(place, "a/b")


async def test_settled_while_its_driver_commits(place: Place) -> None:
    """Both end the same job, or the driver is seen to run."""
    job = await place.open_job(job_id="J")
    await place.run_task(job, 0, {"a": b"1"})
    report, settled = await asyncio.gather(job.commit(tasks=1), settle(place), return_exceptions=True)
    await job.close()
    assert isinstance(report, committer.JobReport)
    assert isinstance(settled, committer.JobReport | JobExistsError)
    assert place.files() == {"a": b"1"}


@pytest.mark.parametrize("first", ["committed", "rolled back"])
async def test_of_two_runs_whose_directories_stay_one_that_committed_counts(place: Place, first: str) -> None:
    stays = CommitterConfig(cleanup_skipped=True)
    for run in (first, "committed" if first == "rolled back" else "rolled back"):
        if run == "committed":
            await place.run_job({"c": b"1"}, job_id="J", config=stays)
            continue
        await died(place, Fault(kind="crash_before", operation="put", path="/outcome"), stays)
        await place.recover("J", rollback=True, force=True)
    report = await settle(place)
    assert report is not None
    assert report.success


async def test_a_job_that_another_driver_begins_to_commit_is_not_removed(place: Place) -> None:
    """`settle` checked only the drivers whose intents existed earlier."""
    await died(place, Fault(kind="crash_before", operation="put", path="/decision"))
    name = DirectoryName("J", place.layout("J").setup_name, "")
    destination = StorePath.of(place.dest)
    asked = Cleaning(None, force=False, dry=False, intents=frozenset())
    reason = await clean_directory(place.store.inner, destination, name, CommitterConfig(), asked, [])
    assert reason == BEGUN
    assert (await place.recover("J")).files_committed == 1
