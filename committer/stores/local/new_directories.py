"""What a directory would have that this process makes on a local disk, and whether another one has just that."""

from __future__ import annotations

import os
import stat
import sys
from typing import Final, NamedTuple

from committer.stores.local.places import LISTED, Held

# Of a directory it says what made it, or where; the others that a directory can have are no two directories' by chance.
_LABELS: Final = frozenset({"security.selinux"})
_DEFAULT_ACCESS: Final = "system.posix_acl_default"


class Rights(NamedTuple):
    """Who owns a directory, and what others may do with it.

    Attributes:
        mode: Its permission bits, with setgid and the like.
        user: The owner's number.
        group: The group's.
    """

    mode: int
    user: int
    group: int


def rights_made_in(parent: str, umask: int) -> Rights | None:
    """What a directory has that this process makes in `parent`; None where the system decides by more than is seen.

    Args:
        parent: A directory; where a link leads to one, that.
        umask: This process's.
    """
    try:
        found = os.stat(parent)
        if not stat.S_ISDIR(found.st_mode) or _DEFAULT_ACCESS in os.listxattr(parent):
            return None
    except OSError:
        return None
    user, group, mode = os.geteuid(), os.getegid(), 0o777 & ~umask
    if found.st_mode & stat.S_ISGID:
        return Rights(mode | stat.S_ISGID, user, found.st_gid)
    # Some disks hand the group down without that bit, as they were mounted.
    return Rights(mode, user, group) if found.st_gid == group else None


def has_sole_rights(held: Held, path: str, expected: Rights) -> bool:
    """Whether a directory has these rights, no access list or attribute beside them, and no sidecar of a file in it."""
    try:
        place = held.place(path)
        handle = os.open(place.name, LISTED | os.O_NOFOLLOW, dir_fd=place.at)
    except OSError:
        return False
    try:
        found = os.fstat(handle)
        rights = Rights(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
        if rights != expected or not _LABELS.issuperset(os.listxattr(handle)):
            return False
        return not any(name[0] == "." and name[-4:].lower() == ".crc" for name in os.listdir(handle))
    except OSError:
        return False
    finally:
        os.close(handle)


def umask_of_process() -> int | None:
    """What this process takes away from the rights of what it makes; None where that cannot be asked for.

    Only Linux tells it without setting it, which would be seen by every thread of the process.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError, IndexError):
        pass
    return None
