"""Disks that cannot do what most can: each process finds that out for itself, and its advice leads to the end."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.local import LocalStore, kernel_rename, renames
from committer.stores.local.calls import make_directories
from committer.stores.local.places import Held
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.processes.harness import visible

REPLACE = CommitterConfig(existing_target="replace", io_concurrency=1)
MOST_STEPS = 4


@pytest.fixture
def no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, destination: str, **_at: int | None) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source, None, destination)

    monkeypatch.setattr(kernel_rename, "rename_no_replace", refuse)


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


def write(table: Path, name: str) -> None:
    (table / name).parent.mkdir(parents=True, exist_ok=True)
    (table / name).write_bytes(b"old")


async def die(table: Path, crash: Fault, *, names: tuple[str, ...] = ("x", "y")) -> None:
    """A job that publishes files and dies on the way."""
    store = FaultyStore(LocalStore(threads=1))
    job = await committer.open_job(table, job_id="dead", config=REPLACE, storage_options={"store": store})
    async with job.task_attempt(0) as task:
        for name in names:
            async with task.open(name) as file:
                await file.write(b"new")
    store.faults.append(crash)
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)


async def follow(table: Path, *, rollback: bool) -> list[str]:
    """Recovers, each time in a store that has learnt nothing yet, and does to the letter what each error says."""
    said: list[str] = []
    for _step in range(MOST_STEPS):
        try:
            await committer.recover(table, "dead", rollback=rollback)
        except CommitterError as error:
            said.append(error.next_step)
            assert re.search(r"committer\.recover\('[^']+', 'dead'\)", error.next_step), error
            rollback = "rollback=True" in error.next_step
        else:
            return said
    raise AssertionError(said)


@pytest.mark.parametrize("rollback", [False, True])
async def test_directory_that_makes_room_where_none_is_renamed(tmp_path: Path, no_flag: None, rollback: bool) -> None:
    write(tmp_path, "x/old")
    await die(tmp_path, Fault(kind="crash_before", operation="delete_directory", path="/x"), names=("x",))
    said = await follow(tmp_path, rollback=rollback)
    assert len(said) == rollback
    assert visible(tmp_path) == {"x": b"new"}
    assert not (tmp_path / "_temporary").exists()


@pytest.mark.parametrize("rollback", [False, True])
async def test_file_replaced_where_there_are_no_hard_links(tmp_path: Path, no_links: None, rollback: bool) -> None:
    write(tmp_path, "x")
    await die(tmp_path, Fault(kind="crash_before", operation="rename_file", path="/x"))
    said = await follow(tmp_path, rollback=rollback)
    assert len(said) == rollback
    assert visible(tmp_path) == {"x": b"new", "y": b"new"}
    assert not (tmp_path / "_temporary").exists()


@pytest.mark.parametrize("again", [False, True])
async def test_rollback_that_died_before_it_put_old_files_back(tmp_path: Path, no_flag: None, again: bool) -> None:
    """There is no fence there, so they are where they were moved aside."""
    write(tmp_path, "x")
    await die(tmp_path, Fault(kind="crash_before", operation="put", path="outcome"))
    assert visible(tmp_path) == {"x": b"new", "y": b"new"}
    store = FaultyStore(LocalStore(threads=1), [Fault(kind="crash_after", operation="put", path="outcome")])
    with pytest.raises(SimulatedCrash):
        await committer.recover(tmp_path, "dead", rollback=True, force=True, storage_options={"store": store})
    if again:
        report = await committer.recover(tmp_path, "dead", rollback=True, force=True)
        assert not report.success
    else:
        with pytest.raises(committer.errors.JobRolledBackError):
            await committer.recover(tmp_path, "dead")
    assert visible(tmp_path) == {"x": b"old"}
    assert not (tmp_path / "_temporary").exists()


@pytest.mark.parametrize("crash_at", ["intent", "decision"])
@pytest.mark.parametrize("by", ["recover", "commit"])
async def test_job_decided_by_another_process(tmp_path: Path, no_links: None, by: str, crash_at: str) -> None:
    """A file of an earlier job makes room; whether it can be kept by a link the deciding process has to find out."""
    write(tmp_path, "x")
    await die(
        tmp_path, Fault(kind="crash_after" if crash_at == "intent" else "crash_before", operation="put", path=crash_at)
    )
    if by == "recover":
        report = await committer.recover(tmp_path, "dead")
    else:
        async with committer.attach_job(tmp_path, job_id="dead") as job:
            report = await job.commit(tasks=1)
    assert report.success
    assert visible(tmp_path) == {"x": b"new", "y": b"new"}
    assert not (tmp_path / "_temporary").exists()


@pytest.mark.parametrize(("replaces", "probes"), [(False, 0), (True, 1)])
async def test_abilities_are_tried_once_where_the_commit_needs_them(
    tmp_path: Path, replaces: bool, probes: int
) -> None:
    if replaces:
        write(tmp_path, "x")
    store = FaultyStore(LocalStore(threads=1))
    job = await committer.open_job(tmp_path, job_id="dead", config=REPLACE, storage_options={"store": store})
    async with job.task_attempt(0) as task, task.open("x") as file:
        await file.write(b"new")
    attached = FaultyStore(LocalStore(threads=1))
    async with committer.attach_job(job.spec, storage_options={"store": attached}) as another:
        await another.commit(tasks=1)
    assert [call.operation for call in store.calls].count("probe") == 1
    assert [call.operation for call in attached.calls].count("probe") == probes
    await job.close()


async def test_names_that_a_probe_moves_files_to_are_no_other_process_s(
    tmp_path: Path, no_flag: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers have the same process ids, and may recover a job at once."""
    names: list[str] = []
    drop = renames.drop_linked_name

    def note(linked: os.stat_result, source: str, destination: str, private: str) -> None:
        names.append(Path(private).name.partition("-")[0])
        drop(linked, source, destination, private)

    monkeypatch.setattr(renames, "drop_linked_name", note)
    for _process in range(2):
        await LocalStore().probe(StorePath.of(tmp_path))
    assert len(set(names)) == 2
    assert "." not in names


async def test_a_driver_that_joined_finds_out_before_it_decides_to_rename_directories(
    tmp_path: Path, no_flag: None
) -> None:
    table = tmp_path / "table"
    config = CommitterConfig(promote_directories=True)
    job = await committer.open_job(table, job_id="J", delivery="listing", config=config)
    async with job.task_attempt(0) as task:
        for name in ("a", "b", "c", "d", "e"):
            async with task.open(f"new/{name}") as file:
                await file.write(b"new")
    await job.close()
    # Its store has learnt nothing yet.
    async with committer.attach_job(table, job_id="J") as joined:
        report = await joined.commit(tasks=1)
    assert report.files_committed == 5
    assert len(visible(table)) == 5


def test_make_directories_ends_where_even_the_root_seems_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "lexists", lambda _path: False)
    with Held() as held:
        make_directories(held, str(tmp_path / "a" / "b"))
    monkeypatch.undo()
    assert (tmp_path / "a" / "b").is_dir()
