"""Jobs whose files wait in uploads: what tests ask of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

import committer
from committer import CommitterConfig, Job, TaskAttempt, TaskCommit
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.places import MemoryPlace


def pending(place: MemoryPlace) -> list[str]:
    """The paths of pending uploads, relative to the destination where they lie below it."""
    return sorted(upload.path.path.removeprefix("/table/") for upload in place.space.uploads)


async def committing(place: MemoryPlace, names: list[str], **arguments: object) -> committer.JobReport:
    """Commits a job of one task that writes these names."""
    async with place.open_job(**arguments) as job:
        message = await place.run_task(job, 0, {name: name.encode() for name in names})
        return await job.commit([message], tasks=1)


async def end_job(
    place: MemoryPlace, job: Job, how: str, messages: Sequence[TaskCommit] = (), config: CommitterConfig | None = None
) -> None:
    """Ends a job by `commit`, `abort` or `cleanup`, or by `recover` once a driver died that had published one file."""
    if how == "commit":
        await job.commit(messages)
    elif how == "abort":
        await job.abort()
    elif how == "cleanup":
        await committer.cleanup(place.dest, job_id=job.job_id, config=config, storage_options=place.options)
    else:
        dying = FaultyStore(place.space.store(), [Fault(kind="crash_after", operation="complete_upload")])
        with pytest.raises(SimulatedCrash):
            async with committer.attach_job(job.spec, config=config, storage_options={"store": dying}) as driver:
                await driver.commit(messages)
        await place.recover(job.job_id, config=config)
    await job.close()


async def peak_of_a_stream(task: TaskAttempt, chunk: bytes, times: int) -> int:
    """How much memory writing a file takes at most, in bytes; what is handed over each time is the caller's own."""
    tracemalloc.start()
    try:
        async with task.open("big") as file:
            for _ in range(times):
                await file.write(chunk)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
