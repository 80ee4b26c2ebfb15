"""The system calls of the local store, with what each file system and platform needs around them.

Java's local file system keeps a checksum of ``name`` beside it in ``.name.crc`` and refuses to read a file whose
sidecar is older. So whatever puts a file under a name first removes the sidecar of what stood there, and whatever takes
a file away takes its sidecar too. A file without one is read unchecked. What has such a name but no file beside it is
listed like any other file: it is no sidecar of anything.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final, TypeAlias

from committer.paths import StorePath
from committer.stores.base import FileStatus

Buffer: TypeAlias = bytes | bytearray | memoryview
Page: TypeAlias = list[FileStatus]
Entries: TypeAlias = "os._ScandirIterator[str]"

PAGE: Final = 1000
WORTH_A_LISTING: Final = 4
"""Names in one directory from which on listing it costs less than a look at each."""
LEADS_NOWHERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
GONE: Final = (FileNotFoundError, NotADirectoryError)

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_all(handle: int, data: Buffer, offset: int) -> None:
    """Writes all of `data` at `offset`."""
    view = memoryview(data)
    while view:
        count = os.pwrite(handle, view, offset)
        view = view[count:]
        offset += count


def describe(path: StorePath, found: os.stat_result) -> FileStatus:
    """The status of a path, from what the system says of it, a link not followed; looks where a link leads."""
    kind = found.st_mode
    if stat.S_ISDIR(kind):
        return FileStatus(path, True, 0, found.st_mtime)
    identity = f"{found.st_ino}:{found.st_mtime_ns}"
    if stat.S_ISREG(kind):
        return FileStatus(path, False, found.st_size, found.st_mtime, identity)
    is_link = stat.S_ISLNK(kind)
    # isdir() says no for a link to nowhere, in a circle, or to where we may not look.
    leads_to_directory = is_link and os.path.isdir(path.path)
    return FileStatus(path, leads_to_directory, found.st_size, found.st_mtime, identity, is_link, not is_link)


def read_page(directory: StorePath, entries: Entries) -> Page:
    """Reads up to `PAGE` children, all but sidecars."""
    prefix = directory.path if directory.path == "/" else f"{directory.path}/"
    page: Page = []
    for entry in entries:
        name = entry.name
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError as error:
            # Deleted meanwhile.
            if error.errno in LEADS_NOWHERE:
                continue
            raise
        if name.endswith(".crc") and name.startswith(".") and _is_sidecar(prefix, name, found.st_mode):
            continue
        page.append(describe(StorePath(directory.scheme, directory.authority, prefix + name), found))
        if len(page) == PAGE:
            break
    return page


def _is_sidecar(prefix: str, name: str, kind: int) -> bool:
    """Whether a file named as a sidecar has the file that it belongs to beside it."""
    if not stat.S_ISREG(kind):
        return False
    try:
        return not stat.S_ISDIR(os.lstat(prefix + name[1 : -len(".crc")]).st_mode)
    except OSError:
        return False


def make_one_directory(path: str) -> bool:
    """Makes a directory; False when there is one."""
    while True:
        try:
            os.mkdir(path)
        except FileExistsError:
            if os.path.isdir(path):
                return False
            if os.path.lexists(path):
                raise
            # Removed between the two looks.
            continue
        return True


def read_all(handle: int, size: int, most: int) -> bytes:
    """Reads a file of about `size` bytes, but never more than `most`."""
    parts: list[bytes] = []
    got = 0
    while got < most:
        part = os.read(handle, min(most - got, max(size - got + 1, 65536)))
        if not part:
            break
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def sidecar(path: str) -> str:
    """The path of Java's checksum of a file."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.crc"


def drop_sidecar(path: str) -> None:
    """Deletes the sidecar of a file."""
    # Looking is half the price of a failing unlink, and hardly any file has a sidecar.
    stale = sidecar(path)
    if os.access(stale, os.F_OK) and not os.path.isdir(stale):
        unlink(stale)


def drop_orphan(path: str) -> None:
    """Deletes the sidecar of a name that nothing stands under; leaves that of what does."""
    stale = sidecar(path)
    if os.access(stale, os.F_OK) and not os.path.lexists(path) and not os.path.isdir(stale):
        unlink(stale)


def may_hold_sidecars(directory: str, most: int) -> bool | None:
    """Whether a directory holds anything named as a sidecar; None when `most` entries did not tell."""
    try:
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                name = entry.name
                if name[0] == "." and name[-4:].lower() == ".crc":
                    return True
                if number >= most:
                    return None
    except OSError:
        return None
    return False


def directories_among(directory: str, names: Collection[str], most: int) -> list[str]:
    """Which of some names in a directory are directories.

    Args:
        directory: Where they are.
        names: What to look for.
        most: Entries that are read before those not yet seen are looked at one by one.
    """
    unseen = set(names)
    found: list[str] = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in islice(entries, most):
            name = entry.name
            if name in unseen:
                if entry.is_dir(follow_symlinks=False):
                    found.append(name)
                unseen.discard(name)
    # Also what the disk lists under another spelling of its name.
    for name in unseen:
        with suppress(OSError):
            if stat.S_ISDIR(os.lstat(f"{directory}/{name}").st_mode):
                found.append(name)
    return found


def unlink(path: str) -> bool:
    """Deletes a file or a link; False when there is none."""
    try:
        os.unlink(path)
    except GONE:
        return False
    return True


def finish_rename(source: str, destination: str, found: os.stat_result) -> None:
    """Makes a replacing rename of a file with several names complete."""
    # rename(2) does nothing when both are names of one file. Whether the source still stands is no proof of that: on a
    # disk that folds case "A" still answers after it became "a". So it moves away first, and comes back in that case.
    aside = f"{os.path.dirname(source)}/.{found.st_ino}.{os.getpid()}.aside"
    try:
        left = os.lstat(source)
        if (left.st_ino, left.st_dev) != (found.st_ino, found.st_dev):
            return
        os.rename(source, aside)
    except FileNotFoundError:
        return
    if os.path.lexists(destination):
        os.unlink(aside)
    else:
        os.rename(aside, destination)


def remove_tree(path: str) -> None:
    """Deletes a directory and all below it, links themselves included.

    Everything is named relative to an open directory, so that no link put in the place of one leads elsewhere. A third
    of the cost of `shutil.rmtree` where directories are empty, which those of a published task attempt are.

    Raises:
        FileNotFoundError: The directory itself is gone.
    """
    handle = os.open(path, _DIRECTORY)
    try:
        _empty(handle)
    finally:
        os.close(handle)
    os.rmdir(path)


def _empty(handle: int) -> None:
    with os.scandir(handle) as entries:
        children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in children:
        # What is gone already was deleted by another that cleans the same directory.
        with suppress(FileNotFoundError):
            if is_directory:
                _remove_directory(name, handle)
            else:
                os.unlink(name, dir_fd=handle)


def _remove_directory(name: str, above: int) -> None:
    try:
        os.rmdir(name, dir_fd=above)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
    else:
        return
    handle = os.open(name, _DIRECTORY, dir_fd=above)
    try:
        _empty(handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=above)


def flush(handle: int) -> None:
    """Forces what was written to the disk."""
    if sys.platform == "darwin":
        import fcntl

        # fsync leaves the data in the drive's cache there; file systems of other machines know nothing stronger.
        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}:
                raise
        else:
            return
    os.fsync(handle)


def flush_directory(path: str) -> None:
    """Forces the entries of a directory to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flush(handle)
    finally:
        os.close(handle)


def no_entry() -> FileNotFoundError:
    """What the system raises where nothing is."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def first_link(prefix: str, directories: Iterable[str]) -> str | None:
    """The first of some relative directories, or of those above them, that is a link; None without any.

    Args:
        prefix: What they are relative to, with a slash at its end.
        directories: Relative names; what is not there is passed over.
    """
    children: dict[str, set[str]] = {}
    for directory in directories:
        name = directory
        while name:
            parent, _, child = name.rpartition("/")
            known = children.setdefault(parent, set())
            if child in known:
                break
            known.add(child)
            name = parent
    # In this order a parent comes before what lies below it, so nothing is looked at through a link.
    for parent in sorted(children):
        link = _link_among(f"{prefix}{parent}", children[parent])
        if link is not None:
            return f"{parent}/{link}" if parent else link
    return None


def _link_among(parent: str, names: set[str]) -> str | None:
    try:
        if len(names) < WORTH_A_LISTING:
            return next((name for name in sorted(names) if _is_link(f"{parent}/{name}")), None)
        with os.scandir(parent) as entries:
            return min((entry.name for entry in entries if entry.name in names and entry.is_symlink()), default=None)
    except OSError as error:
        if error.errno in LEADS_NOWHERE:
            return None
        raise


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError as error:
        if error.errno in LEADS_NOWHERE:
            return False
        raise
