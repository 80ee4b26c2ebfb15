"""Twin of Hadoop's TestManifestCommitProtocol and of AbstractITCommitProtocol, which its S3A committers share: the
protocol as an engine drives it, from setup to cleanup.

Where this engine differs on purpose: recovery of a task is supported, commit is repeatable, a task's commit after the
job's fails with `JobDecidedError` or `JobNotFoundError` rather than a file not found, and `_SUCCESS` of an earlier job
stays until this one is decided.
"""

from __future__ import annotations

import asyncio

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobDecidedError,
    JobExistsError,
    JobNotFoundError,
    TaskError,
    UnsupportedError,
)
from committer.records.success import decode_success
from committer.testing.faults import Fault
from tests.places import EVERY_COMMITTER, Place, place_fixture, write_file

place = place_fixture(*EVERY_COMMITTER)


async def test_full_lifecycle_shows_nothing_before_job_commit(place: Place) -> None:
    async with place.open_job(job_id="job-1") as job:
        await place.run_task(job, 0, {"part-0": b"zero", "a=1/part-0": b"one"})
        assert place.files() == {}
        assert "_SUCCESS" not in place.all_files()
        report = await job.commit()
    assert place.files() == {"part-0": b"zero", "a=1/part-0": b"one"}
    assert place.temporary() == set()
    assert report.success
    assert (report.job_id, report.committer) == ("job-1", place.committer)
    assert (report.files_committed, report.bytes_committed, report.directories_created) == (2, 7, 1)
    assert len(report.filenames) == 2
    marker = decode_success(place.read("_SUCCESS"), source="_SUCCESS")
    assert marker.success
    assert marker.jobId == "job-1"
    # S3A writes no scheme and no bucket.
    uris = (
        marker.filenames
        if place.publishes_by != "complete_upload"
        else [f"memory://{place.space.name}{path}" for path in marker.filenames]
    )
    assert sorted(uris) == sorted(report.filenames)


async def test_commit_is_a_no_op_after_commit_and_abort_too(place: Place) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {"part-0": b"x"})
        first = await job.commit()
        assert await job.commit() is first
        await job.abort()
    assert place.files() == {"part-0": b"x"}


async def test_exception_in_the_block_aborts(place: Place) -> None:
    with pytest.raises(ZeroDivisionError):
        async with place.open_job() as job:
            await place.run_task(job, 0, {"part-0": b"x"})
            raise ZeroDivisionError
    assert place.all_files() == {}
    assert place.temporary() == set()


async def test_cancellation_in_the_block_aborts(place: Place) -> None:
    inside = asyncio.Event()

    async def run() -> None:
        async with place.open_job() as job:
            await place.run_task(job, 0, {"part-0": b"x"})
            inside.set()
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await inside.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert place.all_files() == {}
    assert place.temporary() == set()


async def test_exception_in_a_task_aborts_the_task_only(place: Place) -> None:
    async with place.open_job() as job:
        with pytest.raises(ZeroDivisionError):
            async with job.task_attempt(task=0) as task:
                await write_file(task, "part-0", b"bad")
                raise ZeroDivisionError
        assert not [name for name in place.all_files() if "part-0" in name]
        with pytest.raises(TaskError):
            _ = task.task_commit
        await place.run_task(job, 0, {"part-0": b"good"}, attempt=1)
    assert place.files() == {"part-0": b"good"}


async def test_duplicate_task_commit_is_ok(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        await write_file(task, "part-0", b"x")
        first = await task.commit()
        assert await task.commit() == first == task.task_commit
    assert place.files() == {"part-0": b"x"}


async def test_task_commit_after_job_commit_fails(place: Place) -> None:
    async with place.open_job() as job:
        late = await place.open_task(job.spec, 0)
        await place.run_task(job, 1, {"part-1": b"x"})
        await write_file(late, "part-0", b"late")
        await job.commit()
    with pytest.raises((JobNotFoundError, JobDecidedError)):
        await late.commit()
    assert place.files() == {"part-1": b"x"}


async def test_task_opened_after_job_commit_fails(place: Place) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0)
    with pytest.raises(JobNotFoundError):
        await place.open_task(job.spec, 1)
    assert place.temporary() == set()


async def test_two_attempts_second_wins(place: Place) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {"part-0": b"first", "only-first": b"1"}, attempt=0)
        await place.run_task(job, 0, {"part-0": b"second", "only-second": b"2"}, attempt=1)
    assert place.files() == {"part-0": b"second", "only-second": b"2"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_of_two_attempts_that_run_side_by_side_the_last_commit_wins(place: Place, order: tuple[int, int]) -> None:
    async with place.open_job() as job:
        attempts = [await place.open_task(job.spec, 0, number) for number in (0, 1)]
        for number, attempt in enumerate(attempts):
            await write_file(attempt, "part-0", b"attempt %d" % number)
        for number in order:
            await attempts[number].commit()
    assert place.files() == {"part-0": b"attempt %d" % order[1]}


async def test_job_commit_that_fails_once_and_is_retried(place: Place) -> None:
    """Hadoop's cannot be repeated; this one goes on from wherever it stopped."""
    async with place.open_job() as job:
        await place.run_task(job, 0, {f"part-{number}": b"x" for number in range(5)})
        place.faults(Fault(kind="forbidden", operation=place.publishes_by, path="part-2"))
        with pytest.raises(CommitterError) as caught:
            await job.commit()
        assert caught.value.outcome == "partial"
        report = await job.commit()
    assert report.files_committed == 5
    assert len(place.files()) == 5
    assert place.temporary() == set()


async def test_no_outputs(place: Place) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0)
        report = await job.commit(tasks=1)
    assert (report.files_committed, report.filenames) == (0, [])
    assert place.files() == {}
    assert decode_success(place.read("_SUCCESS"), source="").filenames == []


async def test_job_commit_without_task_commit_publishes_nothing(place: Place) -> None:
    async with place.open_job() as job:
        attempt = await place.open_task(job.spec, 0)
        await write_file(attempt, "part-0", b"x")
        report = await job.commit()
    assert report.files_committed == 0
    assert place.files() == {}
    assert place.temporary() == set()


async def test_abort_with_no_work(place: Place) -> None:
    job = await place.open_job()
    await job.abort()
    await job.abort()
    await job.close()
    assert place.temporary() == set()
    async with place.open_job() as other:
        task = await place.open_task(other.spec, 0)
        await task.abort()
        await task.abort()
        await place.run_task(other, 0, {"part-0": b"x"}, attempt=1)
    assert place.files() == {"part-0": b"x"}


async def test_abort_task_then_job(place: Place) -> None:
    job = await place.open_job()
    task = await place.open_task(job.spec, 0)
    await write_file(task, "part-0", b"x")
    await task.abort()
    assert not [name for name in place.all_files() if "part-0" in name]
    await job.abort()
    assert place.all_files() == {}
    assert place.temporary() == set()


async def test_abort_job_not_task(place: Place) -> None:
    job = await place.open_job()
    task = await place.open_task(job.spec, 0)
    await write_file(task, "a=1/part-0", b"x")
    await job.abort()
    assert place.all_files() == {}
    assert place.temporary() == set()
    with pytest.raises(JobNotFoundError):
        await task.commit()
    assert place.files() == {}
    if place.store.capabilities.refuses_late_writes:
        assert place.temporary() == set()
    else:
        # Nothing refuses a late write here: what a zombie leaves lies below its own job, and cleanup removes it.
        assert await place.states() == ({} if place.writes_to_disk else {job.job_id: "unknown"})
        await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
        assert place.all_files() == {}


async def test_failing_abort_then_idempotent_abort(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    task = await place.open_task(job.spec, 0)
    await write_file(task, "part-0", b"x")
    # Of an attempt that did not commit, one that writes to its machine's disk has nothing at the destination.
    await place.run_task(job, 1, {"part-1": b"y"})
    place.faults(Fault(kind="forbidden", operation="delete_directory", times=None))
    with pytest.raises(CommitterError) as caught:
        await job.abort()
    assert "abort the job again" in caught.value.next_step
    assert set(await place.states()) == {"job-1"}
    place.store.faults.clear()
    await job.abort()
    assert place.temporary() == set()
    with pytest.raises((JobDecidedError, JobNotFoundError)):
        await job.commit()


async def test_failing_abort_does_not_hide_the_first_error(place: Place) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        async with place.open_job(job_id="job-1") as job:
            await place.run_task(job, 0, {"part-0": b"x"})
            place.faults(Fault(kind="forbidden", operation="delete_directory", times=None))
            raise ZeroDivisionError
    assert any("was not aborted" in note for note in caught.value.__notes__)
    assert place.files() == {}


async def test_concurrent_task_commits_with_shared_sub_directory(place: Place) -> None:
    async with place.open_job() as job:
        await asyncio.gather(
            *[place.run_task(job, number, {f"sub/dir/part-{number}": b"%d" % number}) for number in range(20)]
        )
        report = await job.commit(tasks=20)
    assert place.files() == {f"sub/dir/part-{number}": b"%d" % number for number in range(20)}
    assert report.directories_created == 2


async def test_job_id_can_be_used_once_at_a_time(place: Place) -> None:
    async with place.open_job(job_id="job-1") as job:
        with pytest.raises(JobExistsError) as caught:
            await place.open_job(job_id="job-1")
        assert caught.value.next_step
        await place.run_task(job, 0, {"part-0": b"x"})
    assert place.files() == {"part-0": b"x"}


async def test_a_default_job_id_is_a_uuid(place: Place) -> None:
    import uuid

    job = await place.open_job()
    assert str(uuid.UUID(job.job_id)) == job.job_id
    await job.abort()


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "a b", "-x", ".x", "_x", "é", "x" * 129, "a\nb", "a\n"])
async def test_bad_job_ids_are_refused(place: Place, job_id: str) -> None:
    with pytest.raises(ConfigurationError):
        await place.open_job(job_id=job_id)
    assert place.temporary() == set()


async def test_job_ids_of_every_allowed_form(place: Place) -> None:
    for job_id in ("0", "a.b_c-D", "x" * 128, "job_202601010000_0001"):
        async with place.open_job(job_id=job_id) as job:
            await place.run_task(job, 0, {f"{job_id[:9]}.csv": b"x"})
    assert len(place.files()) == 4


@pytest.mark.parametrize("uri", ["viewfs://cluster/t", "ftp://h/t"])
async def test_unsupported_scheme(uri: str) -> None:
    with pytest.raises(UnsupportedError):
        await committer.open_job(uri)


@pytest.mark.parametrize(
    "name", ["magic", "manifest", "directory", "partitioned", "block-list", "file-v1", "file-v2", "nonsense"]
)
async def test_only_the_committers_that_suit_the_store_are_there(place: Place, name: str) -> None:
    can = place.store.capabilities
    renames = {"manifest", "file-v2", *(["file-v1"] if can.atomic_directory_rename else [])}
    sends = {"magic", "directory", "partitioned"} if can.multipart else {"block-list"}
    if name in (renames if can.atomic_file_rename else sends):
        job = await place.open_job(committer=name)
        assert job.spec.committer == name
        await job.abort()
    else:
        with pytest.raises(UnsupportedError) as caught:
            await place.open_job(committer=name)
        assert caught.value.outcome == "unchanged"
        if name == "manifest":
            assert place.store.calls == []
            for reason in ("rename a file atomically", "rename without replacing", "write to another store"):
                assert reason in str(caught.value)
    assert place.temporary() == set()


async def test_unknown_delivery_is_refused(place: Place) -> None:
    with pytest.raises(ConfigurationError):
        await place.open_job(delivery="pigeon")


async def test_two_jobs_to_adjacent_paths_interleaved(place: Place) -> None:
    options = place.options
    first = await committer.open_job(f"{place.dest}/one", job_id="job", delivery="listing", storage_options=options)
    second = await committer.open_job(f"{place.dest}/two", job_id="job", delivery="listing", storage_options=options)
    await place.run_task(first, 0, {"part-0": b"1"})
    await place.run_task(second, 0, {"part-0": b"2"})
    await first.commit()
    await second.commit()
    assert {name: data for name, data in place.all_files().items() if not name.endswith("_SUCCESS")} == {
        "one/part-0": b"1",
        "two/part-0": b"2",
    }


async def test_earlier_marker_stays_until_the_decision(place: Place) -> None:
    await place.run_job({"part-0": b"old"}, job_id="old")
    before = place.read("_SUCCESS")
    async with place.open_job(job_id="new") as job:
        await place.run_task(job, 0, {"part-1": b"new"})
        assert place.read("_SUCCESS") == before
    assert decode_success(place.read("_SUCCESS"), source="").jobId == "new"
    assert place.files() == {"part-0": b"old", "part-1": b"new"}


async def test_lifecycle_facts_that_engines_ask_for(place: Place) -> None:
    async with place.open_job() as job:
        assert job.is_commit_repeatable is True
        assert job.is_recovery_supported is True
        async with job.task_attempt(task=0) as task:
            assert task.needs_task_commit is True


async def test_setup_that_fails_leaves_nothing(place: Place) -> None:
    for operation in ("make_directory", "put", "probe"):
        place.store.faults.clear()
        place.faults(Fault(kind="forbidden", operation=operation, path="job-1"))
        with pytest.raises(CommitterError):
            await place.open_job(job_id="job-1")
    place.store.faults.clear()
    await place.run_job({"part-0": b"x"}, job_id="job-1", config=CommitterConfig())
    assert place.files() == {"part-0": b"x"}
