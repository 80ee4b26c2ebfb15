"""Mapping of the errors of NameNode and client to this library's errors.

The client (hdfs-native) raises Python's `FileNotFoundError`, `FileExistsError` and `OSError`; for all other errors
of the NameNode a `RuntimeError` whose text holds the Java class, its message and a stack trace, which is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Protocol

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    InvalidPathError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from committer.paths import StorePath

_REMOTE: Final = re.compile(r'RPCError\("([\w.$]+)", "(.*)', re.DOTALL)
_STACK: Final = re.compile(r"(\\n|\n)(\\t|\t)at .*", re.DOTALL)
# The request reached no serving NameNode: nothing was done.
_UNSENT: Final = ("Connection refused", "failed to lookup", "No route to host", "Network is unreachable")
# Servers of calls that also use DataNodes.
_SERVERS: Final = dict.fromkeys(("read", "write", "close"), "NameNode or DataNode")
_BUSY: Final = ("SafeModeException", "StandbyException", "RetriableException", "ObserverRetryOnActiveException")
_QUOTA: Final = "raise the quota (hdfs dfsadmin -setQuota, -setSpaceQuota), or delete what is not needed"
_SNAPSHOT: Final = "delete the snapshots that hold it (hdfs dfs -deleteSnapshot), or choose another directory"
_ZONE: Final = "a file cannot be renamed into or out of an encryption zone: the job's destination must lie in one whole"
_KEYS: Final = (
    "name the cluster's key server in core-site.xml of the configuration directory (hadoop.security.key.provider.path,"
    " kms://...), and see that it can be reached and gives this user the key of the zone"
)
_RIGHTS: Final = "give the user the right to do so (hdfs dfs -chmod, -chown, -setfacl), or run as another user"
_LOGIN: Final = "log in (kinit), and see that hadoop.security.authentication is the cluster's"
_SERVING: Final = (
    "wait until a NameNode is active (hdfs haadmin -getAllServiceState) and not in safe mode (hdfs dfsadmin -safemode"
    " get), then do it again"
)
_DATA_NODES: Final = "see that DataNodes are alive and have room (hdfs dfsadmin -report), then do it again"
_EXISTS: Final = "something exists there"
# Classes without a row below that are raised by checks, before any effect.
_REFUSING: Final = frozenset(
    {
        "AlreadyBeingCreatedException",
        "FileAlreadyExistsException",
        "HadoopIllegalArgumentException",
        "IOException",
        "IllegalArgumentException",
        "LeaseExpiredException",
        "RecoveryInProgressException",
        "UnresolvedPathException",
        "UnsupportedOperationException",
    }
)
_QUOTAS: Final = ("NSQuotaExceededException", "DSQuotaExceededException", "QuotaByStorageTypeExceededException")


def _not_serving(message: str, **told: Any) -> StoreUnavailableError:
    """Returns the error of a NameNode that will serve again, or that another one replaces."""
    error = StoreUnavailableError(message, **told)
    error.expected_back = True
    return error


# The path that the NameNode refused: a file, or its directory.
_REFUSED_AT: Final = re.compile(r'(?:inode|path)="([^"]*)"')

# Java classes or a part of the message; type, message and next step of the error. The first match counts.
_REFUSALS: Final[tuple[tuple[tuple[str, ...], str, Callable[..., CommitterError], str, str], ...]] = (
    (
        ("ParentNotDirectoryException",), "(is not a directory)",
        StoreNotADirectoryError, "a file exists at one of its parents", "",
    ),
    (("PathIsNotEmptyDirectoryException",), "", StoreNotEmptyError, "the directory is not empty", ""),
    ((), "is a directory or file under source", InvalidPathError, "a directory cannot be moved into itself", ""),
    (
        ("InvalidPathException", "PathComponentTooLongException"), "Pathname too long",
        InvalidPathError, "HDFS takes no such name: {}", "",
    ),
    (_BUSY, "", _not_serving, "the NameNode does not serve this now: {}", _SERVING),
    (
        ("AccessControlException", "AuthorizationException"), "",
        StorePermissionError, "the NameNode refuses this: {}", _RIGHTS,
    ),
    (_QUOTAS, "", StoreError, "a quota is used up: {}", _QUOTA),
    (
        ("NotReplicatedYetException",), "could only be written to 0 of",
        StoreUnavailableError, "the DataNodes do not keep up: {}", _DATA_NODES,
    ),
    (("SnapshotException",), "", StoreError, "a snapshot holds it: {}", _SNAPSHOT),
    ((), "encryption zone", StoreError, "{}", _ZONE),
)  # fmt: skip


def error_of(
    error: BaseException,
    operation: str,
    path: StorePath,
    *,
    source: StorePath | None = None,
    changes: bool = True,
    replaces: bool = False,
) -> CommitterError:
    """Maps an error of the client to a store error; `path` is the destination of a rename."""
    kind, text = _told_by(error)

    def made(
        what: Callable[..., CommitterError], message: str, at: StorePath | None = None, step: str = ""
    ) -> CommitterError:
        return what(message, operation=operation, path=at or path, next_step=step)

    if kind == "FileNotFoundError":
        return _missing(text, made, source)
    if kind == "FileExistsError":
        return made(StoreIsADirectoryError if replaces and "as a directory" in text else StoreExistsError, _EXISTS)
    if not kind.endswith("Exception") or kind == "PanicException":
        return _broken(text, made, changes=changes, server=_SERVERS.get(operation, "NameNode"))
    if "must both be directories" in text:
        return made(StoreIsADirectoryError if replaces else StoreExistsError, _EXISTS)
    if not changes and "(is not a directory)" in text:
        return made(StoreNotFoundError, "nothing is there: a file exists at one of its parents")
    for known, holds, what, message, step in _REFUSALS:
        if kind in known or (holds and holds in text):
            named = _REFUSED_AT.search(text) if source is not None else None
            at = source if named and source and named[1] in (source.path, source.parent.path) else None
            return made(what, message.format(text), at, step)
    if changes and kind not in _REFUSING:
        # A failure inside the NameNode, or of a router on the way to it.
        return made(StoreOutcomeUnknownError, f"it may have been done: {kind}: {text}", step=LOOK_BEFORE)
    return made(StoreError, f"the NameNode refuses this: {kind}: {text}")


def _told_by(error: BaseException) -> tuple[str, str]:
    """Returns the Java class without its package, or Python's, and the first line of the message."""
    remote = _REMOTE.search(str(error))
    if remote is not None:
        name = re.split(r"[.$]", remote[1])[-1]
        return name, _STACK.sub("", remote[2]).removesuffix('")').replace("\\n", " ").strip()
    return type(error).__name__, _STACK.sub("", str(error)).strip()


def _missing(text: str, made: _Maker, source: StorePath | None) -> CommitterError:
    if "Path is not a file" in text:
        return made(StoreIsADirectoryError, "a directory is there")
    if source is not None and "destination parent" not in text:
        return made(StoreNotFoundError, "nothing is there", source)
    parent = "destination parent" in text or "Parent directory" in text
    return made(StoreNotFoundError, "the parent is missing" if parent else "nothing is there")


def _broken(text: str, made: _Maker, *, changes: bool, server: str) -> CommitterError:
    if any(reason in text for reason in _UNSENT):
        return made(StoreUnavailableError, f"no {server} can be reached: {text}")
    if "GSSAPI" in text or "SASL" in text or "Kerberos" in text:
        return made(StorePermissionError, f"authentication failed: {text}", step=_LOGIN)
    if "KMS" in text:
        # The client asks for a key when it opens or creates a file: at most its name exists by then.
        return made(StoreError, f"the file's key was not to be had: {text}", step=_KEYS)
    if not changes:
        return made(StoreUnavailableError, f"the connection broke: {text}")
    return made(StoreOutcomeUnknownError, f"the connection broke, and it may have been done: {text}", step=LOOK_BEFORE)


class _Maker(Protocol):
    """Function that builds an error."""

    def __call__(
        self, what: Callable[..., CommitterError], message: str, at: StorePath | None = None, step: str = ""
    ) -> CommitterError: ...
