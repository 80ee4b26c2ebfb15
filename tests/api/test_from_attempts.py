"""Committing a job by message whose driver died with the messages: by the attempts that committed, one of each task."""

from __future__ import annotations

import pytest

import committer
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobNotFoundError,
    JobUndecidedError,
    TaskCommitsRequiredError,
    TaskMissingError,
)
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.job_paths import in_job
from tests.places import MemoryPlace, Place, place_fixture, write_file

place = place_fixture("disk", "local", "gcs", "s3", delivery="message")
# Where a task attempt that has not committed leaves files of its own.
shown = place_fixture("disk", "local", "gcs", delivery="message")


async def dead_driver(place: Place, *attempts: tuple[int, int]) -> None:
    """A job whose task attempts committed and whose driver is gone."""
    job = await place.open_job(job_id="job-1")
    for task, attempt in attempts:
        await place.run_task(job, task, {f"a={task}/part-{task}": f"{task}/{attempt}".encode()}, attempt)
    await job.close()


async def commit(place: Place, tasks: int) -> committer.JobReport:
    async with place.attach_job("job-1") as job:
        return await job.commit(from_attempts=True, tasks=tasks)


async def test_one_attempt_of_each_task_wins(place: Place) -> None:
    await dead_driver(place, (0, 0), (1, 3), (2, 0))
    async with place.attach_job("job-1") as job:
        plan = await job.plan(from_attempts=True, tasks=3)
        assert (plan.files, plan.tasks, plan.stray) == (3, 3, [])
        with pytest.raises(TaskCommitsRequiredError, match="from_attempts=True, tasks=") as caught:
            await job.commit()
    assert "from_attempts" in caught.value.next_step
    assert (await commit(place, 3)).files_committed == 3
    assert place.files() == {f"a={task}/part-{task}": text for task, text in enumerate([b"0/0", b"1/3", b"2/0"])}
    assert place.temporary() == set()


async def test_no_task_is_a_commit_of_nothing(place: Place) -> None:
    await dead_driver(place)
    assert (await commit(place, 0)).files_committed == 0


@pytest.mark.parametrize(
    ("attempts", "tasks", "error", "named"),
    [
        ([(0, 0), (2, 0)], 4, TaskMissingError, "task 1 has no committed attempt; task 3 has no committed attempt"),
        ([(0, 0), (1, 0)], 1, TaskMissingError, "task 1 committed, and the job has tasks 0 to 0"),
        ([(0, 0), (0, 2), (1, 0)], 2, TaskCommitsRequiredError, r"task 0 committed as attempt 0 \(run .*attempt 2"),
        ([(0, 1), (0, 1), (1, 0)], 2, TaskCommitsRequiredError, r"task 0 committed as attempt 1 \(run .*attempt 1"),
        ([], 1, TaskMissingError, "task 0 has no committed attempt"),
    ],
)
async def test_it_is_refused_and_the_tasks_are_named(
    place: Place, attempts: list[tuple[int, int]], tasks: int, error: type[CommitterError], named: str
) -> None:
    await dead_driver(place, *attempts)
    before = place.waiting()
    async with place.attach_job("job-1") as job:
        for _again in range(2):
            with pytest.raises(error, match=named) as caught:
                await job.commit(from_attempts=True, tasks=tasks)
            assert caught.value.outcome == "unchanged"
            with pytest.raises(error, match=named):
                await job.plan(from_attempts=True, tasks=tasks)
    assert sorted(place.waiting()) == sorted(before)
    assert await place.states() == {"job-1": "open"}


async def test_what_the_refusal_advises_ends_the_job(place: Place) -> None:
    """Of two attempts of a task one is aborted, as the error says; then each task has one."""
    await dead_driver(place, (0, 0), (0, 2), (1, 0))
    async with place.attach_job("job-1") as job:
        with pytest.raises(TaskCommitsRequiredError) as caught:
            await job.commit(from_attempts=True, tasks=2)
        assert "await job.abort_task(task, attempt)" in caught.value.next_step
        await job.abort_task(0, 0)
        await job.commit(from_attempts=True, tasks=2)
    assert place.files() == {"a=0/part-0": b"0/2", "a=1/part-1": b"1/0"}


async def test_what_is_no_record_of_an_attempt_is_not_guessed_about(place: Place) -> None:
    await dead_driver(place, (0, 0))
    place.write(in_job(place, "job-1", "00/attempts/attempt_other_m_000000_0-aa-manifest.json"), b"{}")
    with pytest.raises(TaskCommitsRequiredError, match="is no record of an attempt of this job"):
        await commit(place, 1)


async def test_a_record_of_another_attempt_than_its_name_says_is_refused(place: Place) -> None:
    await dead_driver(place, (0, 0), (1, 0))
    [first, second] = sorted(name for name in place.all_files() if "/attempts/" in name)
    place.write(first, place.read(second))
    with pytest.raises(CommitterError, match="of another attempt than its name says"):
        await commit(place, 2)
    assert place.files() == {}


async def test_it_takes_the_number_of_tasks_and_no_messages(place: Place) -> None:
    await dead_driver(place, (0, 0))
    async with place.attach_job("job-1") as job:
        for arguments in ({}, {"task_commits": [], "tasks": 0}):
            with pytest.raises(ConfigurationError):
                await job.commit(from_attempts=True, **arguments)
        with pytest.raises(ConfigurationError):
            await job.commit(from_attempts=True, tasks=-1)


@pytest.mark.parametrize("kind", ["local", "s3"])
async def test_by_listing_it_is_a_commit_of_what_is_listed(kind: str) -> None:
    place = MemoryPlace(kind)
    place.delivery = "listing"
    await dead_driver(place, (0, 0), (0, 1), (2, 0))
    with pytest.raises(TaskMissingError, match="not committed: 1"):
        await commit(place, 3)
    assert (await commit(place, 2)).files_committed == 2


@pytest.mark.parametrize("kind", ["local", "gcs", "s3"])
async def test_killed_at_any_call_it_is_finished(kind: str) -> None:
    for number in range(1, 200):
        place = MemoryPlace(kind)
        place.delivery = "message"
        await dead_driver(place, (0, 0), (1, 0))
        place.faults(Fault(kind="crash_before", call=number + len(place.store.calls)))
        try:
            await commit(place, 2)
            break
        except SimulatedCrash:
            place.store = FaultyStore(place.space.store())
        try:
            await place.recover("job-1")
        except (JobUndecidedError, JobNotFoundError):
            await commit(place, 2)
        assert place.files() == {"a=0/part-0": b"0/0", "a=1/part-1": b"1/0"}, number
        assert place.temporary() == set()
    assert 10 < number < 199


async def test_a_task_that_began_tells_that_fewer_were_counted(shown: Place) -> None:
    """The number of records that stand is no number of tasks: by it a task would be missing, and nothing would say so."""
    job = await shown.open_job(job_id="job-1")
    for task in range(2):
        await shown.run_task(job, task, {f"part-{task}": b"x"})
    await job.close()
    unfinished = await shown.open_task(job.spec, task=2)
    await write_file(unfinished, "part-2", b"x")
    for tasks, named in ((2, "task 2 began, and the job has tasks 0 to 1"), (3, "task 2 has no committed attempt")):
        with pytest.raises(TaskMissingError, match=named) as caught:
            await commit(shown, tasks)
        assert "right number of tasks" in caught.value.next_step
    await unfinished.abort()
    # Its executor said that it failed, and removed it: nothing is left that speaks of a third task.
    assert (await commit(shown, 2)).files_committed == 2
