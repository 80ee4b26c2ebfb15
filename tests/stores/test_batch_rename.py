"""Many renames in one hop to a thread: what one does, for each of them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import (
    InvalidPathError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreLinkError,
    StoreNotFoundError,
    TargetExistsError,
)
from committer.events import Statistics, names
from committer.flow.pacing import Pacer
from committer.paths import StorePath
from committer.stores.abilities import BATCH_RENAME
from committer.stores.local import LocalStore, kernel_rename
from committer.stores.paced import PacedStore
from tests.stores.conftest import AtRename

pytestmark = pytest.mark.every_loop


def pairs(directory: Path, count: int) -> list[tuple[StorePath, StorePath]]:
    root = StorePath.of(directory)
    for number in range(count):
        (directory / f"from-{number}").write_bytes(b"%d" % number)
    return [(root / f"from-{number}", root / f"to-{number}") for number in range(count)]


async def test_each_file_is_renamed_or_its_error_told(local: LocalStore, tmp_path: Path) -> None:
    renames = pairs(tmp_path, 6)
    (tmp_path / "to-1").write_bytes(b"in the way")
    (tmp_path / "from-2").unlink()
    (tmp_path / "from-4").unlink()
    (tmp_path / "from-4").mkdir()
    errors = await local.rename_files(renames)
    assert {index: type(error) for index, error in errors.items()} == {
        1: StoreExistsError,
        2: StoreNotFoundError,
        4: StoreIsADirectoryError,
    }
    assert [(tmp_path / f"to-{number}").read_bytes() for number in (0, 3, 5)] == [b"0", b"3", b"5"]
    assert (tmp_path / "to-1").read_bytes() == b"in the way"
    assert (tmp_path / "from-1").read_bytes() == b"1"


async def test_they_are_counted_and_paced_one_by_one(tmp_path: Path) -> None:
    statistics = Statistics()
    pacer = Pacer("batch", concurrency=4)
    store = PacedStore(LocalStore(), pacer=pacer, statistics=statistics)
    assert BATCH_RENAME.of(store) is store
    renames = pairs(tmp_path, 5)
    (tmp_path / "from-3").unlink()
    assert set(await store.rename_files(renames)) == {3}
    await store.close()
    assert statistics.counter(names.STORE_IO_REQUEST) == 5
    assert statistics.counter(names.COMMIT_FILE_RENAME) == 5
    assert statistics.counter(names.COMMIT_FILE_RENAME + names.FAILURES) == 1
    assert pacer.in_use == 0


class Watched(LocalStore):
    """A disk whose calls are seen."""

    seen: int = 0

    async def rename_file(self, *arguments: object, **named: object) -> None:
        self.seen += 1
        await super().rename_file(*arguments, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [LocalStore, Watched])
async def test_a_job_publishes_all_its_files(tmp_path: Path, kind: type[LocalStore]) -> None:
    store = kind()
    job = await committer.open_job(tmp_path, storage_options={"store": store})
    for number in range(3):
        async with job.task_attempt(number) as task:
            for file in range(70):
                async with task.open(f"d={file % 3}/part-{number}-{file}") as handle:
                    await handle.write(b"x")
    report = await job.commit(tasks=3)
    await job.close()
    assert report.files_committed == 210
    assert report.bytes_committed == 210
    # The files, and `_SUCCESS`.
    assert report.statistics.counters[names.COMMIT_FILE_RENAME] == 210 + 1
    assert len(list(tmp_path.glob("d=*/part-*"))) == 210
    if isinstance(store, Watched):
        # A store that renames in its own way is asked for each file.
        assert store.seen >= 210
    await store.close()


async def test_a_file_in_the_way_is_never_replaced_and_the_job_is_taken_back(tmp_path: Path) -> None:
    class Crowded(LocalStore):
        async def rename_files(
            self, renames: Sequence[tuple[StorePath, StorePath]], **rest: Any
        ) -> dict[int, StoreError]:
            await asyncio.to_thread((tmp_path / "part-77").write_bytes, b"another job's")
            return await super().rename_files(renames, **rest)

    store = Crowded()
    job = await committer.open_job(tmp_path, storage_options={"store": store})
    async with job.task_attempt(0) as task:
        for file in range(100):
            async with task.open(f"part-{file}") as handle:
                await handle.write(b"new")

    with pytest.raises(TargetExistsError):
        await job.commit(tasks=1)
    await job.close()
    await store.close()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("part-*")} == {"part-77": b"another job's"}
    assert not (tmp_path / "_SUCCESS").exists()


async def test_a_cancelled_batch_is_waited_for(local: LocalStore, tmp_path: Path) -> None:
    renames = pairs(tmp_path, 500)
    running = asyncio.create_task(local.rename_files(renames))
    for _turn in range(3):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    there = len(list(tmp_path.glob("to-*")))
    await asyncio.sleep(0.05)
    assert len(list(tmp_path.glob("to-*"))) == there


def into(directory: Path, count: int) -> list[tuple[StorePath, StorePath]]:
    """Files of one directory that go into another."""
    (directory / "in").mkdir(exist_ok=True)
    return [
        (source, StorePath.of(directory / "in") / destination.name) for source, destination in pairs(directory, count)
    ]


def crowd(directory: Path, others: int) -> None:
    """Many more files than are worth a listing."""
    for number in range(others):
        (directory / "in" / f"other-{number}").touch()


@pytest.mark.parametrize("others", [0, 500])
@pytest.mark.parametrize(("count", "places"), [(20, (3, 17)), (3, (0, 2))])
async def test_a_directory_among_files_stays_where_it_is(
    local: LocalStore, tmp_path: Path, count: int, places: tuple[int, int], others: int
) -> None:
    renames = into(tmp_path, count)
    crowd(tmp_path, others)
    for number in places:
        (tmp_path / f"from-{number}").unlink()
        (tmp_path / f"from-{number}").mkdir()
        (tmp_path / f"from-{number}" / "child").write_bytes(b"x")
    errors = await local.rename_files(renames)
    assert {index: type(error) for index, error in errors.items()} == dict.fromkeys(places, StoreIsADirectoryError)
    assert [(tmp_path / f"from-{number}" / "child").exists() for number in places] == [True, True]
    assert len(list((tmp_path / "in").iterdir())) == count - 2 + others


@pytest.mark.parametrize("others", [0, 500])
@pytest.mark.parametrize("count", [3, 12])
async def test_a_stale_checksum_goes_before_its_name_is_taken(
    local: LocalStore, tmp_path: Path, count: int, others: int
) -> None:
    """However many other files exist there. That of a file that stands stays."""
    renames = into(tmp_path, count)
    crowd(tmp_path, others)
    (tmp_path / "in" / ".to-1.crc").write_bytes(b"crc\0")
    (tmp_path / "in" / "to-2").write_bytes(b"in the way")
    (tmp_path / "in" / ".to-2.crc").write_bytes(b"crc\0")
    errors = await local.rename_files(renames)
    assert {index: type(error) for index, error in errors.items()} == {2: StoreExistsError}
    assert not (tmp_path / "in" / ".to-1.crc").exists()
    assert (tmp_path / "in" / ".to-2.crc").exists()
    assert len(list((tmp_path / "in").iterdir())) == count + 1 + others


async def test_a_name_that_no_file_can_have_is_refused(local: LocalStore, tmp_path: Path) -> None:
    renames = into(tmp_path, 3)
    renames[1] = (renames[1][0], renames[1][1].parent / "to\ud800")
    with pytest.raises(InvalidPathError):
        await local.rename_files(renames)
    assert (tmp_path / "from-1").exists()


@pytest.mark.parametrize("others", [0, 500])
@pytest.mark.parametrize("count", [2, 12])
async def test_a_link_among_the_sources_stays_where_it_is(
    local: LocalStore, tmp_path: Path, count: int, others: int
) -> None:
    """A batch publishes: what took the place of a file since it was committed is not it."""
    renames = into(tmp_path, count)
    crowd(tmp_path, others)
    (tmp_path / "from-1").unlink()
    (tmp_path / "from-1").symlink_to("/nowhere")
    errors = await local.rename_files(renames)
    assert {index: type(error) for index, error in errors.items()} == {1: StoreLinkError}
    assert errors[1].outcome == "unchanged"
    assert (tmp_path / "from-1").is_symlink()
    assert len(list((tmp_path / "in").iterdir())) == count - 1 + others


async def test_a_directory_that_is_missing_is_told_of_each_file(local: LocalStore, tmp_path: Path) -> None:
    renames = into(tmp_path, 8)
    (tmp_path / "in").rmdir()
    errors = await local.rename_files(renames)
    assert {index: type(error) for index, error in errors.items()} == dict.fromkeys(range(8), StoreNotFoundError)
    assert {error.path for error in errors.values()} == {str(path) for _, path in renames}


async def test_what_cannot_be_renamed_at_once_is_linked(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system says only when it is tried that it has no rename that replaces nothing."""

    def refuse(source: str, destination: str, **_at: int | None) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(kernel_rename, "rename_no_replace", refuse)
    renames = into(tmp_path, 9)
    assert await local.rename_files(renames) == {}
    assert not local.capabilities.atomic_directory_rename
    assert len(list((tmp_path / "in").iterdir())) == 9
    assert not list(tmp_path.glob("from-*"))


@pytest.mark.parametrize("others", [0, 500])
@pytest.mark.parametrize("count", [3, 12])
async def test_a_name_that_no_file_can_have_leaves_no_directory_among_the_files(
    local: LocalStore, tmp_path: Path, count: int, others: int
) -> None:
    """Whatever is raised, those that were renamed before are looked at."""
    renames = into(tmp_path, count)
    crowd(tmp_path, others)
    for number, put in ((0, Path.mkdir), (1, lambda path: path.symlink_to("/nowhere"))):
        (tmp_path / f"from-{number}").unlink()
        put(tmp_path / f"from-{number}")
    renames[-1] = (renames[-1][0], renames[-1][1].parent / "to\ud800")
    with pytest.raises(InvalidPathError) as caught:
        await local.rename_files(renames)
    assert caught.value.outcome == "unchanged"
    assert (tmp_path / "from-0").is_dir()
    assert (tmp_path / "from-1").is_symlink()
    assert len(list((tmp_path / "in").iterdir())) == count - 3 + others


async def test_memory_that_runs_out_leaves_no_directory_among_the_files(
    local: LocalStore, tmp_path: Path, at_rename: AtRename
) -> None:
    renames = into(tmp_path, 9)
    (tmp_path / "from-0").unlink()
    (tmp_path / "from-0").mkdir()

    def run_out() -> None:
        raise MemoryError

    at_rename(5, run_out)
    with pytest.raises((StoreError, MemoryError)):
        await local.rename_files(renames)
    assert (tmp_path / "from-0").is_dir()
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["to-1", "to-2", "to-3"]
    assert (tmp_path / "from-4").exists()


async def test_a_directory_that_cannot_be_put_back_is_told_whatever_is_raised(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renames = into(tmp_path, 9)
    (tmp_path / "from-0").unlink()
    (tmp_path / "from-0").mkdir()
    renames[5] = (renames[5][0], renames[5][1].parent / "to\ud800")
    rename = kernel_rename.rename_no_replace

    def planting(source: str, destination: str, **at: int | None) -> None:
        rename(source, destination, **at)
        if destination.endswith("to-0"):
            Path(source).mkdir()

    monkeypatch.setattr(kernel_rename, "rename_no_replace", planting)
    with pytest.raises(InvalidPathError) as caught:
        await local.rename_files(renames)
    assert caught.value.outcome == "unknown"
    assert [type(cause) for cause in caught.value.causes] == [StoreIsADirectoryError]
