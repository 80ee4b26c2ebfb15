"""Whole directories on a local disk, as a job publishes them that says nothing: only where the result is the same."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import committer
from committer import CommitterConfig
from committer.errors import TaskError
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest
from committer.spec import Delivery
from committer.stores.base import FileWriter, Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.testing.faults import Call, FaultyStore
from tests.places import write_file

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="promoted by default on Linux alone")

BY_FILES = CommitterConfig(promote_directories=False)


async def commit(
    table: Path,
    *,
    config: CommitterConfig | None = None,
    between: Callable[[Path], None] = lambda _directory: None,
    delivery: str = "listing",
) -> FaultyStore:
    """A job whose only task writes three files each into two directories, of which one is below another."""
    store = FaultyStore(LocalStore())
    async with committer.open_job(table, config=config, delivery=delivery, storage_options={"store": store}) as job:
        async with job.task_attempt(0) as task:
            for number in range(3):
                for directory in ("p=1", "p=1/q=1", "p=2"):
                    await write_file(task, f"{directory}/part-{number}", b"x")
        between(Path(task.directory.path))
        report = await job.commit(tasks=1)
    assert report.files_committed == 9
    await store.close()
    return store


def renamed(store: FaultyStore, table: Path) -> set[str]:
    """The directories that came in one rename."""
    return {
        call.destination.relative_to(StorePath.of(table))
        for call in store.calls
        if call.operation == "rename_directory" and call.destination and "_temporary" not in call.destination.path
    }


def tree(table: Path) -> dict[str, tuple[int, int, int, tuple[str, ...]]]:
    """Everything that exists there, with its rights."""
    return {
        str(path.relative_to(table)): (found.st_mode, found.st_uid, found.st_gid, tuple(os.listxattr(path)))
        for path in table.rglob("*")
        if path.name != "_SUCCESS"
        for found in (path.lstat(),)
    }


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_directories_are_renamed_whole_and_come_out_as_file_by_file(tmp_path: Path, delivery: str) -> None:
    store = await commit(tmp_path / "whole", delivery=delivery)
    assert renamed(store, tmp_path / "whole") == {"p=1", "p=2"}
    assert not any("part-" in str(call.path) for call in store.calls if call.operation == "rename_file")
    other = await commit(tmp_path / "files", config=BY_FILES, delivery=delivery)
    assert renamed(other, tmp_path / "files") == set()
    assert tree(tmp_path / "whole") == tree(tmp_path / "files")
    assert not (tmp_path / "whole/_temporary").exists()


@pytest.mark.parametrize("mode", [0o2770, 0o700, 0o777])
async def test_a_destination_that_hands_down_other_rights(tmp_path: Path, mode: int) -> None:
    """The rights that `_temporary` handed down are not those that the destination would by now."""
    tables = [tmp_path / name for name in ("whole", "files")]
    for table, config in zip(tables, (None, BY_FILES), strict=True):
        table.mkdir()

        def change(_directory: Path, table: Path = table) -> None:
            table.chmod(mode)

        store = await commit(table, config=config, between=change)
        # Only setgid is handed down; other bits of the parent are not.
        assert renamed(store, table) == (set() if config or mode == 0o2770 else {"p=1", "p=2"})
    assert tree(tables[0]) == tree(tables[1])


async def test_one_directory_with_other_rights_stays_with_those_above_it(tmp_path: Path) -> None:
    def change(directory: Path) -> None:
        (directory / "p=1/q=1").chmod(0o700)

    store = await commit(tmp_path / "whole", between=change)
    assert renamed(store, tmp_path / "whole") == {"p=2"}
    await commit(tmp_path / "files", config=BY_FILES, between=change)
    assert tree(tmp_path / "whole") == tree(tmp_path / "files")


async def test_who_asks_for_it_gets_the_rights_of_the_task(tmp_path: Path) -> None:
    def change(directory: Path) -> None:
        (directory / "p=1/q=1").chmod(0o700)

    config = CommitterConfig(promote_directories=True)
    store = await commit(tmp_path / "whole", config=config, between=change)
    assert renamed(store, tmp_path / "whole") == {"p=1", "p=2"}
    assert (tmp_path / "whole/p=1/q=1").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("stray", ["p=1/q=1/stray", "p=1/other/stray", "p=1/.part-0.crc"])
async def test_what_a_directory_holds_beside_its_files_stays_behind(tmp_path: Path, stray: str) -> None:
    def leave(directory: Path) -> None:
        path = directory / stray
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"stray")

    store = await commit(tmp_path / "whole", between=leave)
    assert renamed(store, tmp_path / "whole") == {"p=2"}
    await commit(tmp_path / "files", config=BY_FILES, between=leave)
    assert tree(tmp_path / "whole") == tree(tmp_path / "files")


async def test_attempts_whose_path_programs_know_are_left_out_by_default(tmp_path: Path) -> None:
    """A program that keeps a directory open can make files in it wherever it goes: nothing but its end stops that."""
    for config in (None, CommitterConfig(promote_directories=True)):
        table = tmp_path / str(config is None)
        store = FaultyStore(LocalStore())
        held: list[int] = []

        def make_stray(held: list[int] = held) -> None:
            os.close(os.open("stray", os.O_CREAT | os.O_WRONLY, dir_fd=held[0]))

        async def late(call: Call, table: Path = table, make: Callable[[], None] = make_stray) -> None:
            if call.operation == "rename_directory" and call.destination == StorePath.of(table / "p=1"):
                await asyncio.to_thread(make)

        async with committer.open_job(table, config=config, storage_options={"store": store}) as job:
            async with job.task_attempt(0) as task:
                paths = [Path(task.work_path(f"p=1/part-{number}")) for number in range(3)]
                for path in paths:
                    path.write_bytes(b"x")
                held.append(await asyncio.to_thread(os.open, paths[0].parent, os.O_RDONLY | os.O_DIRECTORY))
            async with job.task_attempt(1) as task:
                for number in range(3):
                    await write_file(task, f"p=2/part-{number}", b"x")
            records = list(table.glob("_temporary/*/00/manifests/*"))
            by_path = [decode_task_manifest(path.read_bytes(), source="").extraData for path in records]
            assert sorted("committer.by-path" in data for data in by_path) == [False, True]
            store.before_call = late
            await job.commit(tasks=2)
        os.close(held[0])
        await store.close()
        assert renamed(store, table) == ({"p=2"} if config is None else {"p=1", "p=2"})
        # With the option this is what docs/guarantees.md says of descriptors.
        assert (table / "p=1/stray").exists() == (config is not None)


async def test_a_file_given_up_while_it_opens_keeps_its_attempt_from_committing(tmp_path: Path) -> None:
    """It is made by then or not at all: a file that came after the record could come along with its directory."""
    store = FaultyStore(LocalStore())
    going, go_on = asyncio.Event(), asyncio.Event()
    real = LocalStore.open_writer

    async def slow(self: LocalStore, path: StorePath, *, durable: bool = False) -> FileWriter:
        if path.name == "given-up":
            going.set()
            await go_on.wait()
        return await real(self, path, durable=durable)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStore, "open_writer", slow)
        async with committer.open_job(tmp_path / "t", storage_options={"store": store}) as job:
            async with job.task_attempt(0) as task:
                for number in range(3):
                    await write_file(task, f"p=1/part-{number}", b"x")
                given_up = task.open("p=1/given-up")
                opening = asyncio.create_task(given_up.write(b"x"))
                await going.wait()
                aborting = asyncio.create_task(given_up.abort())
                await asyncio.sleep(0)
                with pytest.raises(TaskError, match="still open"):
                    await task.commit()
                go_on.set()
                await aborting
                with pytest.raises(TaskError, match="is closed"):
                    await opening
            await job.commit(tasks=1)
    await store.close()
    assert sorted(os.listdir(tmp_path / "t/p=1")) == [f"part-{number}" for number in range(3)]


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("kind", ["local", "hdfs", "adls"])
async def test_calls_a_file(kind: str, delivery: Delivery) -> None:
    """100 tasks with ten files each, every task in a partition of its own: docs/decisions/0010."""
    config = CommitterConfig(promote_directories=None if kind == "local" else True)
    # With a short name, so that a record has room in its message.
    with TemporaryDirectory() as root:
        space = MemoryStore.space(f"calls-{kind}", kind)
        space.clear()
        dest = f"{root}/t" if kind == "local" else f"memory://{space.name}/t"
        other: Store = LocalStore() if kind == "local" else space.store()
        store, messages = FaultyStore(LocalStore() if kind == "local" else space.store()), []
        job = await committer.open_job(dest, config=config, delivery=delivery, storage_options={"store": other})
        for number in range(100):
            async with committer.open_task(job.spec, task=number, storage_options={"store": other}) as task:
                for value in range(10):
                    await write_file(task, f"p={number}/part-{value}", b"x")
            messages.append(task.task_commit)
        driver = await committer.attach_job(job.spec, storage_options={"store": store})
        store.calls.clear()
        await driver.commit(messages if delivery == "message" else None, tasks=100)
    assert store.count() / 1000 <= {"message": 0.35, "listing": 0.45}[delivery]
    # One listing shows all that was sealed where a store has such: in place of one for each directory.
    assert store.count("list_tree") == (1 if kind == "adls" else 0)
    await store.close()
    await other.close()
