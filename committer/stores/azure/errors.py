"""Errors for the refusals of Azure's storage accounts, by HTTP status and service code."""

from __future__ import annotations

import re
from typing import Final

from committer.advice import page
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StorePermissionError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.http import Answer
from committer.stores.http_answers import Refusal

_SAYS_CODE: Final = re.compile(rb'"code"\s*:\s*"(\w{1,100})"|<Code>(\w{1,100})</Code>')

# Codes of the Data Lake Storage Gen2 and Blob REST references; the blob endpoint has names of its own.
_NO_FILESYSTEM: Final = frozenset({"FilesystemNotFound", "ContainerNotFound", "FilesystemBeingDeleted"})
_NOT_EMPTY: Final = frozenset({"DirectoryNotEmpty", "DirectoryIsNotEmpty"})
_BAD_NAMES: Final = frozenset({"InvalidResourceName", "InvalidUri", "InvalidSourceUri", "OutOfRangeInput"})
_PARENT_IS_FILE: Final = frozenset({"InvalidDestinationPath", "ParentPathIsNotADirectory"})
# Conflicts of a write that must replace nothing; if the write may replace, they mean that a directory is there.
_STANDS_THERE: Final = _NOT_EMPTY | {
    "PathAlreadyExists",
    "BlobAlreadyExists",
    "ConditionNotMet",
    "InvalidSourceOrDestinationResourceType",
}


BLOB_RIGHTS: Final = (
    "needed is the role Storage Blob Data Contributor; or a signature with rwdlc for containers and objects"
    f" ({page('stores/azure-blob.md#permissions')})"
)
RIGHTS: Final = (
    "needed is the role Storage Blob Data Contributor; or --x on every directory above the destination, and rwx on it"
    f" and below; or a signature with rwdlc for containers and objects ({page('stores/adls.md#permissions')})"
)


_BAD_CREDENTIALS: Final = frozenset(
    {"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"}
)
_CREDENTIALS: Final = (
    "check what was given, that it is of this account, and that it has not ended: account_key, sas_token,"
    " connection_string, credential, or tenant_id, client_id and client_secret; with none of them, log in anew (az"
    " login). Check this machine's clock, too: a signature that is minutes old is refused"
)


def code_of(answer: Answer) -> str:
    """Returns the service's error code; empty if something in front of the service answered."""
    code = answer.headers.get("x-ms-error-code")
    if code:
        return code
    found = _SAYS_CODE.search(answer.body[:4096])
    return (found[1] or found[2]).decode() if found else ""


def error_of(
    answer: Answer,
    operation: str,
    path: StorePath,
    *,
    source: StorePath | None = None,
    changes: bool = True,
    replaces: bool = False,
) -> CommitterError:
    """Maps a refusal (status 300 or more) to an error; `path` is the destination of a rename.

    Args:
        replaces: Whether the call may replace a file at `path`: a conflict is then about the kind of entry.
    """
    status, code = answer.status, code_of(answer)
    refusal = Refusal(status, code, answer.headers.get("x-ms-request-id", ""), operation, path, source)
    if status == 429 or (status == 503 and (code == "ServerBusy" or "Retry-After" in answer.headers)):
        return refusal.slow_down(answer.headers)
    if status == 501:
        return refusal.as_error(StoreError, "the service does not know this request")
    if status == 408 or status >= 500:
        return refusal.failed(changes=changes)
    if status == 401 or code in _BAD_CREDENTIALS:
        return refusal.as_error(
            StorePermissionError, "the service refuses the credentials, or was sent none", next_step=_CREDENTIALS
        )
    if status == 403:
        return refusal.as_error(
            StorePermissionError,
            "the service refuses the credentials, or they lack a right",
            next_step=RIGHTS if path.scheme in ("abfs", "abfss") else BLOB_RIGHTS,
        )
    if status == 404:
        return _missing(refusal)
    if status in (409, 412):
        return _conflict(refusal, replaces=replaces)
    if status == 400 and code in _BAD_NAMES:
        return refusal.as_error(InvalidPathError, "the service can hold no such name")
    return refusal.as_error(ConfigurationError if status == 400 else StoreError, "the service refuses the request")


def _missing(refusal: Refusal) -> CommitterError:
    if refusal.code in _NO_FILESYSTEM:
        return refusal.no_such("container")
    if refusal.code == "RenameDestinationParentPathNotFound":
        return refusal.as_error(StoreNotFoundError, "the parent of the destination is missing")
    return refusal.as_error(StoreNotFoundError, "nothing is there", at=refusal.source)


def _conflict(refusal: Refusal, *, replaces: bool) -> CommitterError:
    code, source = refusal.code, refusal.source
    if code == "SourceConditionNotMet":
        return refusal.as_error(StorePreconditionError, "the source is another file", at=source)
    if code in _NOT_EMPTY and source is None:
        return refusal.as_error(StoreNotEmptyError, "the directory is not empty")
    if code in _PARENT_IS_FILE:
        return refusal.as_error(StoreNotADirectoryError, "a file exists at one of its parents")
    if code == "InvalidRenameSourcePath":
        return refusal.as_error(InvalidPathError, "a directory cannot be moved into itself")
    if code.startswith("Lease"):
        return refusal.as_error(
            StorePermissionError,
            "another client holds a lease on it",
            next_step="break the lease, or wait until it ends",
        )
    if code == "ConditionNotMet" and replaces:
        return refusal.as_error(StorePreconditionError, "another file is there")
    if code in _STANDS_THERE:
        return refusal.as_error(StoreIsADirectoryError if replaces else StoreExistsError, "something exists there")
    return refusal.as_error(StoreConflictError, "the service met a conflict")
