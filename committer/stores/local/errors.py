"""Mapping of the operating system's errors to store errors."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from committer.advice import AND_RUN_IT_AGAIN, page
from committer.errors import (
    CommitterError,
    InvalidPathError,
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
from committer.stores.local.rights import Refusal, is_mount_point, mounted_at, rights_to, why_refused

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

_LOOKS: Final = frozenset({"status", "list", "read", "find_link", "made_alike"})
_MAKES: Final = frozenset({"put", "open_writer", "make_directory"})

_READ_ONLY: Final = "mount the file system for writing, or write elsewhere"
_OTHER_VOLUME: Final = (
    "a directory on the way there is mounted, or a link: unmount it, or replace the link by a directory, or make what "
    "it leads to the destination of a job of its own; then run the job again"
)
_NOT_OFFERED: Final = (
    UnsupportedError,
    "this file system, or a rule of this machine, does not allow it: {}",
    "write to another file system",
)
_FULL: Final = StoreError, "the disk is full: {}", f"free space{AND_RUN_IT_AGAIN}"

# Type, message and next step by number.
_SIMPLE: Final[dict[int, tuple[type[CommitterError], str, str]]] = {
    errno.EEXIST: (StoreExistsError, "something exists there already", ""),
    errno.EISDIR: (StoreIsADirectoryError, "a directory is there", ""),
    errno.ENOTDIR: (StoreNotADirectoryError, "a file exists where a directory must be", ""),
    errno.ENOTEMPTY: (StoreNotEmptyError, "the directory has children", ""),
    errno.EXDEV: (StoreCrossDeviceError, "a rename would leave its volume", _OTHER_VOLUME),
    errno.ENAMETOOLONG: (InvalidPathError, "a name or path is longer than this disk allows", "give a shorter name"),
    errno.ENOSYS: _NOT_OFFERED,
    errno.ENOTSUP: _NOT_OFFERED,
    errno.EOPNOTSUPP: _NOT_OFFERED,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
}
# These cannot be repeated from the start.
_HOLDS_A_HANDLE: Final = frozenset({"write", "close"})
_REFUSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EBUSY})
# Raised by the system before any effect.
_INVALID: Final = frozenset(
    {errno.EINVAL, errno.ELOOP, errno.EMLINK, errno.ETXTBSY, errno.EFBIG, errno.ENXIO, errno.EOVERFLOW, errno.EBADF}
)


def translate(
    error: OSError | ValueError, operation: str, path: StorePath, destination: StorePath | None = None
) -> CommitterError:
    """Converts an operating system error, or the ValueError of an invalid path. Blocks: looks at the disk."""
    if isinstance(error, ValueError):
        return InvalidPathError(
            "no file can have this name",
            operation=operation,
            path=ascii(str(path)),
            next_step="give a name without NUL that the file system's encoding holds",
        )
    number = error.errno or 0
    reason = os.strerror(number) if number else str(error)
    at = _concerned(number, path, destination)
    if number == errno.ENOENT:
        return _missing(operation, at, directory=at is destination or operation in _MAKES)
    if number == errno.ENOTDIR and destination is not None and at is path:
        return StoreNotFoundError("nothing is there", operation=operation, path=at)
    if number in _SIMPLE:
        kind, message, step = _SIMPLE[number]
        return kind(message.format(reason), operation=operation, path=at, next_step=step)
    if number in _REFUSED:
        why = Refusal(at, "", _READ_ONLY) if number == errno.EROFS else _refusal(number, path, destination)
        return StorePermissionError(
            f"the system refused: {reason}" + (f": {why.reason}" if why.reason else ""),
            operation=operation,
            path=why.path,
            next_step=why.next_step or rights_to(why.path.path),
        )
    if number == errno.EBUSY:
        mounted = next((one for one in (destination, path) if one is not None and is_mount_point(one.path)), None)
        if mounted is not None:
            return StoreCrossDeviceError(
                "another volume is mounted there",
                operation=operation,
                path=mounted,
                next_step=f"unmount {mounted.path}",
            )
    if number in _EXHAUSTED and operation not in _HOLDS_A_HANDLE:
        return StoreUnavailableError(f"the system is short of something: {reason}", operation=operation, path=at)
    if operation in _LOOKS or number in _INVALID or number in _EXHAUSTED:
        return StoreError(
            f"the system refused: {reason}",
            operation=operation,
            path=at,
            next_step="give the user of this process the right to it",
        )
    # After EIO, ESTALE, ETIMEDOUT, EINTR, ENOTCONN and the like the effect is unknown.
    return StoreOutcomeUnknownError(f"the disk failed: {reason}", operation=operation, path=at)


# By a part of the file system's type or source.
_INSTEAD: Final = (
    ("gcsfuse", "gs://BUCKET/PATH"),
    ("blobfuse", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
    ("s3fs", "s3://BUCKET/PATH"),
    ("mountpoint-s3", "s3://BUCKET/PATH"),
    ("goofys", "s3://BUCKET/PATH"),
)
_ANY: Final = "gs://…, abfss://… or s3://…"


def lacking(directory: StorePath, what: str) -> UnsupportedError:
    """Returns the error of a file system that lacks what every job needs."""
    kind, source = mounted_at(directory.path)
    instead = next((uri for name, uri in _INSTEAD if name in kind or name in source), _ANY)
    return UnsupportedError(
        f"the file system that is mounted here ({kind or 'of unknown kind'}) {what}",
        operation="probe",
        path=directory,
        next_step=f"where it shows a bucket or a container, give the URI of that in place of the path: {instead}; else "
        f"write to another file system ({page('stores/local.md')})",
    )


def _concerned(number: int, path: StorePath, destination: StorePath | None) -> StorePath:
    """Returns which of the two paths of a call an error is about. Blocks: looks at the disk."""
    if destination is None:
        return path
    if number in {errno.EEXIST, errno.EISDIR}:
        return destination
    if number == errno.ENOENT and os.path.isdir(os.path.dirname(destination.path)):
        # The source was missing, whatever another process has put there since.
        return path
    return destination if os.path.lexists(path.path) else path


def _refusal(number: int, path: StorePath, destination: StorePath | None) -> Refusal:
    if destination is None:
        return why_refused(number, path) or Refusal(path)
    unknown = Refusal(path, f"{path.path} cannot be renamed or linked to {destination.path}")
    return why_refused(number, path, destination) or unknown


def _missing(operation: str, path: StorePath, *, directory: bool) -> StoreNotFoundError:
    """Returns the error of a missing path, or with `directory` of a missing parent."""
    link = None
    if directory or operation == "list":
        # A created path is not followed itself; a listed one is.
        link = _dangling_link(path.path if directory else f"{path.path}/")
    what = "its directory is missing" if directory else "nothing is there"
    if link is None:
        return StoreNotFoundError(what, operation=operation, path=path)
    return StoreNotFoundError(
        f"{what}: {link[0]} is a link to {link[1]}, which does not exist",
        operation=operation,
        path=path,
        next_step="make what the link leads to, or remove the link",
    )


def _dangling_link(path: str) -> tuple[str, str] | None:
    """Returns the first broken link on the way to a path, and its target."""
    try:
        end = path.find("/", 1)
        while end > 0:
            above = path[:end]
            if os.path.islink(above) and not os.path.exists(above):
                return above, os.readlink(above)
            end = path.find("/", end + 1)
    except OSError:
        pass
    return None


def out_of_memory(operation: str, path: StorePath) -> StoreError:
    """Returns the error of a call during which memory ran out, perhaps after its system call."""
    kind: type[StoreError] = StoreUnavailableError if operation in _LOOKS else StoreOutcomeUnknownError
    return kind("the process ran out of memory", operation=operation, path=path)


def typed(method: Callable[Concatenate[D, StorePath, P], T]) -> Callable[Concatenate[D, StorePath, P], T]:
    """Decorates a method so that it raises store errors for the system's."""

    @functools.wraps(method)
    def call(self: D, path: StorePath, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, path, *args, **kwargs)
        except CommitterError as error:
            error.operation = error.operation or method.__name__
            raise
        except MemoryError as error:
            raise out_of_memory(method.__name__, path) from error
        except (OSError, ValueError) as error:
            destination = args[0] if args and isinstance(args[0], StorePath) else None
            raise translate(error, method.__name__, path, destination) from error

    return call
