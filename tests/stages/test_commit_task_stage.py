"""Twin of Hadoop's TestCommitTaskStage: saving a task's record, and what gets in its way.

Where this engine differs: the number of tries is honoured (Hadoop always makes five), a lost answer is no failure since
saving the same bytes again is harmless, and the attempt directory is looked at once, not listed.
"""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, TaskError
from committer.flow.runtime import use_runtime
from committer.records.manifest import TaskManifest
from committer.records.task_commit import digest_of
from committer.testing.faults import Fault
from committer.testing.virtual_time import VirtualRuntime
from tests.places import MemoryPlace, Place

TRIES = 4


@pytest.fixture(autouse=True)
def virtual_time():
    """Tries are half a second and more apart."""
    with use_runtime(VirtualRuntime()) as runtime:
        yield runtime


def saves_fail(kind: str, times: int) -> Fault:
    return Fault(kind=kind, operation="put", path="manifest.json", times=times)  # type: ignore[arg-type]


async def job_with(place: Place):
    return await place.open_job(config=CommitterConfig(record_save_attempts=TRIES))


async def test_missing_attempt_directory_is_found(memory: MemoryPlace) -> None:
    job = await job_with(memory)
    task = await memory.open_task(job.spec, 0)
    memory.remove(task.directory.relative_to(memory.layout(job.job_id).destination))
    with pytest.raises(TaskError, match="aborted"):
        await task.commit()


async def test_empty_directory_commits(memory: MemoryPlace) -> None:
    async with await job_with(memory) as job:
        await memory.run_task(job, 0)
        report = await job.commit(tasks=1)
    assert report.filenames == []


async def test_the_record_names_the_attempt_that_committed_last(place: Place) -> None:
    job = await place.open_job(job_id="job_202601010000_0001")
    first, again = [await place.open_task(job.spec, 0, 0) for _ in range(2)]
    assert again.directory != first.directory
    assert first.directory.name.startswith("attempt_202601010000_0001_m_000000_0-")
    await again.abort()
    with pytest.raises(TaskError):
        await again.commit()
    await first.commit()
    await place.run_task(job, 0, attempt=1)
    await job.abort_task(0, 2)
    record = await committer.load_record(str(job.spec.layout.manifest(0)), storage_options=place.options)
    assert isinstance(record, TaskManifest)
    assert record.taskAttemptID == "attempt_202601010000_0001_m_000000_1"
    assert record.taskID == "task_202601010000_0001_m_000000"
    assert (record.jobId, record.jobAttemptNumber) == (job.spec.unique_id, 0)
    plan = await job.plan()
    assert (plan.tasks, plan.files, plan.conflicts) == (1, 0, [])


@pytest.mark.parametrize("kind", ["unavailable", "throttled", "unanswered", "lost"])
async def test_save_recovers_from_fewer_failures_than_tries(memory: MemoryPlace, kind: str) -> None:
    async with await job_with(memory) as job:
        memory.faults(saves_fail(kind, TRIES - 1))
        message = await memory.run_task(job, 0, {"part-0": b"x"})
        [name] = [name for name in memory.all_files() if name.endswith("-manifest.json")]
        # Unlike Hadoop, which counts its failures in what it saves next: a try that was lost may arrive last.
        assert digest_of(memory.read(name)) == message.digest
    assert memory.files() == {"part-0": b"x"}


@pytest.mark.parametrize("kind", ["unavailable", "throttled", "unanswered", "lost"])
async def test_save_fails_after_as_many_failures_as_tries(memory: MemoryPlace, kind: str) -> None:
    job = await job_with(memory)
    memory.faults(saves_fail(kind, TRIES))
    memory.store.calls.clear()
    with pytest.raises(CommitterError) as caught:
        await memory.run_task(job, 0, {"part-0": b"x"})
    saves = [call for call in memory.store.calls if call.operation == "put" and "manifest.json" in str(call.path)]
    assert len(saves) == TRIES
    # After a lost answer the record may stand, so nothing of the attempt is deleted.
    unknown = kind in ("unanswered", "lost")
    assert caught.value.outcome == ("unknown" if unknown else "unchanged")
    assert bool([name for name in memory.all_files() if name.endswith("/part-0")]) is unknown
    await memory.run_task(job, 0, {"part-0": b"again"}, attempt=1)
    await job.commit(tasks=1)
    assert memory.files() == {"part-0": b"again"}


async def test_refusal_is_not_tried_again(memory: MemoryPlace) -> None:
    job = await job_with(memory)
    memory.faults(saves_fail("forbidden", 1))
    with pytest.raises(CommitterError) as caught:
        await memory.run_task(job, 0, {"part-0": b"x"})
    assert caught.value.outcome == "unchanged"


async def test_directory_at_the_records_name_is_an_error(memory: MemoryPlace) -> None:
    """Hadoop deletes it; nothing of this engine's makes one, so it is left to be looked at."""
    job = await job_with(memory)
    record = memory.layout(job.job_id).manifest(0).relative_to(memory.layout(job.job_id).destination)
    memory.write(f"{record}/odd", b"x")
    with pytest.raises(CommitterError):
        await memory.run_task(job, 0, {"part-0": b"x"})
    assert memory.read(f"{record}/odd") == b"x"
