"""Twin of Hadoop's TestStagingCommitter and TestStagingDirectoryOutputCommitter: tasks write to a disk of their machine,
a task commit sends the files, job commit completes the uploads.

The protocol that all committers share is in `test_commit_protocol.py`. Where this engine differs on purpose: the records
of task commits are at the destination, in the job's directory; old files that a job replaces stay until the new ones are
in place; a file of the same name is refused, not overwritten, without `existing_target="replace"`; names that begin with
an underscore or a period are published as with the other committers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from itertools import count
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobNotFoundError,
    MultipleError,
    StoreError,
    TargetExistsError,
    TaskError,
    UnsupportedError,
)
from committer.testing.faults import Fault
from tests.committers.conftest import Make
from tests.places import MemoryPlace, StagingPlace, write_file
from tests.waiting_uploads import end_job, peak_of_a_stream, pending

pytestmark = pytest.mark.parametrize("delivery", ["listing", "message"])


@pytest.fixture
def place(delivery: str) -> MemoryPlace:
    return StagingPlace("directory", delivery=delivery)  # type: ignore[arg-type]


def kept(disk: Path) -> list[str]:
    """The files that lie on the machine's disk, by name."""
    return sorted(path.name for path in disk.rglob("*") if path.is_file())


def sent(place: MemoryPlace) -> int:
    """How many calls a task made that send something."""
    return place.store.count("create_upload") + place.store.count("put_part")


def nth_call(operation: str, number: int) -> Fault:
    """Refuses the call of that number, the first being 0."""
    seen = count()
    return Fault(kind="forbidden", operation=operation, times=None, path=lambda path: next(seen) == number)


# -- what is seen when ------------------------------------------------------------------------------------------------


async def test_files_stay_on_the_disk_until_the_task_commits_and_unseen_until_the_job_does(
    place: MemoryPlace, disk: Path, config: Make
) -> None:
    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)
        await write_file(task, "a=1/p-0.csv", b"zero")
        async with task.open("a=2/empty"):
            pass
        Path(task.work_path("b/by-path")).write_bytes(b"path")
        assert (sent(place), len(kept(disk)), pending(place)) == (0, 3, [])
        message = await task.commit()
        assert (kept(disk), list(disk.iterdir())) == ([], [])
        assert pending(place) == ["a=1/p-0.csv", "a=2/empty", "b/by-path"]
        assert place.files() == {}
        report = await job.commit([message], tasks=1)
    assert place.files() == {"a=1/p-0.csv": b"zero", "a=2/empty": b"", "b/by-path": b"path"}
    assert (report.committer, report.files_committed, report.bytes_committed) == ("directory", 3, 8)
    assert (pending(place), place.temporary()) == ([], set())
    assert (await committer.validate(place.dest, storage_options=place.options)).ok


@pytest.mark.parametrize("data", [b"", b"small", bytes(25)], ids=["empty", "one part", "three parts"])
async def test_a_file_is_sent_in_parts(data: bytes, place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config(multipart_size=10)) as job:
        message = await place.run_task(job, 0, {"x": data})
        assert place.store.count("put_part") == (3 if len(data) > 10 else 1)
        await job.commit([message])
    assert place.files() == {"x": data}


async def test_a_task_with_no_output_commits(place: MemoryPlace, disk: Path, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        message = await place.run_task(job, 0)
        report = await job.commit([message], tasks=1)
    assert (report.files_committed, sent(place), disk.exists()) == (0, 0, False)


async def test_a_file_costs_one_look_when_opened_and_three_calls_when_sent(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        await place.run_task(job, 0, {"a": b"a"})

        async def calls(task: int, files: int) -> int:
            before = len(place.store.calls)
            await place.run_task(job, task, {f"{task}-{number}": b"x" for number in range(files)})
            return len(place.store.calls) - before

        # Looked at the job; begun, listed (with those that begin at that time), the job looked at, sent.
        assert await calls(2, 40) - await calls(1, 20) <= 20 * 5
        await job.abort()


async def test_long_files_take_no_more_memory_than_their_parts(place: MemoryPlace, config: Make) -> None:
    part = 1 << 20
    async with place.open_job(config=config(multipart_size=part, multipart_in_flight=2)) as job:
        async with place.open_task(job.spec, 0) as task:
            # Nothing is sent meanwhile: the memory store would hold it.
            assert await peak_of_a_stream(task, bytes(part), 40) < 6 * part
        await job.abort()


# -- what fails -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "after"),
    [("create_upload", 0), ("create_upload", 1), ("put_part", 1), ("put_part", 4), ("put", 0), ("put", 2)],
)
async def test_a_commit_that_fails_leaves_nothing_and_the_next_attempt_commits(
    operation: str, after: int, place: MemoryPlace, disk: Path, config: Make
) -> None:
    async with place.open_job(config=config(multipart_size=10, io_concurrency=1)) as job:
        place.faults(nth_call(operation, after))
        with pytest.raises(StoreError):
            await place.run_task(job, 0, {"x": bytes(25), "y": bytes(25)})
        assert (pending(place), place.files(), kept(disk)) == ([], {}, [])
        message = await place.run_task(job, 0, {"x": b"again"}, attempt=1)
        await job.commit([message], tasks=1)
    assert (place.files(), pending(place)) == ({"x": b"again"}, [])


async def test_the_first_error_is_told_where_aborting_fails_too(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config(multipart_size=10)) as job:
        place.faults(
            Fault(kind="forbidden", operation="put_part", times=None),
            Fault(kind="unavailable", operation="abort_upload", times=20),
        )
        with pytest.raises((StoreError, MultipleError), match="put_part"):
            await place.run_task(job, 0, {"x": bytes(25)})
        place.store.faults.clear()
        await job.abort()
    assert (pending(place), place.temporary()) == ([], set())


async def test_a_commit_can_be_called_again_and_sends_what_is_missing(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config(io_concurrency=1)) as job:
        async with place.open_task(job.spec, 0) as task:
            for name in ("a", "b"):
                await write_file(task, name, name.encode())
            place.faults(nth_call("create_upload", 1))
            with pytest.raises(StoreError):
                await task.commit()
            begun = place.store.count("create_upload")
            message = await task.commit()
            assert place.store.count("create_upload") == begun + 1
        await job.commit([message])
    assert (place.files(), pending(place)) == ({"a": b"a", "b": b"b"}, [])


async def test_a_file_that_is_written_while_it_is_sent_is_refused(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)
        path = Path(task.work_path("x"))
        path.write_bytes(b"x")

        def more() -> None:
            with path.open("ab") as file:
                file.write(b"more")

        async def grow(call: object) -> None:
            await asyncio.to_thread(more)

        place.store.before_call = grow
        with pytest.raises(TaskError, match="was changed while"):
            await task.commit()
        place.store.before_call = None
        await task.abort()
        await job.abort()
    assert (place.all_files(), pending(place)) == ({}, [])


async def test_a_task_abort_sends_nothing_and_removes_its_files(place: MemoryPlace, disk: Path, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        with pytest.raises(ZeroDivisionError):
            async with place.open_task(job.spec, 0) as task:
                await write_file(task, "x", b"x")
                raise ZeroDivisionError
        assert (sent(place), kept(disk)) == (0, [])
        await job.commit([], tasks=0)
    assert place.files() == {}


async def test_an_aborted_file_is_not_sent(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        async with place.open_task(job.spec, 0) as task:
            async with task.open("x") as file:
                await file.write(b"x")
                await file.abort()
            await write_file(task, "y", b"y")
        await job.commit([task.task_commit])
    assert (place.files(), pending(place)) == ({"y": b"y"}, [])


# -- attempts and jobs that end elsewhere -------------------------------------------------------------------------------


async def test_an_abort_by_ids_removes_what_an_attempt_left_here(place: MemoryPlace, disk: Path, config: Make) -> None:
    job = await place.open_job(config=config())
    dead, alive = await place.open_task(job.spec, 0), await place.open_task(job.spec, 1)
    for task in (dead, alive):
        await write_file(task, "x", b"x")
    await job.abort_task(0, 0)
    assert kept(disk) == ["1"]
    with pytest.raises(TaskError, match="not on the disk of this machine any more"):
        await dead.commit()
    await dead.abort()
    await alive.abort()
    await job.abort()
    await job.close()
    assert (kept(disk), place.all_files(), pending(place)) == ([], {}, [])


@pytest.mark.parametrize("how", ["commit", "abort", "cleanup", "recover"])
async def test_a_job_that_is_over_leaves_nothing_of_dead_attempts_on_this_machine(
    how: str, place: MemoryPlace, disk: Path, config: Make
) -> None:
    job = await place.open_job(job_id="j", config=config())
    other = await place.open_job(job_id="other", config=config())
    for open_one in (job, other):
        task = await place.open_task(open_one.spec, 7)
        await write_file(task, "x", b"x")
    # What their processes would remove, they never do: they were killed.
    message = await place.run_task(job, 0, {"y": b"y"})
    assert kept(disk) == ["1", "1"]
    await end_job(place, job, how, [message], config())
    assert kept(disk) == ["1"]
    await other.abort()
    assert kept(disk) == []
    await other.close()


async def test_no_record_says_where_a_machine_is_cleaned_up(place: MemoryPlace, disk: Path, config: Make) -> None:
    """Only the caller names places outside the destination (G10)."""
    job = await place.open_job(job_id="j", config=config())
    task = await place.open_task(job.spec, 7)
    await write_file(task, "x", b"x")
    await job.close()
    async with place.attach_job("j") as joined:
        assert joined.spec.config.staging_directories == ()
        await joined.abort()
    assert kept(disk) == ["1"]


async def test_an_attempt_whose_job_is_over_says_so(place: MemoryPlace, config: Make) -> None:
    job = await place.open_job(config=config())
    task = await place.open_task(job.spec, 0)
    await write_file(task, "x", b"x")
    await job.abort()
    with pytest.raises(JobNotFoundError):
        await task.commit()
    with pytest.raises(JobNotFoundError):
        await task.open("y").__aenter__()
    await task.abort()
    await job.close()
    assert (place.all_files(), pending(place)) == ({}, [])


# -- the disk ---------------------------------------------------------------------------------------------------------


async def test_only_this_user_can_enter_what_a_task_wrote(place: MemoryPlace, disk: Path, config: Make) -> None:
    async with place.open_job(config=config()) as job, place.open_task(job.spec, 0) as task:
        path = Path(task.work_path("x"))
        path.write_bytes(b"x")
        (own,) = disk.iterdir()
        assert (own.name, own.stat().st_mode & 0o777) == (f"committer-{os.geteuid()}", 0o700)
        await job.abort_task(0, 0)
        path.parent.mkdir(parents=True)
        await task.abort()
        await job.abort()


async def test_a_directory_that_others_can_write_to_is_refused(place: MemoryPlace, disk: Path, config: Make) -> None:
    (disk / f"committer-{os.geteuid()}").mkdir(parents=True)
    (disk / f"committer-{os.geteuid()}").chmod(0o777)
    async with place.open_job(config=config()) as job:
        with pytest.raises(TaskError, match="others can write to it") as caught:
            async with place.open_task(job.spec, 0) as task, task.open("x") as file:
                await file.write(b"x")
        assert "staging_directories" in caught.value.next_step
        await job.abort()


async def test_a_link_in_its_place_is_refused_and_not_followed(place: MemoryPlace, disk: Path, config: Make) -> None:
    elsewhere = disk.parent / "elsewhere"
    elsewhere.mkdir()
    disk.mkdir()
    (disk / f"committer-{os.geteuid()}").symlink_to(elsewhere)
    async with place.open_job(config=config()) as job:
        with pytest.raises(TaskError):
            async with place.open_task(job.spec, 0) as task, task.open("x") as file:
                await file.write(b"x")
        await job.abort()
    assert list(elsewhere.iterdir()) == []


async def test_the_next_directory_is_taken_where_one_cannot_be_used(place: MemoryPlace, tmp_path: Path) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    config = CommitterConfig(staging_directories=(str(tmp_path / "a-file"), str(tmp_path / "fine")))
    async with place.open_job(config=config) as job:
        message = await place.run_task(job, 0, {"x": b"x"})
        await job.commit([message])
    assert place.files() == {"x": b"x"}
    assert (tmp_path / "fine").exists()


@pytest.mark.parametrize("place_text", ["relative/path", "s3://bucket/tmp", ""])
def test_a_place_that_is_none_of_this_machine_is_refused(place_text: str, place: MemoryPlace) -> None:
    with pytest.raises(ConfigurationError, match="absolute paths of each machine"):
        CommitterConfig(staging_directories=(place_text,))


async def test_a_disk_that_is_full_says_what_to_do(place: MemoryPlace, config: Make, disk: Path) -> None:
    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)
        file = task.open("x")
        await file.write(b"x")
        shutil.rmtree(disk)
        with pytest.raises(TaskError) as caught:
            await file.close()
        assert "staging_directories" in caught.value.next_step
        await task.abort()
        await job.abort()


@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_only_regular_files_are_sent(what: str, place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        with pytest.raises(TaskError, match="only regular files"):
            async with place.open_task(job.spec, 0) as task:
                path = Path(task.work_path("x"))
                path.symlink_to("/etc/hostname") if what == "link" else os.mkfifo(path)
        await job.abort()
    assert place.all_files() == {}


@pytest.mark.parametrize("name", ["n" * 300, "a b/%20/é/Ω.csv", "A/x", "a/x", "d/" * 60 + "x"])
async def test_names_are_the_destinations_not_the_disks(name: str, place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        message = await place.run_task(job, 0, {name: b"x", name.swapcase(): b"X"})
        await job.commit([message])
    assert place.files() == {name: b"x", name.swapcase(): b"X"}


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "published"),
    [
        ("part-0001", "part-0001-j1"),
        ("part-0001.gz.csv", "part-0001-j1.gz.csv"),
        ("year=2.0/part", "year=2.0/part-j1"),
        ("year=2.0/part.txt", "year=2.0/part-j1.txt"),
        ("part-j1-0.csv", "part-j1-0.csv"),
    ],
)
@pytest.mark.parametrize("by_path", [False, True])
async def test_unique_names(written: str, published: str, by_path: bool, place: MemoryPlace, config: Make) -> None:
    """Hadoop's table of TestPaths; what a program wrote by a path with the job's id in it keeps its name."""
    async with place.open_job(job_id="j1", config=config(unique_names=True)) as job:
        async with place.open_task(job.spec, 0) as task:
            if by_path:
                path = Path(task.work_path()) / written
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"x")
            else:
                await write_file(task, written, b"x")
        await job.commit([task.task_commit])
    by_open = "part-j1-0-j1.csv" if written == "part-j1-0.csv" else published
    assert place.files() == {published if by_path else by_open: b"x"}


async def test_one_name_by_two_ways_is_refused(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        with pytest.raises(TaskError, match="written twice"):
            async with place.open_task(job.spec, 0) as task:
                await write_file(task, "x", b"opened")
                (Path(task.work_path()) / "x").write_bytes(b"by path")
        await job.abort()
    assert place.all_files() == {}


# -- conflict modes ---------------------------------------------------------------------------------------------------

OLD = {"p=1/old": b"old", "p=2/old": b"old", "top": b"old"}


async def ended_as(place: MemoryPlace, mode: str, config: Make) -> dict[str, bytes]:
    for name, data in OLD.items():
        place.write(name, data)
    async with place.open_job(config=config(conflict_mode=mode)) as job:
        message = await place.run_task(job, 0, {"p=1/new": b"new"})
        await job.commit([message], tasks=1)
    return place.files()


async def test_append_leaves_what_is_there(place: MemoryPlace, config: Make) -> None:
    assert await ended_as(place, "append", config) == {**OLD, "p=1/new": b"new"}


async def test_replace_takes_the_whole_destination(place: MemoryPlace, config: Make) -> None:
    assert await ended_as(place, "replace", config) == {"p=1/new": b"new"}
    assert (place.temporary(), pending(place)) == (set(), [])


async def test_named_directories_are_replaced_and_no_others(place: MemoryPlace, config: Make) -> None:
    def named(**choices: object) -> CommitterConfig:
        return config(superseded_directories=("p=2",), **choices)

    assert await ended_as(place, "replace", named) == {"p=1/old": b"old", "top": b"old", "p=1/new": b"new"}


async def test_fail_refuses_a_used_destination_before_any_task_runs(place: MemoryPlace, config: Make) -> None:
    with pytest.raises(TargetExistsError, match="already holds data") as caught:
        await ended_as(place, "fail", config)
    assert caught.value.operation == "open_job"
    assert (place.files(), place.temporary()) == (OLD, set())


async def test_fail_refuses_data_that_came_while_tasks_ran(place: MemoryPlace, config: Make) -> None:
    place.write("_hidden", b"does not count")
    job = await place.open_job(config=config(conflict_mode="fail"))
    message = await place.run_task(job, 0, {"p=1/new": b"new"})
    place.write("p=9/other", b"another's")
    with pytest.raises(TargetExistsError, match="already holds data"):
        await job.commit([message])
    await job.abort()
    await job.close()
    assert (place.files(), pending(place)) == ({"_hidden": b"does not count", "p=9/other": b"another's"}, [])


async def test_a_mode_that_there_is_none_of_is_refused(place: MemoryPlace) -> None:
    with pytest.raises(ConfigurationError, match="must be one of append, fail, replace"):
        await place.open_job(config={"conflict_mode": "merge"})
    assert place.all_files() == {}


# -- what it is not for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["local", "gcs", "hdfs", "adls"])
async def test_it_is_refused_where_there_are_no_uploads(profile: str, delivery: str) -> None:
    other = MemoryPlace(profile)
    with pytest.raises(UnsupportedError, match="withhold the completion of an upload"):
        await other.open_job(committer="directory")
    assert other.temporary() == set()


async def test_a_job_of_hadoops_is_not_joined_without_the_place_of_its_records(place: MemoryPlace) -> None:
    place.write("_temporary/job_1_1/00/x", b"")
    spec = JobSpec.for_hadoop(place.dest, "job_1_1", committer="directory")
    with pytest.raises(CommitterError, match="pending_set_directory"):
        await committer.attach_job(spec, storage_options=place.options)
    with pytest.raises(CommitterError, match="pending_set_directory"):
        await place.open_task(spec, 0)
