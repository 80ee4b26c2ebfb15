"""Directories of 520 levels are committed, replaced, rolled back, aborted and cleaned up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, StorePath
from committer.errors import CommitterError, StoreNotEmptyError
from committer.stores.helpers import exists, walk
from committer.stores.local import LocalStore
from committer.stores.local.places import Place
from committer.stores.local.trees import remove_tree
from committer.stores.memory import MemoryStore
from tests.job_paths import has_in_job, in_job

pytestmark = pytest.mark.allow_blocking("looks at the disk itself")

# As deep as made a function that calls itself for each level give up.
DEEP = "/".join(["d"] * 520)


def _remove(directory: Path) -> None:
    remove_tree(Place(str(directory), None, guarded=False))


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Emptied here: the one of pytest is emptied by recursion."""
    place = tmp_path / "p"
    place.mkdir()
    yield place
    _remove(place)


def _files(directory: Path) -> dict[str, bytes]:
    """What is visible below a directory, without the recursion of `os.walk`."""
    found: dict[str, bytes] = {}
    pending = [str(directory)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    pending.extend([entry.path] if entry.name != "_temporary" else [])
                elif not entry.name.startswith(("_", ".")):
                    found[os.path.relpath(entry.path, directory)] = Path(entry.path).read_bytes()
    return found


async def _write(destination: Path, job_id: str, name: str, config: CommitterConfig | None = None) -> None:
    async with (
        committer.open_job(destination, job_id=job_id, config=config) as job,
        job.task_attempt(0) as task,
        task.open(name) as file,
    ):
        await file.write(name.encode())


async def test_committed_validated_and_replaced(tmp_path: Path) -> None:
    destination = tmp_path / "o"
    await _write(destination, "A", f"{DEEP}/a")
    assert _files(destination) == {f"{DEEP}/a": f"{DEEP}/a".encode()}
    assert (await committer.validate(destination)).ok
    await _write(destination, "B", f"{DEEP}/b", CommitterConfig(conflict_mode="replace"))
    assert _files(destination) == {f"{DEEP}/b": f"{DEEP}/b".encode()}
    whole = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
    await _write(destination, "C", "c", whole)
    assert _files(destination) == {"c": b"c"}
    assert (await committer.validate(destination)).ok
    assert not (destination / "_temporary").exists()


@pytest.mark.slow
async def test_directory_at_a_file_is_replaced(tmp_path: Path) -> None:
    destination = tmp_path / "o"
    await _write(destination, "A", f"{DEEP}/a")
    await _write(destination, "B", "d", CommitterConfig(existing_target="replace"))
    assert _files(destination) == {"d": b"d"}
    assert not (destination / "_temporary").exists()


async def test_aborted(tmp_path: Path) -> None:
    destination = tmp_path / "o"
    with pytest.raises(RuntimeError):
        async with committer.open_job(destination, job_id="A") as job:
            async with job.task_attempt(0) as task, task.open(f"{DEEP}/a") as file:
                await file.write(b"x")
            raise RuntimeError
    assert not (destination / "_temporary").exists()


async def test_task_attempt_aborted(tmp_path: Path) -> None:
    async with committer.open_job(tmp_path / "o", job_id="A") as job:
        with pytest.raises(RuntimeError):
            async with job.task_attempt(0) as task, task.open(f"{DEEP}/a") as file:
                await file.write(b"x")
                raise RuntimeError
        assert list(in_job(tmp_path / "o", "A", "00/tasks").iterdir()) == []


async def test_cleaned_up_by_name(tmp_path: Path) -> None:
    job = await committer.open_job(tmp_path / "o", job_id="A")
    async with job.task_attempt(0) as task, task.open(f"{DEEP}/a") as file:
        await file.write(b"x")
    await job.close()
    assert (await committer.cleanup(tmp_path / "o", job_id="A")).removed == ["A"]
    assert not (tmp_path / "o/_temporary").exists()


async def test_rolled_back(tmp_path: Path) -> None:
    """The job finds an intruder at its second file once the first, deep one, is published."""
    destination = tmp_path / "o"
    await _write(destination, "A", "d/old")
    job = await committer.open_job(destination, job_id="B", config=CommitterConfig(promote_directories=False))
    async with job.task_attempt(0) as task:
        for name in (f"{DEEP}/a", "d/old2"):
            async with task.open(name) as file:
                await file.write(b"new")

    def intrude(event: object) -> None:
        if has_in_job(destination, "B", "decision"):
            (destination / "d/old2").write_bytes(b"another's")

    job.listen(intrude)
    with pytest.raises(CommitterError):
        await job.commit()
    await job.close()
    assert _files(destination) == {"d/old": b"d/old", "d/old2": b"another's"}
    assert not (destination / "_temporary").exists()


async def test_made_and_deleted_in_memory() -> None:
    store = MemoryStore.space("deep", "local").store()
    try:
        path = StorePath.of(f"memory://deep/{DEEP}")
        assert await store.make_directory(path, parents=True)
        assert len([status async for status in walk(store, StorePath.of("memory://deep/"))]) == 520
        assert await store.delete_directory(StorePath.of("memory://deep/d"), recursive=True)
    finally:
        MemoryStore.forget("deep")


async def test_missing_directories_are_made_on_a_disk(tmp_path: Path) -> None:
    store = LocalStore()
    path = StorePath.of(tmp_path / DEEP)
    assert await store.make_directory(path, parents=True)
    assert not await store.make_directory(path, parents=True)
    assert await store.delete_directory(StorePath.of(tmp_path / "d"), recursive=True)
    assert not await exists(store, StorePath.of(tmp_path / "d"))
    await store.close()


def test_tree_deeper_than_a_path_is_deleted(tmp_path: Path) -> None:
    """Made relative to one another: no path names the last level."""
    (tmp_path / "top/side").mkdir(parents=True)
    handle = os.open(tmp_path / "top", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("directory", dir_fd=handle)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        below = os.open("directory", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    _remove(tmp_path / "top")
    assert not (tmp_path / "top").exists()
    assert not before or len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(FileNotFoundError):
        _remove(tmp_path / "top")


@pytest.mark.parametrize("kind", ["deleted", "moved"])
def test_another_takes_a_directory_away_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A directory that is moved out of the tree stays; all else goes."""
    top = tmp_path / "top"
    for branch in ("a", "b", "c"):
        (top / branch / "x/y").mkdir(parents=True)
        (top / branch / "x/y/file").touch()
    real = os.scandir
    seen = 0

    def scandir(path: int) -> os._ScandirIterator[str]:  # type: ignore[name-defined]
        nonlocal seen
        seen += 1
        found = real(path)
        if seen == 4:
            inside = os.readlink(f"/proc/self/fd/{path}")
            assert inside.endswith("/x/y")
            if kind == "deleted":
                os.unlink(f"{inside}/file")
                os.rmdir(inside)
            else:
                os.rename(os.path.dirname(inside), tmp_path / "away")
        return found

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("tells an open directory's name by /proc")
    monkeypatch.setattr(os, "scandir", scandir)
    _remove(top)
    assert not top.exists()
    assert (tmp_path / "away").exists() == (kind == "moved")


async def test_what_is_added_all_the_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top").mkdir()
    real = os.rmdir

    def rmdir(path: str, *, dir_fd: int | None = None) -> None:
        (tmp_path / "top/more").touch()
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", rmdir)
    store = LocalStore()
    with pytest.raises(StoreNotEmptyError):
        await store.delete_directory(StorePath.of(tmp_path / "top"), recursive=True)
    await store.close()
