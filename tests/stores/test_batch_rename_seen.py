"""Many renames in one hop to a thread, each only of the file that was seen: how old files are moved aside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import StoreError, StoreExistsError, StoreIsADirectoryError, StorePreconditionError
from committer.paths import StorePath
from committer.stores.local import LocalStore

ASIDE = "_temporary/job-1/superseded"
Renames = list[tuple[StorePath, StorePath]]


def old_files(root: Path, count: int) -> tuple[Path, Path, Renames]:
    """A partition with old files, the place that they are to go to, and both ends of each."""
    partition, aside = root / "a=1", root / ASIDE
    partition.mkdir()
    aside.mkdir(parents=True)
    for number in range(count):
        (partition / f"part-{number}").write_bytes(b"%02d" % number)
    return (
        partition,
        aside,
        [
            (StorePath.of(partition / f"part-{number}"), StorePath.of(aside / f"{number:08d}"))
            for number in range(count)
        ],
    )


async def moved(renames: Renames, *, before: Callable[[], object] = lambda: None) -> dict[int, type[StoreError]]:
    """What each file's rename said, after `before` was done to what had been seen."""
    store = LocalStore()
    try:
        statuses = [await store.status(source) for source, _aside in renames]
        before()
        errors = await store.rename_files(renames, seen=[(status.identity, status.size) for status in statuses])
    finally:
        await store.close()
    return {index: type(error) for index, error in errors.items()}


@pytest.mark.parametrize("count", [5, 20])
async def test_only_the_files_that_were_seen_are_renamed(tmp_path: Path, count: int) -> None:
    """A link that was seen is one of them; the checksum of a file that leaves is deleted."""
    partition, aside, renames = old_files(tmp_path, count)
    (partition / "part-4").unlink()
    (partition / "part-4").symlink_to("/nowhere")
    (partition / ".part-4.crc").write_bytes(b"crc\0")
    (aside / "00000003").write_bytes(b"moved before")

    def others_come() -> None:
        (partition / "new").write_bytes(b"00")
        (partition / "new").replace(partition / "part-0")
        (partition / "part-1").unlink()
        (partition / "part-1").mkdir()
        with (partition / "part-2").open("ab") as file:
            file.write(b"more")

    assert await moved(renames, before=others_come) == {
        0: StorePreconditionError,
        1: StoreIsADirectoryError,
        2: StorePreconditionError,
        3: StoreExistsError,
    }
    kept = {path.name: path.read_bytes() for path in partition.iterdir() if path.is_file()}
    assert kept == {"part-0": b"00", "part-2": b"02more", "part-3": b"03"}
    assert sorted(path.name for path in aside.iterdir()) == [f"{number:08d}" for number in range(3, count)]
    assert ((aside / "00000003").read_bytes(), (aside / "00000004").is_symlink()) == (b"moved before", True)


async def test_an_overwrite_moves_old_files_many_at_a_time_and_keeps_what_came_since(tmp_path: Path) -> None:
    calls: list[int] = []

    class Busy(LocalStore):
        async def rename_files(self, renames: Renames, *, seen: Any = None, **rest: Any) -> dict[int, StoreError]:
            if seen is not None:
                calls.append(len(renames))
                # Another program replaces an old file that was listed before the decision.
                await store.put(StorePath.of(tmp_path / "a=1/part-7"), b"another program's")
            return await super().rename_files(renames, seen=seen, **rest)

    partition = tmp_path / "a=1"
    partition.mkdir()
    for number in range(100):
        (partition / f"part-{number}").write_bytes(b"old")
    store = Busy()
    options, config = {"store": store}, CommitterConfig(conflict_mode="replace")
    async with committer.open_job(tmp_path, config=config, storage_options=options) as job:
        async with job.task_attempt(0) as task, task.open("a=1/new") as file:
            await file.write(b"new")
        await job.commit()
    await store.close()
    assert calls == [100]
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == {
        "part-7": b"another program's",
        "new": b"new",
    }
