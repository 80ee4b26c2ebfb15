"""Attacks on the staging committers: each shows what a task, a driver or a machine can do to them."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.committers.staging import local_files
from committer.errors import CommitterError, ConfigurationError, StoreError, TargetExistsError, TaskError
from committer.testing.faults import Fault, FaultKind
from tests.committers.conftest import Make
from tests.places import MemoryPlace, StagingPlace, write_file
from tests.waiting_uploads import end_job, pending


@pytest.fixture
def place() -> MemoryPlace:
    return StagingPlace("directory", delivery="listing")


def kept(disk: Path) -> list[str]:
    return sorted(str(path.relative_to(disk)) for path in disk.rglob("*"))


# -- conflict modes -----------------------------------------------------------------------------------------------------


async def test_fail_refuses_a_partition_whose_data_lies_deeper() -> None:
    place = StagingPlace("partitioned")
    place.write("p=1/q=1/old", b"old")
    with pytest.raises(TargetExistsError):
        async with place.open_job(config=CommitterConfig(conflict_mode="fail")) as job:
            await place.run_task(job, 0, {"p=1/new": b"new"})
            await job.commit(tasks=1)
    assert place.files() == {"p=1/q=1/old": b"old"}


# -- at once --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "module", "look"), [(0, os.path, "isdir"), (1, os.path, "isdir"), (0, os, "lstat")])
async def test_a_directory_that_another_process_removes_as_it_is_made_is_made_again(
    level: int, module: object, look: str, place: MemoryPlace, disk: Path, config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts of processes of one machine share it, and each removes it where it finds it empty."""
    job = await place.open_job(config=config())
    own = disk / f"committer-{os.geteuid()}"
    shared = [own, own / f"{job.spec.layout.unique_name}-{job.spec.setup}"][level]
    if look == "isdir":
        shared.mkdir(parents=True, mode=0o700)
        own.chmod(0o700)
    looks, really = 0, getattr(module, look)

    def removed_before(path: str) -> object:
        nonlocal looks
        if os.fspath(path) == str(shared):
            looks += 1
            if looks == 1:
                shared.rmdir()
        return really(path)

    monkeypatch.setattr(module, look, removed_before)
    await place.run_task(job, 0, {"a": b"1"})
    assert looks > (look == "lstat")
    await job.commit()
    assert place.files() == {"a": b"1"}


async def test_files_can_be_opened_at_once(
    place: MemoryPlace, disk: Path, config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly = local_files.make_run

    def make(*arguments: object) -> str:
        time.sleep(0.1)
        return slowly(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("committer.committers.staging.local_files.make_run", make)
    async with place.open_job(config=config()) as job:
        async with place.open_task(job.spec, 0) as task:

            async def write(name: str) -> None:
                await write_file(task, name, name.encode())

            await asyncio.gather(*(write(f"f{number}") for number in range(20)))
        await job.commit(tasks=1)
    assert len(place.files()) == 20
    assert kept(disk) == []


async def test_what_is_written_by_path_beside_files_opened_at_once_is_not_lost(
    place: MemoryPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = (str(tmp_path / "a"), str(tmp_path / "b"))
    os.mkdir(two[0])
    os.mkdir(two[1])
    slowly = local_files.make_run

    def make(*arguments: object) -> str:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.3)
        return slowly(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("committer.committers.staging.local_files.make_run", make)
    async with place.open_job(config=CommitterConfig(staging_directories=two)) as job:
        async with place.open_task(job.spec, 0) as task:
            opening = asyncio.create_task(task.open("opened").__aenter__())
            await asyncio.sleep(0.1)
            Path(task.work_path("by-path")).write_bytes(b"x")
            file = await opening
            await file.close()
        await job.commit(tasks=1)
    assert set(place.files()) == {"opened", "by-path"}
    assert [list(Path(one).iterdir()) for one in two] == [[], []]


async def test_blocking_files_in_all_threads_of_the_loop_can_be_written(place: MemoryPlace, config: Make) -> None:
    """As the docstring of `open_blocking` shows, many at once."""
    pool = ThreadPoolExecutor(2)
    asyncio.get_running_loop().set_default_executor(pool)
    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)

        async def write(name: str) -> None:
            async with task.open_blocking(name) as file:
                await asyncio.to_thread(file.write, bytes(1 << 20))

        writing = asyncio.gather(*(write(f"f{number}") for number in range(4)))
        done, _ = await asyncio.wait({writing}, timeout=5)
        stuck = not done
        if stuck:
            pool._max_workers = 50
            pool.submit(int)
            pool.submit(int)
            pool.submit(int)
        await writing
        await task.commit()
        await job.commit(tasks=1)
    assert not stuck


async def test_a_run_that_is_made_while_its_attempt_is_given_up_is_removed(
    place: MemoryPlace, disk: Path, config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    fast = local_files.make_run

    def make(*arguments: object) -> str:
        begun.set()
        may_go_on.wait(5)
        return fast(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("committer.committers.staging.local_files.make_run", make)
    job = await place.open_job(config=config())
    task = await place.open_task(job.spec, 0)
    opening = asyncio.create_task(task.open("x").__aenter__())
    await asyncio.to_thread(begun.wait, 5)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    aborting = asyncio.create_task(task.abort())
    await asyncio.wait({aborting}, timeout=0.1)
    assert not aborting.done(), "it waits for the thread that makes the run"
    may_go_on.set()
    await aborting
    assert kept(disk) == []
    await job.abort()
    await job.close()


async def test_an_attempt_that_is_aborted_while_it_commits_does_not_commit_a_part(
    place: MemoryPlace, disk: Path, config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process of the machine aborts the attempt, by its ids; it has removed half when the attempt commits."""
    half, may_go_on = threading.Event(), threading.Event()
    whole = local_files.shutil.rmtree

    def remove(path: str, **arguments: object) -> None:
        for found in Path(path).rglob("a"):
            found.unlink()
        half.set()
        may_go_on.wait(5)
        whole(path, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(local_files.shutil, "rmtree", remove)
    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)
        for name in ("a", "b"):
            Path(task.work_path(name)).write_bytes(name.encode())
        aborting = asyncio.create_task(job.abort_task(0, 0))
        await asyncio.to_thread(half.wait, 5)
        committing = asyncio.create_task(task.commit())
        await asyncio.wait({committing}, timeout=1)
        may_go_on.set()
        await aborting
        result = (await asyncio.gather(committing, return_exceptions=True))[0]
        monkeypatch.undo()
        if isinstance(result, CommitterError):
            await task.abort()
            await job.abort()
        else:
            await job.commit(tasks=1)
    assert set(place.files()) in ({"a", "b"}, set())


async def test_an_aborted_attempt_that_makes_its_directory_anew_commits_no_part(
    place: MemoryPlace, config: Make
) -> None:
    """Java's local file system, and others, make every directory above a file they create."""
    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)
        Path(task.work_path("a")).write_bytes(b"a")
        later = Path(task.work_path("b"))
        await job.abort_task(0, 0)
        later.parent.mkdir(parents=True)
        later.write_bytes(b"b")
        try:
            await task.commit()
        except CommitterError:
            await task.abort()
            await job.abort()
        else:
            await job.commit(tasks=1)
    assert set(place.files()) in ({"a", "b"}, set())


# -- the machine ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose temporary directories are full, or read-only: a container without a disk."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])


@pytest.mark.usefixtures("no_temporary_directory")
@pytest.mark.parametrize("how", ["commit", "abort", "cleanup", "recover"])
async def test_a_driver_needs_no_disk(how: str, place: MemoryPlace, disk: Path, config: Make) -> None:
    """Its tasks ran elsewhere."""
    job = await place.open_job(job_id="j", config=config())
    message = await place.run_task(job, 0, {"x": b"x"})
    await job.close()
    await end_job(place, await place.attach_job("j"), how, [message])
    assert place.files() == ({"x": b"x"} if how in ("commit", "recover") else {})


@pytest.mark.usefixtures("no_temporary_directory")
async def test_a_task_without_a_disk_says_so(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        with pytest.raises(TaskError, match="no directory of this machine"):
            async with place.open_task(job.spec, 0) as task, task.open("x") as file:
                await file.write(b"x")
        await job.abort()


async def test_an_abort_that_fails_leaves_nothing_on_the_disk(place: MemoryPlace, disk: Path, config: Make) -> None:
    job = await place.open_job(config=config())
    task = await place.open_task(job.spec, 0)
    await write_file(task, "x", b"x")
    place.faults(Fault(kind="forbidden", operation="delete_directory", times=None))
    with pytest.raises(StoreError):
        await task.abort()
    place.store.faults.clear()
    left = kept(disk)
    await job.abort()
    await job.close()
    assert left == []


async def test_the_directory_with_the_most_room_is_taken_made_or_not(
    place: MemoryPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = tmp_path / "small", tmp_path / "large-disk" / "not-made-yet"
    small.mkdir()
    large.parent.mkdir()
    really = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        found = list(really(path))
        found[4] = 10_000_000 if str(path).startswith(str(large.parent)) else 1_000
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", statvfs)
    async with place.open_job(config=CommitterConfig(staging_directories=(str(small), str(large)))) as job:
        async with place.open_task(job.spec, 0) as task:
            assert task.work_path().startswith(str(large))
            Path(task.work_path("y")).write_bytes(b"")
        await job.abort()


@pytest.mark.parametrize("name", ["a b%20c#d?e:f", "x/../y", "trailing/", "double//slash", "é", "link"])
async def test_any_directory_of_a_machine_will_do(name: str, place: MemoryPlace, tmp_path: Path) -> None:
    directory = f"{tmp_path}/{name}"
    if name == "link":
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
    if name.startswith("x/"):
        (tmp_path / "x").mkdir()
    async with place.open_job(config=CommitterConfig(staging_directories=(directory,))) as job:
        async with place.open_task(job.spec, 0) as task:
            await write_file(task, "opened", b"x")
            Path(task.work_path("p/by-path")).write_bytes(b"y")
        await job.commit(tasks=1)
    assert place.files() == {"opened": b"x", "p/by-path": b"y"}


async def test_a_readable_own_directory_is_closed_or_refused(place: MemoryPlace, disk: Path, config: Make) -> None:
    own = disk / f"committer-{os.geteuid()}"
    own.mkdir(parents=True)
    own.chmod(0o755)
    async with place.open_job(config=config()) as job:
        try:
            async with place.open_task(job.spec, 0) as task:
                Path(task.work_path("x")).write_bytes(b"x")
                assert own.stat().st_mode & 0o077 == 0
        except TaskError:
            pass
        await job.abort()


# -- a commit that runs again ---------------------------------------------------------------------------------------------


def fault_of_record(kind: FaultKind) -> Fault:
    """A fault, once, when a task commit saves its record; not when it lists its uploads."""
    return Fault(kind=kind, operation="put", times=1, path=lambda path: "uploads" not in path.path)


async def saved_but_not_answered(place: MemoryPlace, job: committer.Job) -> tuple[committer.TaskAttempt, Path]:
    """A task attempt whose record was saved, the answer lost; and its only file, on the disk."""
    task = await place.open_task(job.spec, 0)
    path = Path(task.work_path("x"))
    path.write_bytes(b"first")
    place.faults(fault_of_record("lost"))
    with pytest.raises(CommitterError) as caught:
        await task.commit()
    assert caught.value.outcome == "unknown"
    place.store.faults.clear()
    return task, path


async def test_a_change_that_keeps_length_and_time_is_sent_anew(place: MemoryPlace, config: Make) -> None:
    """`cp -p`, `rsync -t` and `tar` set the time of what they write."""
    async with place.open_job(config=config()) as job:
        async with place.open_task(job.spec, 0) as task:
            path = Path(task.work_path("x"))
            path.write_bytes(b"old")
            os.utime(path, ns=(1, 1))
            place.faults(fault_of_record("forbidden"))
            with pytest.raises(StoreError):
                await task.commit()
            path.write_bytes(b"new")
            os.utime(path, ns=(1, 1))
            await task.commit()
        await job.commit(tasks=1)
    assert place.files() == {"x": b"new"}


async def test_what_was_removed_since_a_commit_that_failed_leaves_no_upload(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config(io_concurrency=1)) as job:
        async with place.open_task(job.spec, 0) as task:
            for name in ("a", "b"):
                Path(task.work_path(), name).write_bytes(b"x")
            place.faults(fault_of_record("forbidden"))
            with pytest.raises(StoreError):
                await task.commit()
            os.unlink(task.work_path() + "/a")
            await task.commit()
        await job.commit(tasks=1)
    assert (place.files(), pending(place)) == ({"b": b"x"}, [])


async def test_a_record_that_may_have_been_saved_keeps_its_uploads(place: MemoryPlace, config: Make) -> None:
    """The first record was saved, its answer lost. The second commit never saves one: the process is killed."""
    job = await place.open_job(job_id="j", config=config(record_save_attempts=1))
    task, path = await saved_but_not_answered(place, job)
    path.write_bytes(b"second, longer")
    place.faults(Fault(kind="forbidden", operation="put_part", times=None))
    with pytest.raises(CommitterError):
        await task.commit()
    place.store.faults.clear()
    report = await job.commit(tasks=1)
    await job.close()
    assert report.success
    assert place.files() == {"x": b"first"}


async def test_a_commit_that_runs_again_ends_no_upload_of_a_decided_job(place: MemoryPlace, config: Make) -> None:
    """The first record was saved, its answer lost; its job is decided when the task's process tries again."""
    job = await place.open_job(job_id="j", config=config(record_save_attempts=1))
    task, path = await saved_but_not_answered(place, job)
    place.faults(Fault(kind="unavailable", operation="complete_upload", times=None))
    with pytest.raises(CommitterError):
        await job.commit(tasks=1)
    place.store.faults.clear()
    path.write_bytes(b"second, longer")
    with pytest.raises(CommitterError):
        await task.commit()
    await job.close()
    report = await place.recover("j")
    assert report.success
    assert place.files() == {"x": b"first"}


# -- names ----------------------------------------------------------------------------------------------------------------


async def test_a_name_that_is_no_text_is_refused(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        with pytest.raises(CommitterError):
            async with place.open_task(job.spec, 0) as task:
                Path(os.fsdecode(os.fsencode(task.work_path()) + b"/\xff")).write_bytes(b"x")
        await job.abort()
    assert (place.files(), pending(place)) == ({}, [])


async def test_a_name_that_the_disk_does_not_take_is_told_as_such(place: MemoryPlace, config: Make) -> None:
    async with place.open_job(config=config()) as job:
        with pytest.raises(CommitterError):
            async with place.open_task(job.spec, 0) as task:
                task.work_path("n" * 300 + "/x")
        await job.abort()


@pytest.mark.filterwarnings("ignore::committer.options.table.ConfigurationWarning")
@pytest.mark.parametrize("value", ["/tmp/hadoop-${user.name}/s3a", "relative/path"])
def test_a_buffer_directory_that_hadoop_would_resolve_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"fs\.s3a\.buffer\.dir"):
        CommitterConfig.from_hadoop({"fs.s3a.committer.name": "directory", "fs.s3a.buffer.dir": value})


# -- memory ---------------------------------------------------------------------------------------------------------------


async def test_a_thousand_open_files_take_little_memory(place: MemoryPlace, config: Make) -> None:
    import tracemalloc

    async with place.open_job(config=config()) as job:
        task = await place.open_task(job.spec, 0)
        files = [task.open(f"f{number}") for number in range(200)]
        await files[0].write(b"x")
        block = bytes(900_000)
        tracemalloc.start()
        for file in files:
            await file.write(block)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        for file in files:
            await file.abort()
        await task.abort()
        await job.abort()
    assert peak < 64 << 20, peak
