"""System calls of the local store, with the rules of file systems and platforms.

Java's local file system keeps the checksum of ``name`` in ``.name.crc`` and refuses to read a file whose sidecar is
older; it reads a file without one unchecked. So this store removes the sidecar of a name before a file takes it, and
with the file. A file so named without a file beside it is no sidecar, and is listed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, Self, TypeAlias

from committer.file_names import working_part
from committer.paths import StorePath
from committer.stores.base import FileStatus, Refusals
from committer.stores.local import kernel_rename
from committer.stores.local.places import LISTED, Held, Place, open_directory, refuse_link
from committer.stores.local.rights import is_closed, linked_elsewhere, mounted_in, refusals

Buffer: TypeAlias = bytes | bytearray | memoryview
Page: TypeAlias = list[FileStatus]

PAGE: Final = 1000
WORTH_A_LISTING: Final = 4
"""Number of names in a directory from which a listing is cheaper than a look at each."""
LEADS_NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
GONE: Final = (FileNotFoundError, NotADirectoryError)


def write_all(handle: int, data: Buffer, offset: int) -> None:
    """Writes all of `data` at `offset`."""
    view = memoryview(data)
    while view:
        count = os.pwrite(handle, view, offset)
        view = view[count:]
        offset += count


class Entries:
    """Open directory that is read by the page. Links are followed, except to and in a job's directories."""

    def __init__(self, path: str) -> None:
        # The entries of `os.scandir` use this descriptor for their looks.
        self.handle: int = open_directory(path, working_part(path), LISTED)
        try:
            self._entries = os.scandir(self.handle)
        except BaseException:
            os.close(self.handle)
            raise

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the directory, once: its number may be another file's by now."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self._entries.close()
            os.close(handle)


def describe(path: StorePath, found: os.stat_result, place: Place, refuses: Refusals | None = None) -> FileStatus:
    """Converts a stat result to a status; looks where a link leads."""
    kind = found.st_mode
    if stat.S_ISDIR(kind):
        return FileStatus(path, True, 0, found.st_mtime, refuses=refuses)
    identity = identity_of(found)
    if stat.S_ISREG(kind):
        return FileStatus(path, False, found.st_size, found.st_mtime, identity, refuses=refuses)
    is_link = stat.S_ISLNK(kind)
    target = _directory_at_end(place) if is_link else None
    if target is not None:
        refuses = linked_elsewhere(path.path, found, target, refuses)
    leads_to_directory = target is not None
    return FileStatus(
        path, leads_to_directory, found.st_size, found.st_mtime, identity, is_link, not is_link, refuses=refuses
    )


def identity_of(found: os.stat_result) -> str:
    """Returns the identity that a rename keeps: inode number and modification time."""
    return f"{found.st_ino}:{found.st_mtime_ns}"


def _directory_at_end(place: Place) -> os.stat_result | None:
    """Returns the status of the directory that a link points to; None if it points to no directory."""
    try:
        found = os.stat(place.name, dir_fd=place.at)
    except OSError:
        # A broken link, a cycle, or no permission.
        return None
    return found if stat.S_ISDIR(found.st_mode) else None


def read_page(directory: StorePath, entries: Entries, *, links: bool) -> Page:
    """Reads up to `PAGE` children without sidecars; `links` as for `refusals`."""
    above = os.fstat(entries.handle)
    closed = is_closed(directory.path, above)
    prefix = directory.path if directory.path == "/" else f"{directory.path}/"
    scheme, authority, user = directory.scheme, directory.authority, os.geteuid()
    page: Page = []
    mounts: frozenset[bytes] | None = None
    for entry in entries:
        name = entry.name
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError as error:
            # Deleted meanwhile.
            if error.errno in LEADS_NOWHERE:
                continue
            raise
        if name.endswith(".crc") and name.startswith(".") and _is_sidecar(entries.handle, name, found.st_mode):
            continue
        path = StorePath(scheme, authority, prefix + name)
        if stat.S_ISREG(found.st_mode) and found.st_uid == user and not closed:
            # The usual case: no refusals.
            page.append(FileStatus(path, False, found.st_size, found.st_mtime, identity_of(found)))
        else:
            if mounts is None and stat.S_ISDIR(found.st_mode):
                mounts = mounted_in(directory.path)
            refuses = refusals(path.path, found, above, links=links, closed_above=closed, mounts=mounts)
            page.append(describe(path, found, Place(name, entries.handle, guarded=False), refuses))
        if len(page) == PAGE:
            break
    return page


def _is_sidecar(directory: int, name: str, kind: int) -> bool:
    """Whether the file that a sidecar's name belongs to exists."""
    if not stat.S_ISREG(kind):
        return False
    try:
        beside = os.lstat(name[1 : -len(".crc")], dir_fd=directory)
    except OSError:
        return False
    return not stat.S_ISDIR(beside.st_mode)


def make_one_directory(place: Place, path: str) -> bool:
    """Creates a directory; returns False if it exists. Refuses a link where only a job's own directory may be."""
    while True:
        try:
            os.mkdir(place.name, dir_fd=place.at)
        except FileExistsError:
            try:
                found = place.look().st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(found) and place.guarded:
                raise refuse_link(path) from None
            if stat.S_ISDIR(found) or (stat.S_ISLNK(found) and _directory_at_end(place)):
                return False
            raise
        return True


def read_all(handle: int, size: int, most: int) -> bytes:
    """Reads a file of about `size` bytes, at most `most`."""
    parts: list[bytes] = []
    got = 0
    while got < most:
        part = os.read(handle, min(most - got, max(size - got + 1, 65536)))
        if not part:
            break
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def sidecar(place: Place) -> Place:
    """Returns the place of a file's Java checksum."""
    directory, slash, name = place.name.rpartition("/")
    return Place(f"{directory}{slash}.{name}.crc", place.at, guarded=place.guarded)


def drop_sidecar(place: Place) -> None:
    """Deletes the sidecar of a file."""
    # A look costs half of a failing unlink, and hardly any file has a sidecar.
    stale = sidecar(place)
    if os.access(stale.name, os.F_OK, dir_fd=stale.at) and _directory_at_end(stale) is None:
        unlink(stale)


def drop_orphan(place: Place) -> None:
    """Deletes the sidecar of a name that does not exist."""
    stale = sidecar(place)
    if os.access(stale.name, os.F_OK, dir_fd=stale.at) and not stands(place) and _directory_at_end(stale) is None:
        unlink(stale)


def stands(place: Place) -> bool:
    """Whether a path exists, also as a broken link."""
    try:
        place.look()
    except OSError:
        return False
    return True


def may_hold_sidecars(directory: str, most: int) -> bool | None:
    """Whether a directory has an entry named as a sidecar; None if `most` entries do not tell."""
    try:
        with Entries(directory) as entries:
            for number, entry in enumerate(entries):
                name = entry.name
                if name[0] == "." and name[-4:].lower() == ".crc":
                    return True
                if number >= most:
                    return None
    except OSError:
        return None
    return False


def others_among(directory: str, names: Collection[str], most: int) -> dict[str, bool]:
    """Finds which of some names in a directory are no regular files; maps them to True for a directory.

    Lists at most `most` entries, then looks at each remaining name.
    """
    unseen = set(names)
    others: dict[str, bool] = {}
    if most:
        with suppress(OSError), Entries(directory) as entries:
            for entry in islice(entries, most):
                if entry.name in unseen:
                    unseen.discard(entry.name)
                    if not entry.is_file(follow_symlinks=False):
                        others[entry.name] = entry.is_dir(follow_symlinks=False)
    # Also finds names that the disk lists in another spelling.
    for name in unseen:
        with suppress(OSError):
            kind = os.lstat(f"{directory}/{name}").st_mode
            if not stat.S_ISREG(kind):
                others[name] = stat.S_ISDIR(kind)
    return others


def unlink(place: Place) -> bool:
    """Deletes a file or link; returns whether it existed."""
    try:
        os.unlink(place.name, dir_fd=place.at)
    except GONE:
        return False
    return True


def rename(source: Place, destination: Place) -> None:
    """Calls rename(2)."""
    os.rename(source.name, destination.name, src_dir_fd=source.at, dst_dir_fd=destination.at)


def flush(handle: int) -> None:
    """Forces written data to the disk."""
    if sys.platform == "darwin":
        import fcntl

        # fsync leaves data in the drive's cache on macOS; remote file systems offer nothing stronger.
        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}:
                raise
        else:
            return
    os.fsync(handle)


def flush_directory(path: str) -> None:
    """Forces a directory's entries to the disk."""
    handle = open_directory(path, working_part(path), LISTED)
    try:
        flush(handle)
    finally:
        os.close(handle)


def no_entry() -> FileNotFoundError:
    """Returns the system's error for a missing file."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def rename_no_replace(source: Place, destination: Place) -> None:
    """Renames a file; fails if the destination exists."""
    kernel_rename.rename_no_replace(source.name, destination.name, src_dir_fd=source.at, dst_dir_fd=destination.at)


def make_directories(held: Held, path: str) -> None:
    """Creates a directory with its parents; follows no link in a job's part of the path."""
    start = working_part(path)
    if start < 0:
        _make_missing(path)
        return
    _make_missing(path[:start] or "/")
    directory = path[:start]
    for segment in path[start + 1 :].split("/"):
        directory = f"{directory}/{segment}"
        make_one_directory(held.place(directory), directory)


def _make_missing(path: str) -> None:
    """Creates a directory with its parents, without recursion for each level as in `os.makedirs`."""
    missing: list[str] = []
    while path != "/" and not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    while missing:
        with suppress(FileExistsError):
            os.mkdir(missing.pop())


def open_file(place: Place, flags: int, path: StorePath) -> int:
    """Opens a file; follows no link in a job's directory."""
    try:
        return os.open(place.name, flags | (os.O_NOFOLLOW if place.guarded else 0), 0o666, dir_fd=place.at)
    except OSError as error:
        # Systems differ in the number for it.
        if error.errno in {errno.ELOOP, errno.EMLINK} and place.guarded and stat.S_ISLNK(place.look().st_mode):
            raise refuse_link(path.path) from error
        raise


def open_to_read(path: StorePath) -> int:
    """Opens a path of any kind without blocking."""
    with Held() as held:
        # Without O_NONBLOCK a named pipe would block the thread until a process writes.
        return open_file(held.place(path.path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, path)


def look_at_file(place: Place, path: StorePath) -> os.stat_result:
    """Returns the stat result of a file that was just written; refuses a link in its place."""
    found = place.look()
    if stat.S_ISLNK(found.st_mode):
        raise refuse_link(path.path)
    return found
