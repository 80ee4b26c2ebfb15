"""A job by listing whose records a refused driver has frozen, and what other drivers do to them."""

from __future__ import annotations

import pytest

import committer
from committer import Job
from committer.committers.context import open_context
from committer.stages.listed_records import unfreeze_manifests
from committer.testing.faults import Fault, FaultKind, FaultyStore
from tests.engine.places import MemoryPlace, Place

profiles = pytest.mark.parametrize("profile", ["adls", "hdfs", "local"])
kinds_of_place = pytest.mark.parametrize("kind_of_place", ["disk", "adls", "hdfs", "local"])
BOTH = {"a/part-0": b"0", "a/part-1": b"1"}


async def open_half(place: Place) -> Job:
    """A job of which one of two tasks committed."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"a/part-0": b"0"})
    return job


async def half_begun(profile: str) -> tuple[MemoryPlace, Job]:
    place = MemoryPlace(profile)
    return place, await open_half(place)


def fault_of_freeze(kind: FaultKind, times: int = 1, delay_s: float = 0.05) -> Fault:
    return Fault(kind=kind, operation="rename_directory", path="00/manifests", times=times, delay_s=delay_s)


async def what_is_late_arrives(place: Place) -> None:
    for task in list(place.store.under_way):
        await task


async def clean_up_what_came(place: MemoryPlace) -> None:
    """Removes what came when the job was over, where a write makes directories; it is taken for no job."""
    for found in await committer.list_jobs(place.dest, storage_options=place.options):
        assert found.state == "unknown"
        await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
    assert place.temporary() == set()


async def run_last_task(job: Job, options: dict[str, object]) -> None:
    async with committer.open_task(job.spec, task=1, storage_options=options) as task, task.open("a/part-1") as file:
        await file.write(b"1")


async def undo_freeze(place: MemoryPlace, job: Job) -> None:
    """What another driver does that is refused."""
    await unfreeze_manifests(await open_context(job.spec, FaultyStore(place.space.store()), owned=False))
