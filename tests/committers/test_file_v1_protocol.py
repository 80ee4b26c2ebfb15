"""The committer `file-v1`, put to the protocol that all committers share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import committer
from committer.errors import CommitterError, ConfigurationError, JobNotFoundError
from committer.testing.faults import Fault
from tests.committers import test_commit_protocol as shared
from tests.committers.file_places import file_place
from tests.places import Place, write_file

# Its ids are no numbers, a late commit leaves nothing where an abort of the manifest committer does, and what its jobs
# share is shown where it cannot be told any more whose it is.
_OWN = {"test_job_ids_of_every_allowed_form", "test_abort_job_not_task", "test_failing_abort_then_idempotent_abort"}
globals().update(
    {
        name: test
        for name, test in vars(shared).items()
        if name.startswith("test_") and name not in _OWN and getattr(test, "__module__", "") == shared.__name__
    }
)


_IN_TURN = ["local", "hdfs", "adls"]


@pytest.fixture(params=["disk", *_IN_TURN])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = file_place(request.param, "file-v1", tmp_path)
    yield made
    await made.store.close()


async def test_ids_are_no_numbers(place: Place) -> None:
    """`_temporary/0` is the directory of the first application attempt, of all jobs."""
    with pytest.raises(ConfigurationError, match="application attempt"):
        await place.open_job(job_id="0")
    assert place.temporary() == set()
    for job_id in ("a.b_c-D", "x" * 128, "job_202601010000_0001"):
        async with place.open_job(job_id=job_id) as job:
            await place.run_task(job, 0, {f"{job_id[:9]}.csv": b"x"})
    assert len(place.files()) == 3


async def test_a_task_of_an_aborted_job_commits_nothing(place: Place) -> None:
    job = await place.open_job()
    task = await place.open_task(job.spec, 0)
    await write_file(task, "a=1/part-0", b"x")
    await job.abort()
    with pytest.raises(JobNotFoundError):
        await task.commit()
    assert place.all_files() == {}
    assert place.temporary() == set()


async def test_an_abort_that_fails_is_repeated(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    place.faults(Fault(kind="forbidden", operation="delete_directory", times=None))
    with pytest.raises(CommitterError):
        await job.abort()
    assert (await place.states())["job-1"] == "aborted"
    place.store.faults.clear()
    await job.abort()
    assert (place.all_files(), place.temporary()) == ({}, set())


async def test_by_message_nothing_is_in_hadoops_layout(place: Place) -> None:
    job = await place.open_job(job_id="j", delivery="message")
    messages = [await place.run_task(job, 0, {"part-0": b"x"})]
    assert {name.split("/")[1] for name in place.temporary() if "/" in name} == {job.spec.unique_id}
    report = await job.commit(messages, tasks=1)
    assert (report.committer, place.files(), place.temporary()) == ("file-v1", {"part-0": b"x"}, set())
    await committer.validate(place.dest, storage_options=place.options)


async def test_a_job_keeps_the_algorithm_it_was_set_up_with(place: Place) -> None:
    """Hadoop's second application attempt may have another, and merges what the first one's tasks committed."""
    job = await place.open_job(job_id="job_202611240000_0001")
    await place.run_task(job, 0, {"part-0": b"0"})
    await job.close()
    other = msgspec.structs.replace(job.spec, committer="file-v2")
    async with committer.attach_job(other, storage_options=place.options) as again:
        assert again.spec.committer == "file-v1"
        await again.commit(tasks=1)
    assert place.files() == {"part-0": b"0"}
