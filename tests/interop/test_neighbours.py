"""Another job of Java's in the same destination: its default cleanup deletes all of `_temporary`."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer.errors import JobNotFoundError
from tests.job_paths import in_job

from .hadoop import CLEANUP_SKIPPED, Hadoop
from .hooked import HookedStore
from .python_side import run_task
from .trees import contents, exists, on_disk, without_sidecars


async def test_java_neighbour_that_skips_cleanup(hadoop: Hadoop, tmp_path: Path) -> None:
    neighbour = hadoop.job(tmp_path / "dest", 9, conf={CLEANUP_SKIPPED: True})
    await neighbour.setup()
    await neighbour.run_task(0, contents("java.csv"))
    async with committer.open_job(neighbour.destination, job_id="ours") as job:
        await run_task(job.spec, 0, contents("python.csv"))
        await neighbour.commit()
    assert without_sidecars((await on_disk(neighbour.destination))[0]) == contents("java.csv", "python.csv")
    # Python's cleanup is of its own job alone.
    assert await exists(neighbour.attempt_directory)
    assert not await exists(in_job(neighbour.destination, "ours"))
    assert (await hadoop.load_success(neighbour.destination / "_SUCCESS"))["jobId"] == "ours"


async def test_java_neighbour_that_deletes_temporary_before_the_decision(hadoop: Hadoop, tmp_path: Path) -> None:
    neighbour = hadoop.job(tmp_path / "dest", 9)
    await neighbour.setup()
    job = await committer.open_job(neighbour.destination, job_id="ours")
    await run_task(job.spec, 0, contents("python.csv"))
    await neighbour.commit()
    with pytest.raises(JobNotFoundError) as vanished:
        await job.commit()
    await job.close()
    assert vanished.value.outcome == "unchanged"
    assert await on_disk(neighbour.destination) == ({}, set())


async def test_java_neighbour_that_deletes_temporary_amid_publishing(hadoop: Hadoop, tmp_path: Path) -> None:
    """No driver can finish this job. The error must not say that nothing changed."""
    neighbour = hadoop.job(tmp_path / "dest", 9)
    await neighbour.setup()
    store = HookedStore().arm("b.csv", neighbour.commit)
    job = await committer.open_job(neighbour.destination, job_id="ours", storage_options={"store": store})
    await run_task(job.spec, 0, contents("a.csv", "b.csv"))
    with pytest.raises(committer.CommitterError) as vanished:
        await job.commit()
    await job.close()
    assert store.fired == 1
    assert vanished.value.outcome in ("partial", "unknown")
    assert (await hadoop.load_success(neighbour.destination / "_SUCCESS"))["jobId"] == neighbour.id
