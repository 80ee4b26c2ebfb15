"""Abort, of jobs and of task attempts, in each state a job can be in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError, JobUndecidedError, PreflightError
from committer.testing.faults import Fault
from tests.places import EVERY_COMMITTER, Delivery, Place, place_fixture, write_file

place = place_fixture(*EVERY_COMMITTER)

BOTH = pytest.mark.parametrize("delivery", ["listing", "message"])


async def test_abort_of_an_open_job_from_another_process(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    async with place.attach_job("job-1") as other:
        await other.abort()
    assert place.all_files() == {}
    with pytest.raises(JobNotFoundError):
        await job.commit()
    assert place.files() == {}
    assert not [name for name in place.all_files() if name.endswith("decision")]
    # The id is free again.
    await place.run_job({"part-0": b"again"}, job_id="job-1")
    assert place.files() == {"part-0": b"again"}


async def test_abort_of_a_decided_job_deletes_nothing_and_names_recover(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {f"part-{number}": b"x" for number in range(5)})
    place.faults(Fault(kind="forbidden", operation=place.publishes_by, path="part-3"))
    with pytest.raises(CommitterError):
        await job.commit()
    before = place.all_files()
    with pytest.raises(JobDecidedError) as caught:
        await job.abort()
    assert caught.value.outcome == "partial"
    assert "recover" in caught.value.next_step
    assert place.all_files() == before
    report = await place.recover("job-1")
    assert report.files_committed == 5
    assert len(place.files()) == 5
    await job.abort()
    assert len(place.files()) == 5


async def test_abort_of_a_committed_job_does_nothing(place: Place) -> None:
    async with place.open_job(job_id="job-1", config=CommitterConfig(cleanup_skipped=True)) as job:
        await place.run_task(job, 0, {"part-0": b"x"})
    before = place.all_files()
    with pytest.raises(JobNotFoundError, match="is over"):
        await place.attach_job("job-1")
    assert place.all_files() == before
    assert await place.states() == {"job-1": "committed"}


async def test_abort_with_cleanup_skipped_leaves_a_record(place: Place) -> None:
    job = await place.open_job(job_id="job-1", config=CommitterConfig(cleanup_skipped=True))
    await place.run_task(job, 0, {"part-0": b"x"})
    await job.abort()
    assert await place.states() == {"job-1": "aborted"}
    assert place.files() == {}
    with pytest.raises(JobNotFoundError, match="is over"):
        await place.attach_job("job-1")
    # The id is free: nothing of the aborted job is used again.
    async with place.open_job(job_id="job-1") as job:
        await place.run_task(job, 0, {"part-1": b"y"})
    assert place.files() == {"part-1": b"y"}
    await committer.cleanup(place.dest, job_id="job-1", storage_options=place.options)
    assert place.temporary() == set()


@BOTH
async def test_refused_commit_leaves_the_job_open(place: Place, delivery: Delivery) -> None:
    job = await place.open_job(job_id="job-1", delivery=delivery)
    messages = [await place.run_task(job, 0, {"same": b"0"}), await place.run_task(job, 1, {"same": b"1"})]
    named = messages if delivery == "message" else None
    for _again in range(2):
        with pytest.raises(PreflightError) as caught:
            await job.commit(named)
        assert caught.value.outcome == "unchanged"
        assert await place.states() == {"job-1": "open"}
        with pytest.raises(JobUndecidedError):
            await place.recover("job-1")
    # Tasks can go on as if no driver had tried.
    better = await place.run_task(job, 1, {"other": b"1"}, attempt=1)
    await job.commit([messages[0], better] if named else None, tasks=2)
    assert place.files() == {"same": b"0", "other": b"1"}


async def test_leaving_the_block_after_a_refused_commit_aborts(place: Place) -> None:
    with pytest.raises(PreflightError):
        async with place.open_job() as job:
            await place.run_task(job, 0, {"same": b"0"})
            await place.run_task(job, 1, {"same": b"1"})
    assert place.all_files() == {}
    assert place.temporary() == set()


async def test_attached_job_only_closes(place: Place) -> None:
    await (await place.open_job(job_id="job-1")).close()
    async with place.attach_job("job-1") as job:
        await place.run_task(job, 0, {"part-0": b"x"})
    assert await place.states() == {"job-1": "open"}
    with pytest.raises(ZeroDivisionError):
        async with place.attach_job("job-1"):
            raise ZeroDivisionError
    assert await place.states() == {"job-1": "open"}
    async with place.attach_job("job-1") as job:
        await job.commit(tasks=1)
    assert place.files() == {"part-0": b"x"}


# -- task attempts, by ids alone ---------------------------------------------------------------------------------


@BOTH
async def test_abort_task_by_ids_alone(place: Place, delivery: Delivery) -> None:
    job = await place.open_job(job_id="job-1", delivery=delivery)
    kept = await place.run_task(job, 0, {"part-0": b"kept"}, attempt=0)
    running = await place.open_task(job.spec, 1, 0)
    await write_file(running, "a=1/part-1", b"running")
    committed = await place.run_task(job, 1, {"part-1": b"committed"}, attempt=1)
    async with place.attach_job("job-1") as driver:
        await driver.abort_task(1, 0)
        left = [name for name in place.waiting() if name.endswith("part-1")]
        # No call drops blocks.
        assert len(left) == 1 or place.committer == "block-list"
        await driver.abort_task(1, 1)
        assert not [name for name in place.waiting() if name.endswith("part-1")]
        await driver.abort_task(1, 1)
        await driver.abort_task(7, 0)
        with pytest.raises(CommitterError):
            await driver.recover_task(1, 1)
        if delivery == "message":
            with pytest.raises(CommitterError):
                await driver.commit([kept, committed], tasks=2)
            await driver.commit([kept], tasks=1)
        else:
            await driver.commit(tasks=1)
    assert place.files() == {"part-0": b"kept"}


@BOTH
async def test_abort_task_leaves_tasks_with_longer_numbers_alone(place: Place, delivery: Delivery) -> None:
    """`attempt_J_m_000001_1` is a prefix of `attempt_J_m_000001_12`."""
    async with place.open_job(delivery=delivery) as job:
        kept = await place.run_task(job, 1, {"part-1": b"kept"}, attempt=12)
        running = await place.open_task(job.spec, 1, 1)
        await write_file(running, "part-1", b"running")
        await job.abort_task(1, 1)
        await job.commit([kept], tasks=1)
    assert place.files() == {"part-1": b"kept"}


async def test_abort_task_leaves_the_record_of_another_attempt_alone(place: Place) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {"part-0": b"first"}, attempt=0)
        await place.run_task(job, 0, {"part-0": b"second"}, attempt=1)
        await job.abort_task(0, 0)
        await job.commit(tasks=1)
    assert place.files() == {"part-0": b"second"}


async def test_abort_task_of_an_own_attempt_takes_it_out_of_the_commit(place: Place) -> None:
    for delivery in ("listing", "message"):
        async with place.open_job(delivery=delivery) as job:
            for task in (0, 1):
                async with job.task_attempt(task=task) as writer:
                    await write_file(writer, f"{delivery}/part-{task}", b"x")
            await job.abort_task(1, 0)
            await job.commit(tasks=1)
    assert sorted(place.files()) == ["listing/part-0", "message/part-0"]


async def test_abort_or_exception_after_task_commit_keeps_the_commit(place: Place) -> None:
    async with place.open_job() as job:
        with pytest.raises(ZeroDivisionError):
            async with job.task_attempt(task=0) as task:
                await write_file(task, "part-0", b"x")
                await task.commit()
                await task.abort()
                raise ZeroDivisionError
        await job.commit(tasks=1)
    assert place.files() == {"part-0": b"x"}


@BOTH
async def test_failed_task_commit_can_be_run_again_as_another_attempt(place: Place, delivery: Delivery) -> None:
    async with place.open_job(delivery=delivery) as job:
        place.faults(
            Fault(
                kind="forbidden",
                operation="put",
                path=place.listed_record if delivery == "listing" else "manifest.json",
            )
        )
        with pytest.raises(CommitterError):
            await place.run_task(job, 0, {"part-0": b"bad", "more": b"bad"})
        good = await place.run_task(job, 0, {"part-0": b"good"}, attempt=1)
        await job.commit([good], tasks=1)
    assert place.files() == {"part-0": b"good"}


async def test_abort_of_a_task_after_the_job_was_decided(place: Place) -> None:
    """A late abort by a zombie's executor must not take files from a commit that is going on."""
    async with place.open_job(job_id="job-1") as job:
        await place.run_task(job, 0, {f"part-{number}": b"x" for number in range(6)})
        place.faults(Fault(kind="forbidden", operation=place.publishes_by, path="part-5"))
        with pytest.raises(CommitterError):
            await job.commit()
        async with place.attach_job("job-1") as other:
            with pytest.raises(JobDecidedError):
                await other.abort_task(0, 0)
        await job.commit()
    assert len(place.files()) == 6


LEFT_OPEN = """
import asyncio, resource, sys, committer
async def main():
    async with committer.open_job(sys.argv[1]) as job, job.task_attempt(0) as task:
        held = []
        for number in range(400):
            held.append(await task.open(f"p={number}/file"))
            await held[-1].write(b"x")
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
try:
    asyncio.run(main())
except committer.CommitterError as error:
    print(error.message, getattr(error, "__notes__", ""))
"""


def test_more_open_files_than_a_process_may_hold(tmp_path: Path) -> None:
    """The descriptors of the files that are given up do for their removal."""
    command = [sys.executable, "-c", LEFT_OPEN, str(tmp_path / "table")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Too many open files" in done.stdout
    assert "aborted" not in done.stdout + done.stderr
    assert list(tmp_path.rglob("*")) == [tmp_path / "table"]
