"""Directories of the commit protocol, held open so that no link in the place of one leads a call elsewhere.

What begins with a working directory (`_temporary`) in a path belongs to jobs, and no link stands there by right. It may
have been put there, before a call or in the middle of one, by another user who can write into a job's directory. So
such a directory is opened without following links, and what lies in it is named relative to the open one. What comes
before in a path is the user's: a destination, or a partition, may be a link.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Self

from committer.errors import StoreLinkError
from committer.file_names import working_part
from committer.paths import StorePath
from committer.stores.local.kernel_rename import ENCODE_ERRORS, ENCODING

_PASSED: Final = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
LISTED: Final = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY

# openat2(2) has this number on every architecture, and no wrapper in the C libraries in use.
_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
_RESOLVE_NO_SYMLINKS: Final = 0x04


class Place(NamedTuple):
    """What the system is to be told of a path.

    Attributes:
        name: Relative to `at`.
        at: An open directory; None where `name` is the whole path.
        guarded: Whether it is a job's, so that a link there is never followed.
    """

    name: str
    at: int | None
    guarded: bool

    def look(self) -> os.stat_result:
        """What the system says of it, a link not followed."""
        return os.lstat(self.name, dir_fd=self.at)


class Held:
    """The directories that one call, or one batch of them, holds open; a context manager that closes them.

    None is kept longer: a directory that another driver renames or deletes must be met under its new name, or not at
    all, by the next call.
    """

    __slots__ = ("_above", "_base", "_from_above", "_open")

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        # What many directories begin with, and what opens the rest of their way from there, where the kernel can.
        self._base = ""
        self._above = -1
        self._from_above: Callable[[int, str, int], int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        handles = [*self._open.values()]
        self._open.clear()
        if self._from_above is not None:
            handles.append(self._above)
            self._from_above = None
        while handles:
            # Nothing was written through them: what fails here says nothing of the calls that were made meanwhile.
            with suppress(OSError):
                while handles:
                    os.close(handles.pop())

    def begin_at(self, directories: Iterable[str]) -> None:
        """Walks what the ways to many directories have in common once, in place of once for each.

        Args:
            directories: What will be asked for.
        """
        ways = {*directories}
        from_above = _kernel_opens()
        if len(ways) < 2 or from_above is None or self._from_above is not None:
            return
        base = f"{os.path.commonpath((min(ways), max(ways)))}/"
        start = working_part(base)
        if start < 0:
            return
        # What is wrong with it is said of each directory below it, when that is asked for.
        with suppress(OSError, StoreLinkError):
            self._above = open_directory(base[:-1], start)
            self._base, self._from_above = base, from_above

    def place(self, path: str) -> Place:
        """How to name what is at a path; its parent is held from now on, where that is a job's.

        Raises:
            StoreLinkError: A directory on the way, from the first working directory on, is a link.
            FileNotFoundError: One is missing.
            NotADirectoryError: A file is there.
        """
        directory, _slash, name = path.rpartition("/")
        if directory not in self._open and not self._hold_from_above(directory):
            start = working_part(path)
            if start < 0 or len(directory) <= start:
                return Place(path, None, guarded=start >= 0)
            self._open[directory] = open_directory(directory, start)
        return Place(name, self._open[directory], guarded=True)

    def refuse_links(self, directory: str) -> None:
        """Looks once for a link on the way to a directory, where that is a job's.

        Raises:
            StoreLinkError: One is.
            FileNotFoundError: A directory is missing.
            NotADirectoryError: A file is there.
        """
        if directory in self._open:
            return
        if not self._hold_from_above(directory) and (start := working_part(directory)) >= 0:
            self._open[directory] = open_directory(directory, start)

    def left_in(self, directory: str, names: Collection[str]) -> list[str]:
        """Which of some names still stand in a directory that is held, wherever its name leads by now.

        Args:
            directory: As `refuse_links` was asked for it; one that is no job's is not looked at.
            names: Names in it.
        """
        handle = self._open.get(directory)
        if handle is None:
            return []
        if len(names) == 1:
            return [name for name in names if _stands_in(handle, name)]
        listed = os.open(".", LISTED, dir_fd=handle)
        try:
            with os.scandir(listed) as entries:
                return [entry.name for entry in entries if entry.name in names]
        finally:
            os.close(listed)

    def missing_in(self, directory: str, names: Collection[str]) -> list[str]:
        """Which of some names do not stand in a directory that is held; as `left_in`, by a look at each."""
        handle = self._open.get(directory)
        return [] if handle is None else [name for name in names if not _stands_in(handle, name)]

    def _hold_from_above(self, directory: str) -> bool:
        """Opens a directory below the common one; False where that did not work: its whole way tells why."""
        if self._from_above is None or not directory.startswith(self._base):
            return False
        handle = self._from_above(self._above, directory[len(self._base) :], _PASSED)
        if handle < 0:
            return False
        self._open[directory] = handle
        return True


def _stands_in(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except OSError:
        return False
    return True


def open_directory(path: str, free: int, flags: int = _PASSED) -> int:
    """Opens a directory on whose way no link is followed from some point on.

    Args:
        path: Absolute.
        free: How many of its characters may be reached through links; -1 for all.
        flags: `LISTED` where it is to be read or synced.

    Raises:
        StoreLinkError: A link is there, or was a moment ago.
    """
    if free < 0:
        return os.open(path, flags)
    base, rest = path[:free] or "/", path[free:].strip("/")
    if not rest:
        return os.open(base, flags)
    opened = _kernel_opens()
    if opened is None:
        return _walk(base, rest, flags)
    handle = opened(_AT_FDCWD, path, flags)
    if handle >= 0:
        return handle
    # Most often nothing on the whole way is a link. Where one leads to the destination, only what comes after counts.
    number = ctypes.get_errno()
    if number == errno.ELOOP:
        above = os.open(base, _PASSED)
        try:
            handle = opened(above, rest, flags)
            number = ctypes.get_errno()
            if handle >= 0:
                return handle
        finally:
            os.close(above)
    if number == errno.ELOOP:
        raise _link_on(base, rest)
    raise OSError(number, os.strerror(number), path)


def refuse_link(path: str) -> StoreLinkError:
    """What to raise for a link where a directory or a record of a job must be."""
    return StoreLinkError.at(StorePath("file", "", path))


def _walk(base: str, rest: str, flags: int) -> int:
    """What the kernel does in one call, where it does."""
    handle = os.open(base, _PASSED)
    segments = rest.split("/")
    for number, segment in enumerate(segments):
        above = handle
        try:
            last = number == len(segments) - 1
            handle = os.open(segment, (flags if last else _PASSED) | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            # Systems differ in which of the two they say of a link.
            if error.errno in {errno.ELOOP, errno.ENOTDIR} and _is_link(segment, above):
                raise refuse_link(_joined(base, segments[: number + 1])) from error
            raise
        finally:
            os.close(above)
    return handle


def _link_on(base: str, rest: str) -> StoreLinkError:
    segments = rest.split("/")
    for number in range(1, len(segments)):
        if _is_link(found := _joined(base, segments[:number]), None):
            return refuse_link(found)
    return refuse_link(_joined(base, segments))


def _joined(base: str, segments: list[str]) -> str:
    return "/".join([base if base != "/" else "", *segments])


def _is_link(name: str, at: int | None) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)
    except OSError:
        return False


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


# Their addresses are given to the kernel, so they live as long as the process.
_HOWS: Final = {flags: _How(flags, 0, _RESOLVE_NO_SYMLINKS) for flags in (_PASSED, LISTED)}


@functools.cache
def _kernel_opens() -> Callable[[int, str, int], int] | None:
    """The kernel's own way to open something without following any link; None where it has none.

    Tried out, because sandboxes refuse what they do not know with any error.
    """
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    size = ctypes.sizeof(_How)
    # A number is passed as it is; a pointer object is looked into at each call.
    hows = {flags: ctypes.addressof(how) for flags, how in _HOWS.items()}

    def opened(at: int, path: str, flags: int) -> int:
        while (handle := int(call(_OPENAT2, at, path.encode(ENCODING, ENCODE_ERRORS), hows[flags], size))) < 0:
            if ctypes.get_errno() != errno.EINTR:
                break
        return handle

    tried = opened(_AT_FDCWD, "/", _PASSED)
    if tried < 0:
        return None
    os.close(tried)
    return opened
