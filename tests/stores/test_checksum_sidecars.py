"""Java's ``.name.crc`` beside ``name``: never seen, never left behind to contradict a file."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from committer.errors import StoreExistsError, StoreIsADirectoryError, StoreOutcomeUnknownError, StorePermissionError
from committer.paths import StorePath
from committer.stores.helpers import walk
from committer.stores.local import LocalStore


@pytest.fixture
def root(tmp_path: Path) -> StorePath:
    return StorePath.of(tmp_path)


@pytest.fixture(params=["auto", "link"])
async def store(request: pytest.FixtureRequest, root: StorePath) -> AsyncIterator[LocalStore]:
    store = LocalStore.open_for(root, {"no_replace": request.param})
    yield store
    await store.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two files as Java writes them, and a checksum without its file."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
        (tmp_path / f".{name}.crc").write_bytes(b"crc\0")
    (tmp_path / ".gone.crc").write_bytes(b"crc\0")
    return tmp_path


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


async def test_listings_hide_them(store: LocalStore, root: StorePath, files: Path) -> None:
    (files / "no.crc").touch()
    (files / "link").symlink_to("a")
    (files / ".link.crc").touch()
    found = {status.path.name async for status in walk(store, root)}
    assert found == {"a", "b", "no.crc", "link", ".gone.crc"}


async def test_listings_show_what_is_no_checksum_of_anything(store: LocalStore, root: StorePath, files: Path) -> None:
    """Else a directory that is renamed, counted or replaced could hold what no listing shows."""
    (files / ".a.crc").unlink()
    (files / ".a.crc").mkdir()
    (files / ".b.crc").unlink()
    (files / ".b.crc").symlink_to("a")
    (files / "directory").mkdir()
    (files / ".directory.crc").touch()
    (files / ".crc").touch()
    found = {status.path.name async for status in walk(store, root)}
    assert found == {"a", ".a.crc", "b", ".b.crc", "directory", ".directory.crc", ".crc", ".gone.crc"}


@pytest.mark.parametrize(
    ("target", "left"),
    [("new", [".b.crc", ".gone.crc", "b", "new"]), ("gone", [".b.crc", "b", "gone"]), ("b", [".gone.crc", "b"])],
)
async def test_a_rename_drops_that_of_both_names(
    store: LocalStore, root: StorePath, files: Path, target: str, left: list[str]
) -> None:
    await store.rename_file(root / "a", root / target, replace=target == "b")
    assert names(files) == left


async def test_a_refused_rename_leaves_both(store: LocalStore, root: StorePath, files: Path) -> None:
    before = names(files)
    with pytest.raises(StoreExistsError):
        await store.rename_file(root / "a", root / "b")
    assert names(files) == before


async def test_put_drops_it(store: LocalStore, root: StorePath, files: Path) -> None:
    await store.put(root / "a", b"new")
    await store.put(root / "gone", b"new", exclusive=True)
    with pytest.raises(StoreExistsError):
        await store.put(root / "b", b"new", exclusive=True)
    assert names(files) == [".b.crc", "a", "b", "gone"]


async def test_open_link_and_delete_drop_it(store: LocalStore, root: StorePath, files: Path) -> None:
    await (await store.open_writer(root / "gone")).close()
    await store.delete_file(root / "a")
    await store.link_file(root / "b", root / "a")
    assert names(files) == [".b.crc", "a", "b", "gone"]


async def test_a_stale_one_is_gone_before_its_name_is_taken(
    store: LocalStore, root: StorePath, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a process that dies between the two leaves a file that Java cannot read."""

    seen: list[list[str]] = []

    def die(*_: object, **__: object) -> None:
        seen.append(names(files))
        raise OSError(errno.EIO, "died")

    monkeypatch.setattr(os, "rename", die)
    with pytest.raises(StoreOutcomeUnknownError):
        await store.rename_file(root / "a", root / "b", replace=True)
    assert seen == [[".a.crc", ".gone.crc", "a", "b"]]


async def test_a_writer_whose_stale_one_stays_creates_no_file(
    store: LocalStore, root: StorePath, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = names(files)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, "refused")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(StorePermissionError):
        await store.open_writer(root / "gone")
    assert names(files) == before


async def test_a_directory_takes_them_along(store: LocalStore, root: StorePath, files: Path, tmp_path: Path) -> None:
    if not store.capabilities.atomic_directory_rename:
        return
    (files / "d").mkdir()
    (files / "a").rename(files / "d" / "a")
    (files / ".a.crc").rename(files / "d" / ".a.crc")
    await store.rename_directory(root / "d", root / "e")
    assert names(files / "e") == [".a.crc", "a"]
    assert await store.delete_directory(root / "e", recursive=True)


async def test_a_directory_that_is_not_deleted_keeps_what_looks_like_one(
    store: LocalStore, root: StorePath, files: Path
) -> None:
    (files / "gone").mkdir()
    with pytest.raises(StoreIsADirectoryError):
        await store.delete_file(root / "gone")
    assert ".gone.crc" in names(files)


async def test_a_directory_that_looks_like_one_hinders_no_job(store: LocalStore, root: StorePath, files: Path) -> None:
    (files / ".new.crc").mkdir()
    await store.put(root / "new", b"1")
    await store.rename_file(root / "new", root / "newer")
    await store.rename_file(root / "newer", root / "new")
    assert (files / ".new.crc").is_dir()
    assert (files / "new").read_bytes() == b"1"
