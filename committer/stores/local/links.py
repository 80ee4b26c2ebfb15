"""Renaming by a second name and the removal of the first, so that no step hits a file that another job put there."""

from __future__ import annotations

import errno
import os

from committer.errors import StoreOutcomeUnknownError
from committer.layout import TEMPORARY
from committer.stores.local import kernel_rename

_GONE = (FileNotFoundError, NotADirectoryError)


def private_directory(source: str, destination: str) -> str:
    """Which of the directories of two names is the job's own: the deeper one below `_temporary`; else the second."""
    first, second = os.path.dirname(source), os.path.dirname(destination)
    return first if _depth(first) > _depth(second) else second


def _depth(directory: str) -> int:
    names = directory.split("/")
    return len(names) - names.index(TEMPORARY) if TEMPORARY in names else 0


def drop_linked_name(linked: os.stat_result, source: str, destination: str, private: str) -> None:
    """Removes the first name of a file that was given a second one, unless what has it now is another file.

    Between the two steps this process may have stood still, another may have finished the rename, and another job may
    have put its file there. So the name is not unlinked: whatever has it moves to a name that nothing else uses, and is
    deleted only when it is the file that `destination` names too; else it moves back, replacing nothing. In a directory
    of a job that ended the move fails, and nothing happens.

    Args:
        linked: What the file was before it got its second name.
        source: The name that goes.
        destination: The name that stays.
        private: A name in the job's own directory, never used before.

    Raises:
        StoreOutcomeUnknownError: The second name was taken from the file, so it still has only the first; or another
            file was moved, and by then a third one had its name: it is kept.
    """
    if not _are_one(source, destination):
        _refuse_lost_name(linked, source, destination)
        return
    try:
        os.rename(source, private)
    except _GONE:
        # Finished by another driver of the job, or the job is over.
        return
    if _are_one(private, destination):
        os.unlink(private)
        return
    # On a disk that folds case, "A" still answers after it became "a": there the two were one name.
    one_name = source.casefold() == destination.casefold()
    back = destination if one_name else source
    try:
        _put_back(private, back)
    except FileExistsError as error:
        raise StoreOutcomeUnknownError(
            f"a file that was put at {source} meanwhile was moved to {private}, and another one stands there now",
            operation="rename_file",
            path=source,
            next_step=f"look at both, and move {private} where it belongs",
        ) from error
    if not one_name:
        _refuse_lost_name(linked, source, destination)


def _refuse_lost_name(linked: os.stat_result, source: str, destination: str) -> None:
    """A file that has only its first name was not renamed: a rollback, or another user, took the second one away."""
    if (found := _mark(source)) is not None and found == _mark_of(linked):
        raise StoreOutcomeUnknownError(
            f"the name {destination} that the file had got was taken away again; it stands at {source}",
            operation="rename_file",
            path=source,
        )


def _put_back(private: str, back: str) -> None:
    """Moves what was taken away back, replacing nothing."""
    try:
        kernel_rename.rename_no_replace(private, back)
    except OSError as error:
        if error.errno not in kernel_rename.NOT_OFFERED:
            raise
    else:
        return
    try:
        os.link(private, back, follow_symlinks=False)
    except PermissionError:
        # A directory, or a file of another user that may not be linked.
        if os.path.lexists(back):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), back) from None
        os.rename(private, back)
    else:
        os.unlink(private)


def _are_one(first: str, second: str) -> bool:
    mark = _mark(first)
    return mark is not None and mark == _mark(second)


def _mark(path: str) -> tuple[int, int, int] | None:
    """Tells one file from another; None where none is."""
    try:
        return _mark_of(os.lstat(path))
    except _GONE:
        return None


def _mark_of(found: os.stat_result) -> tuple[int, int, int]:
    # A number is used again once its file is gone: the times tell the two apart.
    return found.st_dev, found.st_ino, found.st_mtime_ns
