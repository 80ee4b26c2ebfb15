"""Deletes of whole trees on the local disk, and searches for links in them, by open directories."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from committer.errors import StoreCrossDeviceError, StoreNotEmptyError
from committer.paths import StorePath
from committer.stores.local.calls import LEADS_NOWHERE, WORTH_A_LISTING
from committer.stores.local.places import LISTED, Place

_DIRECTORY: Final = LISTED | os.O_NOFOLLOW
# Entries listed at a time.
_A_PART: Final = 10_000
_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_DELETE_ROUNDS: Final = 10
_CHANGED_MEANWHILE: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR})


def remove_tree(place: Place) -> None:
    """Deletes a directory and all below it; links themselves, not their targets.

    Entries are named relative to an open directory, so that no planted link leads elsewhere. A third of the cost of
    `shutil.rmtree` for empty directories, such as those of a published task attempt.

    Deletes nothing behind a mount point: raises `MountedBelowError`, or EBUSY for the directory itself. rmdir(2) and
    unlink(2) refuse one, a bind mount too, before they look into it, so each directory is first removed if it can
    be. A mount between that and its opening shows by its device.
    """
    # Depth first, without recursion; each level holds a directory open.
    levels: list[_Level] = []
    try:
        _remove_directory(levels, place.name, place.at)
        while levels:
            level = levels[-1]
            name = level.name
            try:
                if level.children:
                    name, is_directory = level.children.pop()
                    if is_directory:
                        _remove_directory(levels, name, level.handle)
                    else:
                        os.unlink(name, dir_fd=level.handle)
                elif level.more and level.list_some():
                    continue
                else:
                    levels.pop()
                    os.close(level.handle)
                    os.rmdir(name, dir_fd=levels[-1].handle if levels else place.at)
            except FileNotFoundError:
                # Deleted by another process that cleans up the same directory.
                continue
            except OSError as error:
                if error.errno != errno.EBUSY or not levels:
                    raise
                raise MountedBelowError(levels, name) from error
    finally:
        for level in levels:
            os.close(level.handle)


def delete_tree(path: StorePath, place: Place) -> bool:
    """Deletes a directory and all below it while other processes may change it; returns whether it existed.

    Raises `StoreCrossDeviceError` if a volume is mounted below it (entries met before are deleted), and
    `StoreNotEmptyError` if others keep adding to it.
    """
    for _ in range(_DELETE_ROUNDS):
        try:
            remove_tree(place)
        except FileNotFoundError:
            return True
        except MountedBelowError as error:
            mounted = f"{path.path}/{error.below}"
            raise StoreCrossDeviceError(
                "another volume, or a part of one, is mounted below it: nothing there was deleted",
                operation="delete_directory",
                path=StorePath(path.scheme, path.authority, mounted),
                outcome="partial",
                next_step=f"unmount {mounted}",
            ) from error
        except OSError as error:
            # Another process added an entry, or exchanged a directory and a file or link.
            if error.errno not in _CHANGED_MEANWHILE or _is_other(place):
                raise
        else:
            return True
    raise StoreNotEmptyError(
        "others keep adding to the directory", operation="delete_directory", path=path, outcome="partial"
    )


def _is_other(place: Place) -> bool:
    try:
        return not stat.S_ISDIR(place.look().st_mode)
    except FileNotFoundError:
        return False


class MountedBelowError(OSError):
    """Error of a mount point below a directory that is deleted; `below` is its relative path."""

    def __init__(self, levels: list[_Level], name: str) -> None:
        super().__init__(errno.EBUSY, os.strerror(errno.EBUSY))
        self.below: str = "/".join([*(level.name for level in levels[1:]), name])


@dataclass(slots=True)
class _Level:
    """Open directory that is being emptied: its remaining listed children, and whether there are `more`."""

    handle: int
    name: str
    device: int
    children: list[tuple[str, bool]] = field(default_factory=list)
    more: bool = False

    def list_some(self) -> bool:
        """Lists a part of the entries, which may be millions; returns whether there are any."""
        with os.scandir(self.handle) as entries:
            self.children = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _A_PART)]
        self.more = len(self.children) == _A_PART
        return bool(self.children)


def _remove_directory(levels: list[_Level], name: str, above: int | None) -> None:
    """Removes an empty directory; else opens it as the next level."""
    try:
        os.rmdir(name, dir_fd=above)
    except OSError as error:
        if error.errno not in _NOT_EMPTY:
            raise
    else:
        return
    handle = os.open(name, _DIRECTORY, dir_fd=above)
    try:
        level = _Level(handle, name, os.fstat(handle).st_dev)
        if levels and level.device != levels[0].device:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), name)
        level.list_some()
        levels.append(level)
    except BaseException:
        os.close(handle)
        raise


def first_link(root: int, directories: Iterable[str]) -> str | None:
    """Returns the first of some relative directories, or of their parents, that is a link; ignores missing ones."""
    children: dict[str, set[str]] = {}
    for directory in directories:
        name = directory
        while name:
            parent, _, child = name.rpartition("/")
            known = children.get(parent)
            if known is not None:
                # Its parents are known already.
                known.add(child)
                break
            children[parent] = {child}
            name = parent
    # Parents come before their children, so no look goes through a link.
    for parent in sorted(children):
        link = _link_among(root, parent, children[parent])
        if link is not None:
            return f"{parent}/{link}" if parent else link
    return None


def _link_among(root: int, parent: str, names: set[str]) -> str | None:
    try:
        if len(names) < WORTH_A_LISTING:
            above = f"{parent}/" if parent else ""
            return next((name for name in sorted(names) if _is_link(above + name, root)), None)
        handle = os.open(parent or ".", LISTED, dir_fd=root)
        try:
            with os.scandir(handle) as entries:
                links = [entry.name for entry in entries if entry.name in names and entry.is_symlink()]
            return min(links, default=None)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in LEADS_NOWHERE:
            return None
        raise


def _is_link(name: str, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)
    except OSError as error:
        if error.errno in LEADS_NOWHERE:
            return False
        raise
