"""Jobs whose files wait in uploads: what tests ask of them."""

from __future__ import annotations

import tracemalloc

import committer
from committer import TaskAttempt
from tests.engine.places import MemoryPlace


def pending(place: MemoryPlace) -> list[str]:
    """The paths of pending uploads, relative to the destination where they lie below it."""
    return sorted(upload.path.path.removeprefix("/table/") for upload in place.space.uploads)


async def committing(place: MemoryPlace, names: list[str], **arguments: object) -> committer.JobReport:
    """Commits a job of one task that writes these names."""
    async with place.open_job(**arguments) as job:
        message = await place.run_task(job, 0, {name: name.encode() for name in names})
        return await job.commit([message], tasks=1)


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
