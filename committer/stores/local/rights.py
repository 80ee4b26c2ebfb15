"""Operations that the system would refuse on a file or directory, derived from its stat result."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import shlex
import stat
import sys
from collections.abc import Container
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from committer.paths import StorePath
from committer.stores.base import Refusals

_CAP_FOWNER: Final = 3
# FS_IOC_GETFLAGS, FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h, on 64 bits.
_GET_ATTRIBUTES: Final = 0x80086601
_ATTRIBUTES: Final = ((0x10, "immutable", "i"), (0x20, "append-only", "a"))
_OWN_DIRECTORY: Final = stat.S_IWUSR | stat.S_IXUSR


def is_closed(path: str, found: os.stat_result) -> bool:
    """Whether this user may not create or delete entries of a directory."""
    return _is_closed(path, found, owned=found.st_uid == os.geteuid())


def refusals(
    path: str,
    found: os.stat_result,
    above: os.stat_result | None,
    *,
    links: bool,
    closed_above: bool = False,
    mounts: Container[bytes] | None = None,
) -> Refusals | None:
    """Returns the operations that the system would refuse on `path`; None if none is known.

    Costs nothing for files of this process's user, except in a directory without write permission. `found` and
    `above` are stat results of the path and its directory. `links`: moving a file here needs a hard link. `above`
    and `mounts`, the `mounted_in` of the directory, are looked up on demand if None.
    """
    is_directory = stat.S_ISDIR(found.st_mode)
    user = os.geteuid()
    owned = found.st_uid == user
    if owned and not is_directory:
        return Refusals(move=_CLOSED) if closed_above else None
    if above is None:
        try:
            above = os.stat(os.path.dirname(path))
        except OSError:
            return None
    mounted = is_directory and above.st_dev != found.st_dev
    if is_directory and not mounted:
        # A bind mount of the same volume has the same device number.
        directory, _, name = path.rpartition("/")
        mounted = _escaped(name) in (mounted_in(directory) if mounts is None else mounts)
    foreign = not owned and not _may_act_for_owners(user)
    sticky = foreign and above.st_mode & stat.S_ISVTX and above.st_uid != user
    linked = "" if not foreign or is_directory or _may_be_linked(path, found) else _PROTECTED
    # A directory's own entry for its parent changes with a move.
    closed = is_directory and not mounted and _is_closed(path, found, owned=owned)
    moved = (
        _MOUNTED if mounted else _STICKY if sticky else _CLOSED if closed_above or closed else linked if links else ""
    )
    if not (moved or linked or closed):
        return None
    return Refusals(move=moved, link=linked, enter=_MOUNTED if mounted else _CLOSED if closed else "", mounted=mounted)


def linked_elsewhere(
    path: str, found: os.stat_result, target: os.stat_result, refuses: Refusals | None
) -> Refusals | None:
    """Returns the operations that the system would refuse on a link; creates, too, if `target` is on another disk."""
    if found.st_dev == target.st_dev:
        return refuses
    why = f"it is a link to {os.path.realpath(path)}, which is on another disk"
    return msgspec.structs.replace(refuses or Refusals(), enter=why, mounted=True)


_MOUNTED: Final = "another volume is mounted there"
_STICKY: Final = "it is another user's, in a directory with the sticky bit"
_PROTECTED: Final = "it is another user's, and fs.protected_hardlinks forbids to link it"
_CLOSED: Final = "this user may not write there"


class Refusal(NamedTuple):
    """Cause of a refused call, as far as the disk shows it: path, reason and next step (empty if unknown)."""

    path: StorePath
    reason: str = ""
    next_step: str = ""


def protected(*paths: StorePath) -> Refusal | None:
    """Finds the first path that a chattr(1) attribute protects, its own or its directory's."""
    for path in paths:
        for place in (path.path, os.path.dirname(path.path)):
            for bit, attribute, flag in _ATTRIBUTES:
                if _attributes(place) & bit:
                    name = shlex.quote(place)
                    return Refusal(
                        path,
                        f"{place} is {attribute}",
                        f"let root run: chattr -{flag} {name} (lsattr -d {name} shows the attribute)",
                    )
    return None


def why_refused(number: int, *paths: StorePath) -> Refusal | None:
    """Finds which path of a call the system refused, by the rights of each and of its directory; None if unclear."""
    # An attribute of chattr gives EPERM, missing rights give EACCES.
    if number == errno.EPERM and (found := protected(*paths)) is not None:
        return found
    for path in paths:
        above = os.path.dirname(path.path)
        if not os.access(above, os.W_OK | os.X_OK):
            return Refusal(path, next_step=rights_to(above))
        with suppress(OSError):
            refused = refusals(path.path, os.lstat(path.path), None, links=False)
            if refused is not None and refused.move:
                return Refusal(path, refused.move, rights_to(path.path))
    return None


def rights_to(path: str) -> str:
    """Returns the advice on rights to a path, or to its nearest existing parent."""
    nearest = path
    while nearest != "/" and not os.path.lexists(nearest):
        nearest = nearest.rpartition("/")[0] or "/"
    return f"give the user of this process the right to {'it' if nearest == path else nearest}"


def _attributes(path: str) -> int:
    """Returns the chattr(1) attributes of a file or directory; 0 for other kinds, or if unreadable."""
    if sys.platform != "linux":
        return 0
    with suppress(OSError):
        if stat.S_IFMT(os.lstat(path).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return int.from_bytes(fcntl.ioctl(handle, _GET_ATTRIBUTES, bytes(8))[:4], sys.byteorder)
            finally:
                os.close(handle)
    return 0


def is_mount_point(path: str) -> bool:
    """Whether anything is mounted at a path, also a bind mount or a single file."""
    directory, _, name = path.rpartition("/")
    return os.path.ismount(path) or _escaped(name) in mounted_in(directory)


def mounted_in(directory: str) -> frozenset[bytes]:
    """Returns the names in a directory that are mount points, as the kernel escapes them."""
    try:
        place = _escaped(os.path.realpath(directory or "/")).rstrip(b"/")
        with open("/proc/self/mountinfo", "rb") as mounts:
            found = [line.split(b" ", 5)[4].rpartition(b"/") for line in mounts]
        return frozenset(name for above, _, name in found if above == place)
    except (OSError, IndexError, ValueError):
        return frozenset()


def mounted_at(path: str) -> tuple[str, str]:
    """Returns type and source of the file system of a path; empty if unknown."""
    place, best = os.fsencode(os.path.realpath(path)), b""
    found = ("", "")
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields, _, described = line.partition(b" - ")
                top = fields.split(b" ", 5)[4]
                if len(top) >= len(best) and (place + b"/").startswith(top.rstrip(b"/") + b"/"):
                    kind, source = described.split(b" ", 2)[:2]
                    best, found = top, (os.fsdecode(kind), os.fsdecode(source))
    except (OSError, IndexError, ValueError):
        return "", ""
    return found


def _escaped(path: str) -> bytes:
    text = os.fsencode(path)
    for character in (b"\\", b" ", b"\t", b"\n"):
        text = text.replace(character, b"\\%03o" % character[0])
    return text


def process_status(field: bytes) -> str | None:
    """Returns a field of /proc/self/status; None on other systems and kernels without it."""
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(field):
                return line.split()[1].decode()
    return None


@functools.lru_cache(maxsize=8)
def _may_act_for_owners(user: int) -> bool:
    """Whether a process of this user has the rights of files' owners (CAP_FOWNER)."""
    effective = process_status(b"CapEff:")
    return user == 0 if effective is None else bool(int(effective, 16) >> _CAP_FOWNER & 1)


@functools.cache
def _links_are_protected() -> bool:
    try:
        with open("/proc/sys/fs/protected_hardlinks", "rb") as setting:
            return setting.read().strip() == b"1"
    except OSError:
        return False


def _may_be_linked(path: str, found: os.stat_result) -> bool:
    """Applies the kernel's rule for another user's file: plain, readable and writable."""
    if not _links_are_protected():
        return True
    mode = found.st_mode
    special = mode & stat.S_ISUID or mode & (stat.S_ISGID | stat.S_IXGRP) == stat.S_ISGID | stat.S_IXGRP
    return stat.S_ISREG(mode) and not special and os.access(path, os.R_OK | os.W_OK)


def _is_closed(path: str, found: os.stat_result, *, owned: bool) -> bool:
    if (owned and found.st_mode & _OWN_DIRECTORY == _OWN_DIRECTORY) or os.access(path, os.W_OK | os.X_OK):
        return False
    if not hasattr(os, "O_TMPFILE"):
        return True
    # access(2) does not know every right of a process, so this tries a file without a name, which no process sees.
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}
    return False
