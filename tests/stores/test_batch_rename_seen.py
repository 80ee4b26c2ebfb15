"""Many renames in one hop to a thread, each only of the file that was seen: how old files are moved aside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    InvalidPathError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreLinkError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.local import LocalStore, kernel_rename

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


async def moved(renames: Renames, *, before: object = None) -> dict[int, type[StoreError]]:
    """What each file's rename said, after `before` was done to what had been seen."""
    store = LocalStore()
    statuses = [await store.status(source) for source, _aside in renames]
    if callable(before):
        before()
    errors = await store.rename_files(renames, seen=[(status.identity, status.size) for status in statuses])
    await store.close()
    return {index: type(error) for index, error in errors.items()}


@pytest.mark.parametrize("count", [2, 20])
async def test_only_the_files_that_were_seen_are_renamed(tmp_path: Path, count: int) -> None:
    partition, aside, renames = old_files(tmp_path, count)

    def others_come() -> None:
        (partition / "new").write_bytes(b"00")
        (partition / "new").replace(partition / "part-0")
        (partition / "part-1").unlink()
        (partition / "part-1").mkdir()

    assert await moved(renames, before=others_come) == {0: StorePreconditionError, 1: StoreIsADirectoryError}
    assert (partition / "part-0").read_bytes() == b"00"
    assert sorted(path.name for path in aside.iterdir()) == [f"{number:08d}" for number in range(2, count)]
    assert len(list(partition.iterdir())) == 2


@pytest.mark.parametrize("count", [2, 20])
async def test_what_grew_since_stays(tmp_path: Path, count: int) -> None:
    partition, _aside, renames = old_files(tmp_path, count)

    def one_grows() -> None:
        with (partition / "part-1").open("ab") as file:
            file.write(b"more")

    assert await moved(renames, before=one_grows) == {1: StorePreconditionError}
    assert (partition / "part-1").read_bytes() == b"01more"


@pytest.mark.parametrize("count", [2, 20])
async def test_nothing_is_replaced(tmp_path: Path, count: int) -> None:
    partition, aside, renames = old_files(tmp_path, count)
    (aside / "00000001").write_bytes(b"moved before")
    assert await moved(renames) == {1: StoreExistsError}
    assert (partition / "part-1").read_bytes() == b"01"
    assert (aside / "00000001").read_bytes() == b"moved before"


@pytest.mark.parametrize("count", [2, 20])
async def test_a_link_that_was_seen_is_renamed_as_what_it_is(tmp_path: Path, count: int) -> None:
    partition, aside, renames = old_files(tmp_path, count)
    (partition / "part-1").unlink()
    (partition / "part-1").symlink_to("/nowhere")
    assert await moved(renames) == {}
    assert (aside / "00000001").is_symlink()


@pytest.mark.parametrize("count", [2, 20])
async def test_sidecars_of_what_leaves_are_deleted(tmp_path: Path, count: int) -> None:
    partition, _aside, renames = old_files(tmp_path, count)
    (partition / ".part-1.crc").write_bytes(b"crc\0")
    assert await moved(renames) == {}
    assert list(partition.iterdir()) == []


async def test_files_that_went_through_a_planted_link_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile user has the place for old files lead elsewhere, after the look at it."""
    partition, aside, renames = old_files(tmp_path, 20)
    outside = tmp_path / "outside"
    outside.mkdir()
    rename = kernel_rename.rename_no_replace
    calls = 0

    def planting(source: str, destination: str, **ends: int | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            aside.rename(aside.with_name("real"))
            aside.symlink_to(outside)
        rename(source, destination, **ends)

    monkeypatch.setattr(kernel_rename, "rename_no_replace", planting)
    assert await moved(renames) == dict.fromkeys(range(2, 20), StoreLinkError)
    assert list(outside.iterdir()) == []
    assert len(list(partition.iterdir())) == 18
    assert len(list(aside.with_name("real").iterdir())) == 2


async def test_files_that_went_through_a_planted_link_come_back_where_a_later_one_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, aside, renames = old_files(tmp_path, 20)
    outside = tmp_path / "outside"
    outside.mkdir()
    store = LocalStore()
    seen = [(status.identity, status.size) for status in [await store.status(source) for source, _aside in renames]]
    renames[9] = (StorePath.of(partition) / "part\ud800", renames[9][1])
    rename, calls = kernel_rename.rename_no_replace, 0

    def planting(source: str, destination: str, **ends: int | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            aside.rename(aside.with_name("real"))
            aside.symlink_to(outside)
        rename(source, destination, **ends)

    monkeypatch.setattr(kernel_rename, "rename_no_replace", planting)
    with pytest.raises(InvalidPathError):
        await store.rename_files(renames, seen=seen)
    await store.close()
    assert list(outside.iterdir()) == []
    assert len(list(partition.iterdir())) == 18
    assert len(list(aside.with_name("real").iterdir())) == 2


async def test_an_overwrite_moves_old_files_many_at_a_time_and_keeps_what_came_since(tmp_path: Path) -> None:
    calls: list[int] = []

    class Busy(LocalStore):
        async def rename_files(
            self,
            renames: Renames,
            *,
            seen: list[tuple[str | None, int]] | None = None,
            identities: Sequence[str | None] | None = None,
        ) -> dict[int, StoreError]:
            if seen is not None:
                calls.append(len(renames))
                # Another program replaces an old file that was listed before the decision.
                await store.put(StorePath.of(tmp_path / "a=1/part-7"), b"another program's")
            return await super().rename_files(renames, seen=seen, identities=identities)

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
