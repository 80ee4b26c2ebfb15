"""Directories of the commit protocol, held open so that a link in the place of one leads no call elsewhere.

A path's part from a working directory (`_temporary`) on belongs to jobs, and legitimately has no link. Another user
who can write to a job's directory may plant one, even during a call. So these directories are opened without
following links, and their entries are named relative to the open directory. The part before is the user's: a
destination or partition may be a link.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Self

from committer.errors import StoreLinkError
from committer.file_names import working_part
from committer.paths import StorePath
from committer.stores.local.kernel_rename import ENCODE_ERRORS, ENCODING

_PASSED: Final = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
LISTED: Final = os.O_DIRECTORY | os.O_CLOEXEC | os.O_RDONLY

# openat2(2) has this number on every architecture, and no wrapper in common C libraries.
_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
_RESOLVE_NO_SYMLINKS: Final = 0x04


class Place(NamedTuple):
    """Name of a path for a system call, relative to the open directory `at`; a guarded one may not be a link."""

    name: str
    at: int | None
    guarded: bool

    def look(self) -> os.stat_result:
        """Calls lstat(2)."""
        return os.lstat(self.name, dir_fd=self.at)


class Held:
    """Context manager of the directories that one call or batch holds open.

    None is kept longer: the next call must not reach a directory by its old name after another driver renamed it.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._open.values():
            # Nothing was written through it, so a failure to close means nothing.
            with suppress(OSError):
                os.close(handle)
        self._open.clear()

    def place(self, path: str) -> Place:
        """Returns the name of a path for system calls, and holds its parent open if that belongs to a job.

        Raises `StoreLinkError` for a link in the job's part of the path, FileNotFoundError, or NotADirectoryError.
        """
        directory, _slash, name = path.rpartition("/")
        if directory not in self._open:
            start = working_part(path)
            if start < 0 or len(directory) <= start:
                return Place(path, None, guarded=start >= 0)
            self._open[directory] = open_directory(directory, start)
        return Place(name, self._open[directory], guarded=True)

    def refuse_links(self, directory: str) -> None:
        """Refuses a link on the way to a job's directory, and holds it open; raises as `place`."""
        if directory not in self._open and (start := working_part(directory)) >= 0:
            self._open[directory] = open_directory(directory, start)


def open_directory(path: str, free: int, flags: int = _PASSED) -> int:
    """Opens a directory; a link after the first `free` characters of its path (-1: all) is a `StoreLinkError`."""
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
    # Usually no part of the path is a link. If the destination is, only the part after it counts.
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
        # Names the link.
        return _walk(base, rest, flags)
    raise OSError(number, os.strerror(number), path)


def refuse_link(path: str) -> StoreLinkError:
    """Returns the error of a link in the place of a job's directory or record."""
    return StoreLinkError.at(StorePath("file", "", path))


def _walk(base: str, rest: str, flags: int) -> int:
    """Opens a directory segment by segment, without openat2; the error of a link names it."""
    handle = os.open(base, _PASSED)
    segments = rest.split("/")
    for number, segment in enumerate(segments):
        above = handle
        try:
            last = number == len(segments) - 1
            handle = os.open(segment, (flags if last else _PASSED) | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            # Systems differ in which one they raise for a link.
            if error.errno in {errno.ELOOP, errno.ENOTDIR} and _is_link(segment, above):
                raise refuse_link(_joined(base, segments[: number + 1])) from error
            raise
        finally:
            os.close(above)
    return handle


def _joined(base: str, segments: list[str]) -> str:
    return "/".join([base if base != "/" else "", *segments])


def _is_link(name: str, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)
    except OSError:
        return False


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


# The kernel gets their addresses, so they must live as long as the process.
_HOWS: Final = {flags: _How(flags, 0, _RESOLVE_NO_SYMLINKS) for flags in (_PASSED, LISTED)}


@functools.cache
def _kernel_opens() -> Callable[[int, str, int], int] | None:
    """Returns a function that calls openat2(2) without following links; None if a trial fails, as in some sandboxes."""
    if not sys.platform.startswith("linux"):
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    size = ctypes.sizeof(_How)
    # A number is passed as it is; ctypes inspects a pointer object at each call.
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
