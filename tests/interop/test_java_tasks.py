"""Java sets the job up and commits its tasks, Python commits the job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import TaskMissingError

from .hadoop import JOB_ATTEMPT, Hadoop
from .python_side import assert_same_result, commit, spec_of
from .trees import AWKWARD_NAMES, HIDDEN_NAMES, contents, exists, is_sidecar, names_in, on_disk, put


async def test_same_tree_and_counts_as_java_committing_the_same_job(hadoop: Hadoop, tmp_path: Path) -> None:
    python, java = hadoop.job(tmp_path / "python"), hadoop.job(tmp_path / "java")
    for job in (python, java):
        await job.setup()
        await job.run_task(0, contents(*AWKWARD_NAMES))
        await job.run_task(1, contents(*HIDDEN_NAMES) | {"empty.csv": b"", "p=2/empty": b""})
        await job.run_task(2, {}, directories=("empty directory", "nested/é/empty"))
        await job.run_task(3, {})
        # The second attempt of task 4 wins, and shares no file name with the first.
        await job.run_task(4, contents("first.csv", "both.csv", salt="0"), attempt=0)
        await job.run_task(4, contents("second.csv", "both.csv", salt="1"), attempt=1)
        # Neither an attempt that never commits nor one that aborts leaves anything.
        await hadoop.write(await job.setup_task(5), contents("never.csv"))
        await hadoop.write(await job.setup_task(6), contents("aborted.csv"))
        await job.abort_task(6)

    await java.commit()
    async with committer.attach_job(spec_of(python)) as attached:
        plan = await attached.plan()
        assert not plan.conflicts
        report = await attached.commit(tasks=5)

    await assert_same_result(hadoop, python, java)
    standing, _ = await on_disk(python.destination)
    assert standing["both.csv"] == contents("both.csv", salt="1")["both.csv"]
    # Sidecars of Java's are dropped, not published.
    assert not any(map(is_sidecar, standing))
    assert report.success
    assert report.files_committed == plan.files == len(standing)
    assert report.bytes_committed == plan.bytes == sum(map(len, standing.values()))
    assert await names_in(python.destination) & {"_temporary", "_SUCCESS"} == {"_SUCCESS"}


async def test_job_named_by_sparks_uuid_at_a_later_job_attempt(hadoop: Hadoop, tmp_path: Path) -> None:
    uuid = "0cf5b3a4-3d3e-4a87-9b0e-5a1d4c2f7e10"
    job = hadoop.job(tmp_path / "dest", 3, uuid=uuid, conf={JOB_ATTEMPT: 2})
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    report = await commit(job)
    assert report.job_id == uuid
    assert (await on_disk(job.destination))[0] == contents("a.csv")
    assert (await hadoop.load_success(job.destination / "_SUCCESS"))["jobId"] == uuid


async def test_job_without_task_commits(hadoop: Hadoop, tmp_path: Path) -> None:
    python, java = hadoop.job(tmp_path / "python"), hadoop.job(tmp_path / "java")
    for job in (python, java):
        await job.setup()
    await java.commit()
    assert (await commit(python)).files_committed == 0
    await assert_same_result(hadoop, python, java)


async def test_missing_task_is_noticed(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    with pytest.raises(TaskMissingError) as missing:
        await commit(job, tasks=2)
    assert missing.value.outcome == "unchanged"
    assert await on_disk(job.destination) == ({}, set())

    # The job goes on as if no driver had tried to commit it: Java commits the missing task where it always did.
    await job.run_task(1, contents("b.csv"))
    await commit(job, tasks=2)
    assert (await on_disk(job.destination))[0] == contents("a.csv", "b.csv")


async def test_task_aborted_after_its_commit_is_refused_before_anything_is_published(
    hadoop: Hadoop, tmp_path: Path
) -> None:
    """Java leaves the manifest of such a task behind, and would fail in the middle of its renames."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    await job.run_task(1, contents("gone.csv"))
    await job.abort_task(1)
    with pytest.raises(committer.CommitterError) as refused:
        await commit(job)
    assert refused.value.outcome == "unchanged"
    assert await on_disk(job.destination) == ({}, set())

    await job.run_task(1, contents("again.csv"), attempt=1)
    await commit(job)
    assert (await on_disk(job.destination))[0] == contents("a.csv", "again.csv")


@pytest.mark.parametrize("damage", ["gone", "shorter"])
async def test_file_that_changed_after_its_task_committed(hadoop: Hadoop, tmp_path: Path, damage: str) -> None:
    """Java's entries have no identity. Looking it up shows a missing or changed file while nothing is decided."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    work = await job.setup_task(0)
    await hadoop.write(work, contents("a.csv", "p=1/b.csv", "p=1/c.csv"))
    await job.commit_task(0)
    if damage == "gone":
        await asyncio.to_thread((work / "p=1" / "b.csv").unlink)
    else:
        await put(work / "p=1" / "b.csv", b"short")
    with pytest.raises(committer.CommitterError) as refused:
        await commit(job)
    assert refused.value.outcome == "unchanged"
    assert "p=1/b.csv" in str(refused.value)
    assert await on_disk(job.destination) == ({}, set())
    await job.run_task(0, contents("again.csv"), attempt=1)
    await commit(job)
    assert (await on_disk(job.destination))[0] == contents("again.csv")


async def test_python_aborts_a_java_job(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    async with committer.attach_job(spec_of(job)) as attached:
        await attached.abort()
    assert await on_disk(job.destination) == ({}, set())
    assert not await exists(job.attempt_directory)


async def test_python_lists_and_cleans_up_a_java_job(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    listed = await committer.list_jobs(job.destination)
    assert [(info.job_id, info.state) for info in listed] == [(job.id, "open")]
    await committer.cleanup(job.destination, job_id=job.id)
    assert await committer.list_jobs(job.destination) == []
    assert not await exists(job.attempt_directory)


@pytest.mark.parametrize("durability", ["none", "fsync"])
async def test_recover_finishes_what_a_python_driver_left(hadoop: Hadoop, tmp_path: Path, durability: str) -> None:
    config = CommitterConfig(cleanup_skipped=True, durability=durability)  # type: ignore[arg-type]
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv", "p=1/b.csv"))
    await commit(job, config)
    report = await committer.recover(job.destination, job.id)
    assert report.success
    assert report.files_committed == 2
    assert (await on_disk(job.destination))[0] == contents("a.csv", "p=1/b.csv")
