"""What only the local store does: hops, identities, links, durability, what the file system lacks."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import pickle
import resource
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    RecordError,
    StoreCrossDeviceError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.local import LocalStore, disk, kernel_rename
from committer.stores.local import renames as links
from committer.stores.local.errors import translate
from committer.stores.local.renames import drop_linked_name
from committer.testing._conformance_base import names_in

pytestmark = pytest.mark.every_loop


@pytest.fixture
def root(tmp_path: Path) -> StorePath:
    return StorePath.of(tmp_path)


@pytest.fixture
async def store() -> AsyncIterator[LocalStore]:
    store = LocalStore()
    yield store
    await store.close()


# --- Listings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", ["of the page", "cancelled"])
async def test_directory_is_closed_once_where_a_later_page_fails(
    failure: str, store: LocalStore, root: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second close fails, or closes the file that another thread opened meanwhile under that number.
    for number in range(1001):
        (tmp_path / f"{number}").touch()
    listing = store.list(root)
    await anext(listing)
    read, begun = disk.read_page, threading.Event()

    def read_page(*args: Any, **named: Any) -> Any:
        begun.set()
        time.sleep(0.05)
        if failure == "of the page":
            raise OSError(errno.EIO, "injected")
        return read(*args, **named)

    async def rest() -> list[FileStatus]:
        return [status async for status in listing]

    monkeypatch.setattr(disk, "read_page", read_page)
    reading = asyncio.ensure_future(rest())
    await asyncio.to_thread(begun.wait)
    if failure == "cancelled":
        reading.cancel()
    with pytest.raises(StoreError if failure == "of the page" else asyncio.CancelledError):
        await reading


# --- Hops ---------------------------------------------------------------------------------------------------------


async def test_renames_share_hops(store: LocalStore, root: StorePath, tmp_path: Path, hops: list[object]) -> None:
    for number in range(1000):
        (tmp_path / f"from-{number}").touch()
    numbers = iter(range(1000))

    async def work() -> None:
        for number in numbers:
            await store.rename_file(root / f"from-{number}", root / f"to-{number}")

    await asyncio.gather(*(work() for _ in range(100)))
    assert sorted(os.listdir(tmp_path)) == sorted(f"to-{number}" for number in range(1000))
    assert len(hops) <= 40, "a hop a file would be 1000"


async def test_small_files_take_two_hops_and_puts_one(store: LocalStore, root: StorePath, hops: list[object]) -> None:
    writer = await store.open_writer(root / "file")
    for _ in range(1000):
        await writer.write(b"x" * 100)
    await writer.close()
    assert len(hops) == 2
    await store.put(root / "other", b"x" * 100_000)
    assert len(hops) == 3


async def test_a_large_file_takes_a_hop_a_megabyte(store: LocalStore, root: StorePath, hops: list[object]) -> None:
    writer = await store.open_writer(root / "file")
    for _ in range(1000):
        await writer.write(b"x" * 10_000)
    assert (await writer.close()).size == 10_000_000
    assert len(hops) <= 12


async def test_a_thousand_entries_take_a_hop(
    store: LocalStore, root: StorePath, tmp_path: Path, hops: list[object]
) -> None:
    for number in range(2500):
        (tmp_path / f"{number}").touch()
    assert len(await names_in(store, root)) == 2500
    assert len(hops) == 3


# --- Identity, names and what is found ----------------------------------------------------------------------------


async def test_identity_is_inode_and_time(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    writer = await store.open_writer(root / "file")
    await writer.write(b"123")
    status = await writer.close()
    found = os.stat(tmp_path / "file")
    assert status.identity == f"{found.st_ino}:{found.st_mtime_ns}"
    assert status.modified == found.st_mtime
    os.utime(tmp_path / "file", ns=(0, found.st_mtime_ns + 1))
    assert (await store.status(root / "file")).identity != status.identity


async def test_pipes_and_sockets_are_seen_for_what_they_are(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "to-file").symlink_to("file")
    found = {
        status.path.name: (status.is_special, status.is_link, status.is_directory) async for status in store.list(root)
    }
    link = (False, True, False)
    assert found == {"pipe": (True, False, False), "to-pipe": link, "file": (False, False, False), "to-file": link}
    assert (await store.status(root / "pipe")).is_special
    assert await store.read(root / "to-file", limit=10) == b"12345"
    await store.put(root / "to-file", b"2")
    assert ((tmp_path / "to-file").is_symlink(), (tmp_path / "file").read_bytes()) == (False, b"12345")


async def test_pipes_and_devices_are_not_read(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "nothing").symlink_to("/dev/null")
    # One that a process writes to, and one that none does.
    with open(os.open(tmp_path / "pipe", os.O_RDWR), "wb", buffering=0) as writer:
        writer.write(b"not for this reader")
        for name in ("pipe", "zeros", "nothing"):
            with pytest.raises(RecordError, match="the path is a pipe, a socket or a device"):
                await store.read(root / name, limit=100)
    with pytest.raises(RecordError, match="a pipe"):
        await store.read(root / "pipe", limit=100)


async def test_a_file_that_is_too_long_is_not_read(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match="longer than the 67108863 bytes"):
            await store.read(root / "sparse", limit=(64 << 20) - 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


async def test_names_that_are_no_text(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb") as file:
        file.write(b"1")
    [status] = [status async for status in store.list(root)]
    assert await store.read(status.path, limit=10) == b"1"
    with pytest.raises(InvalidPathError):
        _ = status.path.uri
    assert await store.delete_file(status.path)
    with pytest.raises(InvalidPathError):
        await store.put(StorePath("file", "", f"{root.path}/\ud800"), b"")


async def test_paths_of_other_stores_are_refused(store: LocalStore) -> None:
    for path in ("memory://space/file", "file://host/file"):
        with pytest.raises(ConfigurationError):
            await store.status(StorePath.of(path))


def test_options_that_cannot_be() -> None:
    for options in ({"threads": 0}, {"threads": "4"}, {"no_replace": "hope"}, {"case_folding": "no"}):
        with pytest.raises(ConfigurationError):
            LocalStore.open_for(StorePath.of("/"), options)
    with pytest.raises(ConfigurationError, match="did you mean 'threads'"):
        LocalStore.open_for(StorePath.of("/"), {"thread": 1})


async def test_a_pickle_holds_options_only(store: LocalStore, root: StorePath) -> None:
    fresh = pickle.dumps(LocalStore())
    writer = await store.open_writer(root / "file")
    assert pickle.dumps(store) == fresh
    await writer.abort()
    copy = pickle.loads(pickle.dumps(LocalStore(threads=2, no_replace="link", case_folding=True)))
    assert copy.capabilities.case_folding
    assert not copy.capabilities.atomic_directory_rename


# --- Renames without the kernel's help ----------------------------------------------------------------------------


@pytest.fixture
def no_flag(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A file system that does not know the flag, as NFS; gives the sources it was asked to rename with it."""
    asked: list[str] = []

    def refuse(source: str, destination: str, **_at: int | None) -> None:
        asked.append(source)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), source, None, destination)

    monkeypatch.setattr(kernel_rename, "rename_no_replace", refuse)
    return asked


async def test_a_missing_flag_is_found_out_once(
    store: LocalStore, root: StorePath, tmp_path: Path, no_flag: list[str]
) -> None:
    assert store.capabilities.atomic_directory_rename
    await store.put(root / "a", b"1", exclusive=True)
    assert not store.capabilities.atomic_directory_rename
    await store.rename_file(root / "a", root / "b")
    with pytest.raises(StoreExistsError):
        await store.put(root / "b", b"2", exclusive=True)
    assert len(no_flag) == 1
    assert os.stat(tmp_path / "b").st_nlink == 1


async def test_probe_finds_a_missing_flag(
    store: LocalStore, root: StorePath, tmp_path: Path, no_flag: list[str]
) -> None:
    await store.probe(root)
    assert (store.capabilities.atomic_directory_rename, store.capabilities.hard_links) == (False, True)
    (tmp_path / "d").mkdir()
    with pytest.raises(UnsupportedError):
        await store.rename_directory(root / "d", root / "e")
    assert os.listdir(tmp_path) == ["d"]


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


async def test_probe_refuses_without_flag_and_links(
    store: LocalStore, root: StorePath, tmp_path: Path, no_links: None, request: pytest.FixtureRequest
) -> None:
    await store.probe(root)
    assert (store.capabilities.atomic_directory_rename, store.capabilities.hard_links) == (True, False)
    request.getfixturevalue("no_flag")
    with pytest.raises(UnsupportedError):
        await store.probe(root)
    with pytest.raises(UnsupportedError) as caught:
        await store.put(root / "file", b"", exclusive=True)
    assert caught.value.operation == "put"
    assert os.listdir(tmp_path) == []


async def test_probe_refuses_what_changes_identities(
    store: LocalStore, root: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = kernel_rename.rename_no_replace

    def touching(source: str, destination: str, **at: int | None) -> None:
        rename(source, destination, **at)
        os.utime(destination, ns=(1, 1), dir_fd=at["dst_dir_fd"])

    monkeypatch.setattr(kernel_rename, "rename_no_replace", touching)
    with pytest.raises(UnsupportedError, match="inode number or time"):
        await store.probe(root)
    assert os.listdir(tmp_path) == []


async def test_probe_refuses_what_replaces_silently(
    store: LocalStore, root: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_rename, "rename_no_replace", os.rename)
    with pytest.raises(UnsupportedError, match="told not to"):
        await store.probe(root)
    assert os.listdir(tmp_path) == []


async def test_a_rename_that_died_half_way(root: StorePath, tmp_path: Path) -> None:
    """Linked, not yet unlinked: one file under two names, finished by deleting the source."""
    store = LocalStore(no_replace="link")
    (tmp_path / "from").write_bytes(b"1")
    os.link(tmp_path / "from", tmp_path / "to")
    assert (await store.status(root / "from")).identity == (await store.status(root / "to")).identity
    with pytest.raises(StoreExistsError):
        await store.rename_file(root / "from", root / "to")
    await store.rename_file(root / "from", root / "to", replace=True)
    assert os.listdir(tmp_path) == ["to"]
    await store.close()


def test_a_name_that_folds_into_itself_is_not_lost(tmp_path: Path) -> None:
    """On a disk that folds case, ``A`` still answers after it became ``a``: here the two names are one."""
    (tmp_path / "file").write_bytes(b"1")
    os.link(tmp_path / "file", tmp_path / "aside")
    path = str(tmp_path / "file")
    drop_linked_name(os.lstat(path), path, path, str(tmp_path / "private"))
    assert sorted(os.listdir(tmp_path)) == ["aside", "file"]


@pytest.mark.parametrize("call", ["lstat", "rename"])
async def test_second_name_that_is_taken_away_is_no_rename(
    root: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Between its two steps another user, or a rollback, may move the file away from the name it got."""
    (tmp_path / "old").write_bytes(b"1")

    def intrude(*args: Any, **options: Any) -> Any:
        if Path(args[0]) == tmp_path / "old" and (tmp_path / "new").exists():
            (tmp_path / "new").rename(tmp_path / "hidden")
            (tmp_path / "new").symlink_to("/nowhere")
        return real(*args, **options)

    real = getattr(os, call)
    store = LocalStore(no_replace="link")
    monkeypatch.setattr(links.os, call, intrude)
    with pytest.raises(StoreOutcomeUnknownError, match="taken away"):
        await store.rename_file(root / "old", root / "new")
    assert (tmp_path / "old").read_bytes() == b"1"
    await store.close()


# --- Failing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_disk() -> Iterator[Path]:
    path = Path("/dev/shm")
    if not path.is_dir() or not os.access(path, os.W_OK):
        pytest.skip("no second file system to write to at /dev/shm")
    directory = path / f"committer-test-{os.getpid()}"
    directory.mkdir()
    yield directory
    for name in sorted(directory.rglob("*"), reverse=True):
        name.rmdir() if name.is_dir() else name.unlink()
    directory.rmdir()


@pytest.mark.parametrize("no_replace", ["auto", "link"])
async def test_renames_stay_on_their_disk(root: StorePath, tmp_path: Path, other_disk: Path, no_replace: str) -> None:
    if os.stat(tmp_path).st_dev == os.stat(other_disk).st_dev:
        pytest.skip("the temporary directory is on /dev/shm itself")
    store = LocalStore.open_for(root, {"no_replace": no_replace})
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_bytes(b"1")
    there = StorePath.of(other_disk)
    for replace in (False, True):
        with pytest.raises(StoreCrossDeviceError):
            await store.rename_file(root / "d/file", there / "file", replace=replace)
    with pytest.raises(StoreCrossDeviceError):
        await store.link_file(root / "d/file", there / "file")
    with pytest.raises(StoreCrossDeviceError if no_replace == "auto" else UnsupportedError):
        await store.rename_directory(root / "d", there / "d")
    with pytest.raises(StoreCrossDeviceError):
        await store.put(there / "file", b"2", temporary=root / "temporary")
    assert sorted(os.listdir(tmp_path)) == ["d"]
    assert os.listdir(other_disk) == []
    await store.close()


@pytest.fixture
def small_files_only() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_put_that_fails_leaves_what_was(
    store: LocalStore, root: StorePath, tmp_path: Path, small_files_only: None
) -> None:
    await store.put(root / "file", b"old")
    for exclusive in (False, True):
        with pytest.raises(StoreError) as caught:
            await store.put(root / "file", b"x" * (2 << 20), exclusive=exclusive)
        assert caught.value.outcome == "unchanged"
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


async def test_a_writer_that_failed_never_closes_well(
    store: LocalStore, root: StorePath, tmp_path: Path, small_files_only: None
) -> None:
    writer = await store.open_writer(root / "file")
    with pytest.raises(StoreError):
        await writer.write(b"x" * (2 << 20))
    with pytest.raises(CommitterError):
        await writer.write(b"x")
    with pytest.raises(CommitterError):
        await writer.close()
    await writer.abort()
    assert os.listdir(tmp_path) == []


async def test_a_close_that_failed_can_be_aborted(
    store: LocalStore, root: StorePath, tmp_path: Path, small_files_only: None
) -> None:
    writer = await store.open_writer(root / "file")
    await writer.write(b"x" * (1 << 20))
    await writer.write(b"x" * 1000)
    with pytest.raises(StoreError):
        await writer.close()
    await writer.abort()
    assert os.listdir(tmp_path) == []


async def test_a_file_that_is_deleted_while_written(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    writer = await store.open_writer(root / "file")
    (tmp_path / "file").unlink()
    with pytest.raises(StoreNotFoundError):
        await writer.close()
    await writer.abort()


async def test_cancelled_opens_leave_no_file_and_no_descriptor(
    store: LocalStore, root: StorePath, tmp_path: Path
) -> None:
    await store.put(root / "warm-up", b"")
    before = len(os.listdir("/dev/fd"))
    for turns in range(6):
        task = asyncio.ensure_future(store.open_writer(root / f"file-{turns}"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            await asyncio.wait([task])
            assert task.cancelled()
        else:
            await (await task).abort()
    assert os.listdir(tmp_path) == ["warm-up"]
    assert len(os.listdir("/dev/fd")) == before


async def test_close_lets_go_of_abandoned_files(store: LocalStore, root: StorePath, tmp_path: Path) -> None:
    await store.put(root / "warm-up", b"")
    await store.close()
    before = len(os.listdir("/dev/fd"))
    writers = [await store.open_writer(root / f"{number}") for number in range(5)]
    await writers[0].write(b"x" * (1 << 20))
    await store.close()
    assert len(os.listdir("/dev/fd")) == before
    assert len(os.listdir(tmp_path)) == 6
    with pytest.raises(CommitterError):
        await writers[0].close()


MEANT: dict[int, type[CommitterError]] = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), StorePermissionError),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EBUSY), StoreUnavailableError),
    **dict.fromkeys((errno.ENOTSUP, errno.ENOSYS), UnsupportedError),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ELOOP, errno.EMLINK, errno.ETXTBSY), StoreError),
    **dict.fromkeys((errno.EINVAL, errno.ENXIO, errno.EOVERFLOW, errno.EBADF), StoreError),
    errno.EEXIST: StoreExistsError,
    errno.EISDIR: StoreIsADirectoryError,
    errno.EXDEV: StoreCrossDeviceError,
    errno.ENAMETOOLONG: InvalidPathError,
    errno.ENOENT: StoreNotFoundError,
    errno.ENOTDIR: StoreNotADirectoryError,
    errno.ENOTEMPTY: StoreNotEmptyError,
}


@pytest.mark.parametrize("number", sorted(errno.errorcode), ids=errno.errorcode.get)
def test_what_the_systems_errors_mean(number: int, root: StorePath) -> None:
    """Only an error that comes before any effect may say that nothing was done; what only looks does nothing ever."""
    error = translate(OSError(number, os.strerror(number)), "rename_file", root, root / "destination")
    assert type(error) is MEANT.get(number, StoreOutcomeUnknownError)
    assert (error.operation, error.outcome) == ("rename_file", "unchanged" if number in MEANT else "unknown")
    for look in ("status", "list", "read", "find_link"):
        looked = translate(OSError(number, os.strerror(number)), look, root)
        assert (looked.outcome, isinstance(looked, StoreOutcomeUnknownError)) == ("unchanged", False)


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOSYS, errno.ENOTSUP])
async def test_a_mount_without_links_and_exclusive_renames_is_named_with_what_to_use(
    root: StorePath, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    """As gcsfuse, blobfuse and rclone answer."""

    def refuse(*_names: object, **_more: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    def unknown(*_names: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(kernel_rename, "_rename", unknown)
    with pytest.raises(UnsupportedError, match="neither hard links nor a rename that replaces nothing") as caught:
        await committer.open_job(root)
    assert "give the URI of that in place of the path" in caught.value.next_step
    assert caught.value.outcome == "unchanged"
    assert not os.path.exists(os.path.join(root.path, "_temporary"))


async def test_a_directory_is_not_moved_into_itself_by_way_of_a_link(
    store: LocalStore, root: StorePath, tmp_path: Path
) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "link").symlink_to("d/e")
    with pytest.raises(InvalidPathError):
        await store.rename_directory(root / "d", root / "link/below")
    assert store.capabilities.atomic_directory_rename, "it was no sign of a missing ability"
    with pytest.raises(StoreNotADirectoryError):
        await store.rename_directory(root / "link", root / "moved")


# --- Durability ---------------------------------------------------------------------------------------------------


async def test_what_is_forced_to_the_disk_and_when(
    store: LocalStore, root: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename, exclusive = os.fsync, os.rename, kernel_rename.rename_no_replace

    def traced_fsync(handle: int) -> None:
        done.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{handle}'))}")
        fsync(handle)

    def traced_rename(source: str, destination: str, **at: int | None) -> None:
        done.append("rename")
        rename(source, destination, **at)

    def traced_exclusive(source: str, destination: str, **at: int | None) -> None:
        done.append("rename")
        exclusive(source, destination, **at)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "rename", traced_rename)
    monkeypatch.setattr(kernel_rename, "rename_no_replace", traced_exclusive)
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc to tell descriptors apart")
    for exclusively in (False, True):
        done.clear()
        path = root / f"file-{exclusively}"
        await store.put(path, b"1", durable=True, exclusive=exclusively, temporary=root / "temporary")
        assert done == ["sync temporary", "rename", f"sync {tmp_path.name}"]
    done.clear()
    writer = await store.open_writer(root / "written", durable=True)
    await writer.write(b"1")
    await writer.close()
    assert done == ["sync written", f"sync {tmp_path.name}"]
    done.clear()
    await store.sync(root / "written", kind="file")
    await store.sync(root, kind="directory")
    assert done == ["sync written", f"sync {tmp_path.name}"]
    done.clear()
    await store.put(root / "fleeting", b"1")
    assert done == ["rename"]


def test_a_refusal_names_the_nearest_place_that_is_there(root: StorePath, tmp_path: Path) -> None:
    """An operator cannot give a right to a directory that could not be made."""
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    missing = translate(refused, "make_directory", root / "table" / "_temporary" / "j")
    assert missing.next_step == f"give the user of this process the right to {tmp_path}"
    assert translate(refused, "list", root).next_step == "give the user of this process the right to it"


def test_a_source_that_another_process_put_back_meanwhile_was_missing(root: StorePath, tmp_path: Path) -> None:
    """Jobs that end at the same moment move each other's `_SUCCESS` aside, each into a directory of its own."""
    (tmp_path / "source").touch()
    error = translate(FileNotFoundError(errno.ENOENT, "gone"), "rename_file", root / "source", root / "target")
    assert error.path == str(root / "source")
    error = translate(FileNotFoundError(errno.ENOENT, "gone"), "rename_file", root / "source", root / "no" / "target")
    assert error.path == str(root / "no" / "target")
