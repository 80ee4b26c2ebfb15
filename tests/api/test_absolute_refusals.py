"""Absolute paths and roots that are refused: when a file is opened, at setup, in preflight, on another volume."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    PreflightError,
    StoreCrossDeviceError,
    TargetExistsError,
    TaskError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.testing.faults import Call, Fault
from tests.outside import HERE, NEW, ROOT, config, outside, put, run_task, uri
from tests.places import DiskPlace, MemoryPlace, Place, write_file

# -- names and roots that are refused ---------------------------------------------------------------------------------


def refused_names(place: Place) -> Iterator[tuple[str, str]]:
    path = StorePath.of(uri(place)).path
    yield "warehouse/x", "must be absolute"
    yield "x", "must be absolute"
    yield "", "must be absolute"
    yield f"{path}-sibling/x", "below none of the roots"
    yield "/elsewhere/x", "below none of the roots"
    yield f"{path}/../elsewhere/x", "below none of the roots"
    yield f"{path}/../{StorePath.of(place.dest).name}/x", "below none of the roots"
    yield path, "below none of the roots"
    yield f"{path}/", "ends in a slash"
    yield f"{path}/a/", "ends in a slash"
    yield f"{path}/_SUCCESS", "_SUCCESS, which commits own"
    yield f"{path}/t/_temporary/j/decision", "_temporary, which commits own"
    yield f"{path}/_temporary/x", "which commits own"
    yield f"{path}/t/__magic_job-1/x", "which commits own"
    yield f"https://example.com{path}/x", "not in the store of the destination"
    yield f"{StorePath.of(place.dest).scheme}://elsewhere{path}/x", "not in the store of the destination"
    yield f"//host{path}/x", "two slashes"
    yield f"{path}/a\0b", "NUL"


async def test_names_that_are_refused(place: Place) -> None:
    job = await place.open_job(config=config(place))
    async with job.task_attempt(0) as task:
        for name, message in refused_names(place):
            with pytest.raises(InvalidPathError, match=message) as caught:
                task.open_absolute(name)
            assert caught.value.operation == "open_absolute"
            assert caught.value.next_step, name
        with pytest.raises(InvalidPathError, match="is absolute"):
            task.open(uri(place, "x").partition(":")[2].lstrip("/").join(("/", "")))
    await job.commit()
    assert outside(place) == {}


async def test_no_root_was_given(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(0) as task:
        with pytest.raises(InvalidPathError, match="below none of the roots") as caught:
            task.open_absolute(uri(place, "x"))
        assert "absolute_roots" in caught.value.next_step
    assert outside(place) == {}


async def test_name_that_the_store_cannot_hold(memory: MemoryPlace) -> None:
    async with memory.open_job(config=config(memory)) as job, job.task_attempt(0) as task:
        with pytest.raises(InvalidPathError, match="longer than 255 bytes"):
            task.open_absolute(uri(memory, "p" * 256))


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ("/table", "holds the destination"),
        ("/table/below", "lies in the destination"),
        ("/", "whole store"),
        ("/other/_temporary/job", "commits own"),
        ("/other/__magic_job-1", "commits own"),
        ("warehouse", "must be absolute"),
        ("https://example.com/warehouse", "not in the store"),
        ("memory://elsewhere/warehouse", "not in the store"),
    ],
)
async def test_roots_that_are_refused(memory: MemoryPlace, root: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await memory.open_job(config=CommitterConfig(absolute_roots=(root,)))
    assert memory.space.files() == {}


async def test_root_that_holds_the_destination(memory: MemoryPlace) -> None:
    memory.dest = f"{memory.dest}/deep"
    with pytest.raises(ConfigurationError, match="holds the destination"):
        await memory.open_job(config=CommitterConfig(absolute_roots=("/table",)))


async def test_root_that_the_store_takes_for_the_destination() -> None:
    place = MemoryPlace("local", case_folding=True)
    with pytest.raises(ConfigurationError, match="lies in the destination"):
        await place.open_job(config=CommitterConfig(absolute_roots=("/TABLE/below",)))


async def test_root_that_is_a_file(memory: MemoryPlace) -> None:
    memory.space.write(f"/{ROOT}", b"a file")
    with pytest.raises(committer.errors.StoreNotADirectoryError, match="a file exists where a directory must be"):
        await memory.open_job(config=config(memory))
    assert memory.space.files() == {f"/{ROOT}": b"a file"}


# -- another volume ---------------------------------------------------------------------------------------------------


@pytest.fixture
def other_volume(tmp_path: Path) -> Iterator[Path]:
    """A directory on another volume than the test's own."""
    other = Path("/dev/shm")
    if not other.is_dir() or os.stat(other).st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("this machine has one volume only")
    path = other / f"absolute-{os.getpid()}-{tmp_path.name}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_root_on_another_volume_is_refused_at_setup(tmp_path: Path, other_volume: Path) -> None:
    place = DiskPlace(tmp_path)
    given = CommitterConfig(absolute_roots=(str(tmp_path / ROOT), str(other_volume)))
    with pytest.raises(UnsupportedError, match="another volume") as caught:
        await place.open_job(job_id="j-1", config=given)
    assert str(other_volume) in str(caught.value)
    assert place.all_files() == {}
    assert list(other_volume.iterdir()) == []
    assert outside(place) == {}
    async with place.open_job(job_id="j-1", config=config(place)) as job:
        await run_task(place, job, 0, NEW)
    await place.store.close()


async def test_rename_that_leaves_its_volume_takes_the_job_back(place: Place) -> None:
    """Setup cannot find every border: a directory below the root may be another volume's."""
    put(place, "p=2/q=1/old", b"old")
    before = outside(place, directories=True)
    job = await place.open_job(config=config(place, io_concurrency=1))
    await run_task(place, job, 0, NEW, HERE)

    async def refuse(call: Call) -> None:
        if call.operation == "rename_file" and str(call.destination).endswith(f"{ROOT}/p=2/q=1/part-0"):
            raise StoreCrossDeviceError("a rename would leave its volume", operation="rename_file", path=call.path)

    place.store.before_call = refuse
    with pytest.raises(StoreCrossDeviceError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    place.store.before_call = None
    assert outside(place, directories=True) == before
    assert place.files() == {}


# -- preflight --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ("p=1/part", "p=1/part", r"p=1/part is written by task_.* and task_"),
        ("a", "a/b", "and a directory that other files need"),
        ("a/part", "A/PART", "for one"),
    ],
)
async def test_files_of_two_tasks_that_exclude_each_other(place: Place, first: str, second: str, says: str) -> None:
    if says == "for one":
        place = MemoryPlace("local", case_folding=True)
    job = await place.open_job(config=config(place))
    await run_task(place, job, 0, {first: b"0"})
    await run_task(place, job, 1, {second: b"1"})
    with pytest.raises(PreflightError, match=says):
        await job.commit()
    await job.abort()
    assert outside(place) == {}


async def test_one_task_opens_a_path_once(memory: MemoryPlace) -> None:
    async with memory.open_job(config=config(memory)) as job, job.task_attempt(0) as task:
        async with task.open_absolute(uri(memory, "a/b")) as file:
            await file.write(b"x")
        with pytest.raises(TaskError, match="opened before"):
            task.open_absolute(f"/{ROOT}/c/../a/b")
        with pytest.raises(TaskError, match="a file and a directory at once"):
            task.open_absolute(f"/{ROOT}/a")
        with pytest.raises(TaskError, match="a file and a directory at once"):
            task.open_absolute(f"/{ROOT}/a/b/c")
        # The same words below the destination are another place.
        await write_file(task, f"{ROOT}/a/b", b"y")
    assert outside(memory) == {"a/b": b"x"}
    assert memory.files() == {f"{ROOT}/a/b": b"y"}


@pytest.mark.parametrize(
    ("old", "mode", "says"),
    [("p=1/part-0", "append", "p=1/part-0, where a file goes"), ("p=1/old", "fail", "p=1 already holds files")],
)
async def test_existing_files_are_refused(place: Place, old: str, mode: str, says: str) -> None:
    put(place, old, b"old")
    job = await place.open_job(config=config(place, conflict_mode=mode))
    await run_task(place, job, 0, {"p=1/part-0": b"new", "p=2/part-0": b"new"})
    with pytest.raises(TargetExistsError, match=says):
        await job.commit()
    await job.abort()
    assert outside(place) == {old: b"old"}


async def test_existing_target_is_replaced_when_told(place: Place) -> None:
    put(place, "p=1/part-0", b"old")
    put(place, "p=1/other", b"stays")
    async with place.open_job(config=config(place, existing_target="replace")) as job:
        await run_task(place, job, 0, NEW)
    assert outside(place) == {**NEW, "p=1/other": b"stays"}


async def test_file_that_stands_where_a_directory_goes(memory: MemoryPlace) -> None:
    put(memory, "p=1", b"a file")
    job = await memory.open_job(config=config(memory))
    await run_task(memory, job, 0, NEW)
    with pytest.raises(TargetExistsError, match="p=1, where a directory goes"):
        await job.commit()
    await job.abort()
    async with memory.open_job(config=config(memory, existing_target="replace")) as job:
        await run_task(memory, job, 0, NEW)
    assert outside(memory) == NEW


async def test_root_that_became_a_file_since(memory: MemoryPlace) -> None:
    job = await memory.open_job(config=config(memory))
    await run_task(memory, job, 0, NEW)
    memory.space.tree.delete_directory(memory.space.path(ROOT), recursive=True)
    memory.space.write(f"/{ROOT}", b"a file")
    with pytest.raises(TargetExistsError, match=f"/{ROOT}, where a directory goes"):
        await job.commit()
    await job.abort()
    assert memory.space.files() == {f"/{ROOT}": b"a file"}


async def test_root_that_vanished_since_is_made_again_and_taken_back(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j-1", config=config(memory))
    await run_task(memory, job, 0, NEW)
    memory.space.tree.delete_directory(memory.space.path(ROOT), recursive=True)
    memory.faults(Fault(kind="forbidden", operation="rename_file", path="p=2/q=1/part-0"))
    with pytest.raises(CommitterError):
        await job.commit()
    assert outside(memory)
    await memory.recover("j-1", rollback=True, config=config(memory))
    assert f"/{ROOT}" not in memory.space.directories()
