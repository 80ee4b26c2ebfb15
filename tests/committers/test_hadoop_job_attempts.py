"""A job of Hadoop's manifest committer with several job attempts: a driver commits the one it means, and no other."""

from __future__ import annotations

import json

import pytest

import committer
from committer import JobSpec
from committer.errors import JobNotFoundError, PreflightError
from committer.testing.faults import Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.places import MemoryPlace, place_fixture

JOB = "job_202401010000_0001"
TYPE = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.files.TaskManifest/1"
FILES = {f"p=1/part-{task}": b"x" for task in range(3)}

place = place_fixture("local", "adls")


def left_by_java(place: MemoryPlace, job_attempt: int, *names: str) -> None:
    """Writes a job attempt whose tasks each committed a file of `names`; Java itself does so in tests/interop."""
    at = f"_temporary/{JOB}/{job_attempt:02d}"
    place.write(f"{at}/manifests/.keep", b"")
    place.write(f"{at}/tasks/attempt_202401010000_0001_m_000009_0/.keep", b"")
    for task, name in enumerate(names):
        task_id = f"202401010000_0001_m_{task:06d}"
        directory = f"{at}/tasks/attempt_{task_id}_0"
        place.write(f"{directory}/{name}", b"x")
        record = {
            "type": TYPE, "version": 1, "jobId": JOB, "jobAttemptNumber": job_attempt, "taskID": f"task_{task_id}",
            "taskAttemptID": f"attempt_{task_id}_0", "taskAttemptDir": f"{place.dest}/{directory}",
            "files": [{"s": f"{place.dest}/{directory}/{name}", "d": f"{place.dest}/{name}", "z": 1}],
            "directories": [{"d": f"{place.dest}/p=1", "t": 1, "l": 1}],
        }  # fmt: skip
        place.write(f"{at}/manifests/task_{task_id}-manifest.json", json.dumps(record).encode())


@pytest.mark.parametrize("ending", ["commit", "abort"])
async def test_an_attempt_that_is_not_there_is_refused(place: MemoryPlace, ending: str) -> None:
    left_by_java(place, 1, *FILES)
    before = place.all_files()
    with pytest.raises(JobNotFoundError, match="no job attempt 0 that can be committed, but 1") as caught:
        async with committer.attach_job(JobSpec.for_hadoop(place.dest, JOB), storage_options=place.options) as job:
            await (job.commit() if ending == "commit" else job.abort())
    assert place.all_files() == before
    assert "give job_attempt=1 to JobSpec.for_hadoop" in caught.value.next_step
    spec = JobSpec.for_hadoop(place.dest, JOB, 1)
    async with committer.attach_job(spec, storage_options=place.options) as job:
        assert (await job.commit(tasks=3)).files_committed == 3
    assert (place.files(), place.temporary()) == (FILES, set())


@pytest.mark.parametrize(
    "death",
    [
        ("crash_before", "put", "/decision"),
        ("crash_after", "put", "/decision"),
        ("crash_before", "rename_file", "part-1"),
        ("crash_before", "put", "/outcome"),
    ],
    ids=["undecided", "decided", "half", "published"],
)
@pytest.mark.parametrize("ending", ["recover", "roll back", "commit"])
async def test_who_goes_on_takes_the_attempt_that_the_dead_driver_took(
    place: MemoryPlace, death: tuple[FaultKind, str, str], ending: str
) -> None:
    left_by_java(place, 0, *FILES)
    # The application master died, and its successor began.
    left_by_java(place, 1)
    kind, operation, path = death
    store = FaultyStore(place.store.inner, [Fault(kind=kind, operation=operation, path=path)])
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(JobSpec.for_hadoop(place.dest, JOB), storage_options={"store": store}) as job:
            await job.commit(tasks=3)
    if ending == "commit":
        async with place.attach_job(JOB) as job:
            assert (await job.commit(tasks=3)).files_committed == 3
    else:
        await place.recover(JOB, rollback=ending == "roll back")
    assert (place.files(), place.temporary()) == ({} if ending == "roll back" else FILES, set())


async def test_another_attempt_than_the_decided_one_is_refused(place: MemoryPlace) -> None:
    left_by_java(place, 0, *FILES)
    left_by_java(place, 1)
    store = FaultyStore(place.store.inner, [Fault(kind="crash_after", operation="put", path="/decision")])
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(JobSpec.for_hadoop(place.dest, JOB), storage_options={"store": store}) as job:
            await job.commit(tasks=3)
    with pytest.raises(JobNotFoundError, match="no job attempt 1 that can be committed, but 0"):
        await committer.attach_job(JobSpec.for_hadoop(place.dest, JOB, 1), storage_options=place.options)
    await place.recover(JOB)
    assert place.files() == FILES


async def test_what_hadoops_driver_published_is_not_said_to_go(place: MemoryPlace) -> None:
    left_by_java(place, 0, *FILES)
    for name in FILES:
        place.write(name, b"x")
        place.remove(next(one for one in place.all_files() if one.endswith(name) and "/tasks/" in one))
    with pytest.raises(PreflightError) as caught:
        async with committer.attach_job(JobSpec.for_hadoop(place.dest, JOB), storage_options=place.options) as job:
            await job.commit(tasks=3)
    assert "what Hadoop's driver published before stays" in caught.value.next_step
    await place.recover(JOB, rollback=True)
    assert place.files() == FILES
