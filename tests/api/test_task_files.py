"""What a task attempt lets its user write, and what it refuses at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    JobNotFoundError,
    PreflightError,
    TaskError,
    UnsupportedError,
)
from committer.records.manifest import decode_task_manifest, encode_task_manifest
from committer.stores.local import LocalStore
from committer.testing.faults import Fault, FaultyStore
from tests.places import DiskPlace, MemoryPlace, Place, write_file


@pytest.fixture
def disk(tmp_path: Path) -> DiskPlace:
    return DiskPlace(tmp_path)


async def test_file_and_directory_of_one_name_fail_at_once(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        await write_file(task, "a/b/c", b"x")
        for clash in ("a", "a/b", "a/b/c/d"):
            with pytest.raises(TaskError):
                task.open(clash)
    assert place.files() == {"a/b/c": b"x"}


@pytest.mark.parametrize(
    "name",
    [
        "", "/", "/etc/passwd", ".", "..", "../x", "a/../b", "a/./b", "a//b", "a/", "./a", "a\0b", "_SUCCESS",
        "_SUCCESS/x", "_temporary", "_temporary/0", "_Temporary/y", "__magic_job-1/x", "__magic",
        "a/_temporary/J2/decision", "a/b/__magic_job-J2/x",
    ],
)  # fmt: skip
async def test_names_that_preflight_would_refuse_fail_at_once(place: Place, name: str) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        with pytest.raises(InvalidPathError):
            task.open(name)
    assert place.files() == {}


@pytest.mark.parametrize(
    "name",
    [
        "_SUCCESS.bak", "a/_SUCCESS", "a/_temporary_x/b", "_temporary_id=1/a", "__magic=1/a", "_temporary-absolute/0", "_metadata", "a/_delta_log/0", ".hidden", "a b/c%20d", "é/ü", "名/前",
        "a=1/b=%2F", "#?+&=[]", "a:b", "...a", "-", "~", "a\\b", "x\ny", "a'b\"c", "%", "%zz",
    ],
)  # fmt: skip
async def test_odd_names_come_through(place: Place, name: str) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {name: b"odd"})
    assert place.files() == {name: b"odd"}


@pytest.mark.parametrize(
    "below",
    ["_temporary", "_temporary/0", "_Temporary/J/00/tasks", "__magic", "__magic/x", "__magic_job-J/y", "_SUCCESS/z"],
)
@pytest.mark.parametrize("committer_name", [None, "file-v1", "file-v2"])
async def test_a_destination_where_jobs_work_is_refused(tmp_path: Path, below: str, committer_name: str | None) -> None:
    with pytest.raises(InvalidPathError, match="the destination lies in _") as caught:
        await committer.open_job(tmp_path / "table" / below, committer=committer_name)
    assert caught.value.outcome == "unchanged"
    assert caught.value.next_step == f"write to file:{tmp_path}/table, or to another directory"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "below",
    [".hive-staging_hive_2026-01-01_00-00-00_000_1-1/-ext-10000", "_tmp.-ext-10000", "_temporary_id=1", "x_temporary",
     "__magic=1", "_SUCCESS.bak", "my_SUCCESS"],
)  # fmt: skip
async def test_a_destination_whose_name_only_looks_like_one_is_taken(tmp_path: Path, below: str) -> None:
    place = DiskPlace(tmp_path / below)
    await place.run_job({"a/b": b"x"})
    assert place.files() == {"a/b": b"x"}


async def test_names_over_the_limit_fail_at_once(disk: DiskPlace) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        with pytest.raises(InvalidPathError, match="longer than 255"):
            task.open("x" * 256)
        with pytest.raises(InvalidPathError, match="longer than 4095"):
            task.open("/".join(["d" * 200] * 20))
        await write_file(task, "é" * 127, b"x")
    assert list(disk.files()) == ["é" * 127]


@pytest.mark.parametrize(
    ("flags", "first", "second"),
    [
        ({"case_folding": True}, "a/Part-0", "a/part-0"),
        ({"case_folding": True}, "A/x", "a/x"),
        ({"unicode_folding": True}, "caf\u00e9", "cafe\u0301"),
        ({"case_folding": True}, "A", "a/x"),
    ],
)
async def test_names_the_store_takes_for_one_fail_at_once(flags: dict[str, bool], first: str, second: str) -> None:
    place = MemoryPlace("local", **flags)
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        await write_file(task, first, b"x")
        with pytest.raises(TaskError):
            task.open(second)
    assert list(place.files()) == [first]


async def test_after_commit_or_abort_nothing_can_be_opened(place: Place) -> None:
    async with place.open_job() as job:
        committed = await place.open_task(job.spec, 0)
        await committed.commit()
        aborted = await place.open_task(job.spec, 1)
        await aborted.abort()
        for task in (committed, aborted):
            with pytest.raises(TaskError) as caught:
                task.open("late")
            assert caught.value.next_step
            with pytest.raises(TaskError):
                task.open_blocking("late")
        with pytest.raises(TaskError):
            await aborted.commit()


async def test_a_file_opened_by_await_is_part_of_the_attempt_once_it_is_closed(place: Place) -> None:
    async with place.open_job() as job:
        with pytest.raises(TaskError, match="left-open"):
            async with job.task_attempt(task=0) as task:
                left = await task.open("left-open")
                await left.write(b"x")
        async with job.task_attempt(task=0, attempt=1) as task:
            closed, given_up, empty = [await task.open(name) for name in ("closed", "given-up", "empty")]
            await closed.write(b"x")
            await closed.close()
            await given_up.write(b"x")
            await given_up.abort()
            async with empty:
                assert not empty.closed
    assert place.files() == {"closed": b"x", "empty": b""}


async def test_writing_after_close_is_refused(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        file = task.open("part-0")
        assert await file.write(b"abc") == 3
        assert await file.write(memoryview(b"def")) == 3
        assert await file.write(bytearray(b"g")) == 1
        assert file.tell() == 7
        assert not file.closed
        await file.close()
        await file.close()
        assert file.closed
        with pytest.raises(TaskError):
            await file.write(b"more")
    assert place.files() == {"part-0": b"abcdefg"}


async def test_empty_files_and_large_files(place: Place) -> None:
    large = bytes(range(256)) * 20_000
    async with place.open_job() as job:
        async with job.task_attempt(task=0) as task:
            async with task.open("empty"):
                pass
            async with task.open("large") as file:
                for start in range(0, len(large), 700_001):
                    await file.write(large[start : start + 700_001])
        report = await job.commit()
    assert place.files() == {"empty": b"", "large": large}
    assert report.bytes_committed == len(large)


async def test_many_files_at_once(place: Place) -> None:
    async with place.open_job() as job:
        async with job.task_attempt(task=0) as task:

            async def write(number: int) -> None:
                await write_file(task, f"d={number % 7}/e={number % 3}/part-{number}", b"%d" % number)

            await asyncio.gather(*[write(number) for number in range(60)])
        report = await job.commit()
    assert report.files_committed == 60
    assert place.files()["d=3/e=0/part-3"] == b"3"


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_task_commit_takes_two_or_three_calls(place: Place, delivery: str) -> None:
    async with place.open_job(delivery=delivery) as job:
        task = await place.open_task(job.spec, 0)
        for number in range(20):
            await write_file(task, f"d={number % 5}/part-{number}", b"x")
        place.store.calls.clear()
        await task.commit()
        calls = sorted(call.operation for call in place.store.calls)
        # By listing the attempt may have been aborted.
        looks = ["status"] if delivery == "listing" and place.store.capabilities.directories else []
        assert calls == sorted([*looks, "list", "put"])
        await job.abort()


@pytest.mark.parametrize(("task", "attempt"), [(-1, 0), (0, -1), (True, 0), ("0", 0), (1.0, 0), (None, 0)])
async def test_numbers_of_tasks_and_attempts(place: Place, task: object, attempt: object) -> None:
    async with place.open_job() as job:
        with pytest.raises(ConfigurationError):
            job.task_attempt(task=task, attempt=attempt)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            place.open_task(job.spec, task, attempt)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            await job.abort_task(task, attempt)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError):
            await job.recover_task(task, attempt)  # type: ignore[arg-type]


async def test_blocking_files_on_every_store(place: Place) -> None:
    data = b"0123456789" * 250_000

    async with place.open_job() as job, job.task_attempt(task=0) as task:
        file = task.open_blocking("d/part-0")

        def write() -> None:
            with file:
                assert file.writable()
                assert not file.readable()
                for start in range(0, len(data), 333_333):
                    assert file.write(data[start : start + 333_333]) > 0
                assert file.tell() == len(data)
                file.flush()

        await asyncio.to_thread(write)
        assert file.closed
        aborted = task.open_blocking("d/bad")

        def abort() -> None:
            with aborted:
                aborted.write(b"half")
                aborted.abort()

        await asyncio.to_thread(abort)
    assert place.files() == {"d/part-0": data}


async def test_blocking_file_holds_at_most_a_megabyte(memory: MemoryPlace) -> None:
    async with memory.open_job() as job, job.task_attempt(task=0) as task:
        file = task.open_blocking("part-0")
        most = 0

        def write() -> None:
            nonlocal most
            with file:
                for _ in range(100):
                    file.write(b"x" * 100_000)
                    most = max(most, len(file._buffer))

        await asyncio.to_thread(write)
        assert most <= 1 << 20
    assert len(memory.files()["part-0"]) == 10_000_000


async def test_blocking_files_may_be_opened_in_the_threads_that_write_them(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:

        def write(name: str) -> None:
            with task.open_blocking(name) as file:
                file.write(b"x" * (2 << 20))

        await asyncio.gather(*(asyncio.to_thread(write, f"part-{number}") for number in range(4)))
        with pytest.raises(TaskError, match="was opened before"):
            await asyncio.to_thread(write, "part-0")
    assert {name: len(data) for name, data in place.files().items()} == {f"part-{n}": 2 << 20 for n in range(4)}


def test_a_blocking_file_opened_while_no_loop_runs_is_refused(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> committer.TaskAttempt:
        return await (await committer.open_job(tmp_path)).task_attempt(task=0)

    task = loop.run_until_complete(begin())
    try:
        with pytest.raises(TaskError, match="no event loop runs") as caught:
            task.open_blocking("part-0")
        assert "asyncio.to_thread" in caught.value.next_step
    finally:
        loop.run_until_complete(task.abort())
        loop.close()


async def test_blocking_file_on_the_loops_own_thread_is_refused(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        file = task.open_blocking("part-0")
        with pytest.raises(TaskError, match="event loop"):
            file.write(b"x" * (2 << 20))
        await asyncio.to_thread(file.abort)
    assert place.files() == {}


async def test_failed_write_of_a_blocking_file_is_never_committed(place: Place) -> None:
    with pytest.raises(Exception, match="injected"):
        async with place.open_job() as job, job.task_attempt(task=0) as task:
            file = task.open_blocking("part-0")
            place.faults(Fault(kind="forbidden", operation="write"))

            def write() -> None:
                with file:
                    file.write(b"x" * (3 << 20))
                    file.write(b"x" * (3 << 20))

            await asyncio.to_thread(write)
    assert place.files() == {}


async def test_writing_for_a_job_that_was_cleaned_up_fails(place: Place) -> None:
    job = await place.open_job()
    task = await place.open_task(job.spec, 0)
    await job.abort()
    with pytest.raises(JobNotFoundError):
        await task.check_job()
    with pytest.raises(JobNotFoundError):
        await task.commit()
    if place.store.capabilities.refuses_late_writes:
        with pytest.raises(JobNotFoundError):
            await write_file(task, "d/part-0", b"x")
    assert place.files() == {}


# -- work_path ---------------------------------------------------------------------------------------------------


async def test_files_written_by_path_are_found_by_a_scan(disk: DiskPlace) -> None:
    async with disk.open_job() as job:
        async with job.task_attempt(task=0) as task:
            Path(task.work_path("a=1/part-0")).write_bytes(b"by name")
            base = Path(task.work_path())
            (base / "deep" / "er").mkdir(parents=True)
            (base / "deep" / "er" / "found").write_bytes(b"by scan")
            (base / "empty").mkdir()
            await write_file(task, "opened", b"by open")
        report = await job.commit()
    assert disk.files() == {"a=1/part-0": b"by name", "deep/er/found": b"by scan", "opened": b"by open"}
    assert (disk.root / "empty").is_dir()
    assert report.directories_created == 4


async def test_scan_lists_directories_side_by_side(disk: DiskPlace) -> None:
    async with disk.open_job() as job:
        task = await disk.open_task(job.spec, 0)
        base = Path(task.work_path())
        for number in range(12):
            (base / f"d{number}").mkdir()
            (base / f"d{number}" / "f").write_bytes(b"x")
        together = most = 0

        async def before(call: object) -> None:
            nonlocal together, most
            if getattr(call, "operation", "") == "list":
                together += 1
                most = max(most, together)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                together -= 1

        disk.store.before_call = before
        await task.commit()
        disk.store.before_call = None
        assert most > 4
        await job.commit()
    assert len(disk.files()) == 12


async def test_work_path_is_held_to_the_same_rules(disk: DiskPlace) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        Path(task.work_path("a/b")).write_bytes(b"x")
        with pytest.raises(TaskError):
            task.work_path("a/b")
        with pytest.raises(TaskError):
            task.open("a/b/c")
        with pytest.raises(InvalidPathError):
            task.work_path("_SUCCESS")
        with pytest.raises(InvalidPathError):
            task.work_path("../up")
    assert disk.files() == {"a/b": b"x"}


@pytest.mark.parametrize("gone", ["job", "attempt"])
async def test_work_path_of_what_is_gone(disk: DiskPlace, gone: str) -> None:
    job = await disk.open_job()
    task = await disk.open_task(job.spec, 0)
    await (job.abort() if gone == "job" else job.abort_task(0, 0))
    for name in ("", "a/b"):
        with pytest.raises(JobNotFoundError):
            task.work_path(name)
    await job.abort()
    assert disk.temporary() == set()


async def test_attempt_aborted_while_a_program_writes_into_its_directory_does_not_commit(disk: DiskPlace) -> None:
    # The driver aborts the attempt by its numbers; the program makes the directories of its second file anew, as
    # `mkdir -p` does. Without a refusal the file written before the abort would be lost without a word.
    async with disk.open_job() as job:
        task = await disk.open_task(job.spec, 0)
        first, second = Path(task.work_path("a/first")), Path(task.work_path("b/second"))
        first.write_bytes(b"x")
        await job.abort_task(0, 0)
        second.parent.mkdir(parents=True)
        second.write_bytes(b"y")
        with pytest.raises(TaskError, match="aborted"):
            await task.commit()
        await disk.run_task(job, 0, {"again": b"z"}, attempt=1)
    assert disk.files() == {"again": b"z"}
    assert disk.temporary() == set()


async def test_work_path_needs_local_paths(memory: MemoryPlace) -> None:
    async with memory.open_job() as job, job.task_attempt(task=0) as task:
        with pytest.raises(UnsupportedError, match="no path on this machine"):
            task.work_path("part-0")


async def test_java_checksum_sidecars_are_no_output(disk: DiskPlace) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        path = Path(task.work_path("part-0"))
        path.write_bytes(b"x")
        path.with_name(".part-0.crc").write_bytes(b"crc\0")
    assert disk.files() == {"part-0": b"x"}


# -- unique names ------------------------------------------------------------------------------------------------


async def test_unique_names_carry_the_jobs_id(place: Place) -> None:
    config = CommitterConfig(unique_names=True)
    for job_id in ("first", "second"):
        async with place.open_job(job_id=job_id, config=config) as job:
            await place.run_task(job, 0, {"a=1/part-0.snappy.parquet": job_id.encode(), ".x": b"", "plain": b""})
    assert sorted(place.files()) == [
        ".x-first", ".x-second", "a=1/part-0-first.snappy.parquet", "a=1/part-0-second.snappy.parquet",
        "plain-first", "plain-second",
    ]  # fmt: skip


# -- names that Java's local file system gives its checksums: refused where they would be taken for one, free els -------


NAMES = [".data.csv.crc", "a=1/.data.csv.crc", ".crc", "..crc"]
REASON = "Java's local file system keeps the checksums of other files under names like"


@pytest.mark.parametrize("name", NAMES)
async def test_refused_when_opened(disk: DiskPlace, name: str) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        for use in (task.open, task.open_blocking, task.work_path):
            with pytest.raises(InvalidPathError, match=REASON):
                use(name)
        await write_file(task, "data.csv", b"x")
    assert disk.files() == {"data.csv": b"x"}


@pytest.mark.parametrize(("name", "reason"), [("_SUCCESS", "commits own"), *((name, REASON) for name in NAMES)])
async def test_refused_when_found_by_a_scan(disk: DiskPlace, name: str, reason: str) -> None:
    async with disk.open_job() as job:
        with pytest.raises(InvalidPathError, match=reason):
            async with job.task_attempt(task=0) as task:
                path = Path(task.work_path(), name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"data of its own")
        await disk.run_task(job, 0, {"data.csv": b"x"}, attempt=1)
    assert disk.files() == {"data.csv": b"x"}


async def test_refused_when_a_record_has_it(disk: DiskPlace) -> None:
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"data.csv": b"x", "other.csv": b"x"})
    [name] = [name for name in disk.all_files() if name.endswith("-manifest.json")]
    manifest = decode_task_manifest(disk.read(name), source=name)
    first = msgspec.structs.replace(manifest.files[0], d=manifest.files[0].d.replace("data.csv", ".other.csv.crc"))
    changed = msgspec.structs.replace(manifest, files=[first, *manifest.files[1:]])
    disk.write(name, encode_task_manifest(changed))
    with pytest.raises(PreflightError, match=REASON):
        await job.commit()
    await job.abort()
    assert disk.files() == {}


async def test_a_disk_that_folds_case_takes_other_spellings_for_one(disk: DiskPlace) -> None:
    async with disk.open_job() as job, job.task_attempt(task=0) as task, task.open(".Data.CRC") as file:
        await file.write(b"x")
    assert disk.files() == {".Data.CRC": b"x"}
    disk.remove(".Data.CRC")
    disk.store = FaultyStore(LocalStore(threads=1, case_folding=True))
    async with disk.open_job() as job, job.task_attempt(task=0) as task:
        with pytest.raises(InvalidPathError, match=REASON):
            task.open(".Data.CRC")


async def test_names_that_only_look_alike_are_free(disk: DiskPlace) -> None:
    files = dict.fromkeys(("data.crc", ".data.crc.csv", ".d.crc/part-0", "_x.crc", ".data", "data"), b"x")
    await disk.run_job(files)
    assert disk.files() == files


@pytest.mark.parametrize("profile", ["hdfs", "adls", "gcs"])
async def test_other_stores_keep_them(profile: str) -> None:
    place = MemoryPlace(profile)
    await place.run_job({"data.csv": b"1", ".data.csv.crc": b"2"})
    assert place.files() == {"data.csv": b"1", ".data.csv.crc": b"2"}
