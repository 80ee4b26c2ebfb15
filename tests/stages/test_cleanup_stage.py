"""Twin of Hadoop's TestCleanupStage: how a job's directory goes, and what happens when some of it does not.

Where this engine differs: it removes the job's own directory and never all of `_temporary`; the outcome goes last; where
a store deletes a tree in one call that is tried first, as with Hadoop's option for it; what a parallel delete could not remove is tried once more with its parent, as Hadoop does.
"""

from __future__ import annotations

import pytest

from committer import CommitterConfig
from committer.errors import CommitterError
from committer.testing.faults import Fault
from tests.job_paths import has_in_job, in_job
from tests.places import MemoryPlace

ATTEMPTS = 5


async def committed(config: CommitterConfig, *faults: Fault, profile: str = "local"):
    """Commits a job of five tasks; the place, what it raised, and its deletes of directories."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="job-1", config=config)
    for task in range(ATTEMPTS):
        await place.run_task(job, task, {f"part-{task}": b"x"})
    place.faults(*faults)
    place.store.calls.clear()
    error = None
    try:
        await job.commit()
    except CommitterError as caught:
        error = caught
    deletes = [call for call in place.store.calls if call.operation == "delete_directory"]
    assert len(place.files()) == ATTEMPTS
    return place, error, deletes


def attempts_of(deletes) -> list:
    return [call for call in deletes if call.path.parent.name == "tasks"]


def attempt_fails(times: int | None = 1) -> Fault:
    return Fault(
        kind="forbidden", operation="delete_directory", path=lambda path: path.parent.name == "tasks", times=times
    )


def parent_fails(times: int | None = 1) -> Fault:
    return Fault(
        kind="forbidden", operation="rename_directory", path=lambda path: path.name.startswith("job-1~"), times=times
    )


@pytest.mark.parametrize(
    ("profile", "choices", "calls"),
    [
        ("local", {}, ATTEMPTS),
        ("local", {"cleanup_base_first": True}, 0),
        ("local", {"cleanup_parallel_delete": False}, 0),
        # The store deletes a tree in one call.
        ("hdfs", {}, 0),
    ],
)
async def test_healthy(profile: str, choices: dict[str, bool], calls: int) -> None:
    place, error, deletes = await committed(CommitterConfig(**choices), profile=profile)
    assert error is None
    assert len(attempts_of(deletes)) == calls
    assert place.temporary() == set()


@pytest.mark.parametrize("times", [1, None])
async def test_task_directories_fail_and_their_parent_works(times: int | None) -> None:
    place, error, deletes = await committed(CommitterConfig(), attempt_fails(times))
    assert error is None
    assert len(attempts_of(deletes)) == ATTEMPTS
    assert place.temporary() == set()


@pytest.mark.parametrize(("marked", "alone"), [(True, False), (True, True), (False, True)])
async def test_all_or_their_parent_alone_fail(marked: bool, alone: bool) -> None:
    """As long as the job's directory exists, decision and outcome say what became of the job."""
    faults = [parent_fails(None)] if alone else [attempt_fails(None), parent_fails(None)]
    place, error, _deletes = await committed(CommitterConfig(mark_successful_jobs=marked), *faults)
    assert error is not None
    assert error.outcome == "committed"
    assert has_in_job(place.temporary(), "job-1", "outcome")
    assert (await place.states())["job-1"] == "committed"
    place.store.faults.clear()
    assert (await place.recover("job-1")).success
    assert place.temporary() == set()


async def test_tasks_directory_absent() -> None:
    place = MemoryPlace("hdfs")
    job = await place.open_job(job_id="job-1")
    place.remove(in_job(place, "job-1", "00/tasks"))
    await job.abort()
    assert place.temporary() == set()


async def test_fate_is_readable_until_the_very_end() -> None:
    """At every moment of a cleanup the store says how the job ended, until nothing of it is left but `_SUCCESS`."""
    place = MemoryPlace("gcs")
    job = await place.open_job(job_id="job-1")
    for task in range(ATTEMPTS):
        await place.run_task(job, task, {f"part-{task}": b"x"})
    ended = False

    async def look(_call: object) -> None:
        nonlocal ended
        left = {name for name in place.temporary() if "/.committing" not in name}
        ended = ended or has_in_job(left, "job-1", "outcome")
        if ended and left:
            assert has_in_job(left, "job-1", "outcome")

    place.store.before_call = look
    await job.commit()
    place.store.before_call = None
    assert ended
