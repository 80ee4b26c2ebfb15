"""What the refusals of Azure's storage accounts mean: the one function from status and code to an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from committer.advice import LOOK_BEFORE
from committer.documentation import page
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationNotFoundError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.retry_after import retry_after_s
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.http import Answer

_SAYS_CODE: Final = re.compile(rb'"code"\s*:\s*"(\w{1,100})"|<Code>(\w{1,100})</Code>')

# Codes of the pages of the Data Lake Storage Gen2 and Blob REST references. The blob endpoint has names of its own.
_NO_FILESYSTEM: Final = frozenset({"FilesystemNotFound", "ContainerNotFound", "FilesystemBeingDeleted"})
_NOT_EMPTY: Final = frozenset({"DirectoryNotEmpty", "DirectoryIsNotEmpty"})
_BAD_NAMES: Final = frozenset({"InvalidResourceName", "InvalidUri", "InvalidSourceUri", "OutOfRangeInput"})
_PARENT_IS_FILE: Final = frozenset({"InvalidDestinationPath", "ParentPathIsNotADirectory"})
# What no write puts up with that may not replace; of one that may, it says that a directory stands there.
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
    """The service's code of a refusal; empty where something before the service answered."""
    code = answer.headers.get("x-ms-error-code")
    if code:
        return code
    found = _SAYS_CODE.search(answer.body[:4096])
    return (found[1] or found[2]).decode() if found else ""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal, and the call it was given to."""

    status: int
    code: str
    request_id: str
    operation: str
    path: StorePath
    source: StorePath | None

    def as_error(
        self, kind: type[CommitterError], message: str, at: StorePath | None = None, next_step: str = ""
    ) -> CommitterError:
        said = " ".join(part for part in (str(self.status), self.code, self.request_id) if part)
        return kind(f"{message} ({said})", operation=self.operation, path=at or self.path, next_step=next_step)


def error_of(
    answer: Answer,
    operation: str,
    path: StorePath,
    *,
    source: StorePath | None = None,
    changes: bool = True,
    replaces: bool = False,
) -> CommitterError:
    """The error that a refusal is.

    Args:
        answer: The refusal: a status of 300 or more.
        operation: The store call.
        path: What it was made on; the destination of a rename.
        source: The source of a rename.
        changes: Whether the call may have changed anything.
        replaces: Whether it may replace what stands at `path`: a conflict is then about its kind.
    """
    status, code = answer.status, code_of(answer)
    refusal = _Refusal(status, code, answer.headers.get("x-ms-request-id", ""), operation, path, source)
    if status == 429 or (status == 503 and (code == "ServerBusy" or "Retry-After" in answer.headers)):
        return StoreThrottledError(
            refusal.as_error(StoreThrottledError, "the service asks to slow down").message,
            retry_after_s=retry_after_s(answer.headers, current_runtime().now()),
            operation=operation,
            path=path,
        )
    if status == 408 or status >= 500:
        return _failed(refusal, changes=changes)
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


def _failed(refusal: _Refusal, *, changes: bool) -> CommitterError:
    if refusal.status == 501:
        return refusal.as_error(StoreError, "the service does not know this request")
    if not changes:
        return refusal.as_error(StoreUnavailableError, "the service failed")
    return refusal.as_error(
        StoreOutcomeUnknownError,
        "the service failed and may have done it",
        next_step=LOOK_BEFORE,
    )


def _missing(refusal: _Refusal) -> CommitterError:
    if refusal.code in _NO_FILESYSTEM:
        return refusal.as_error(
            DestinationNotFoundError,
            f"there is no such container: {refusal.path.authority}",
            next_step="create the container first, or correct its name",
        )
    if refusal.code == "RenameDestinationParentPathNotFound":
        return refusal.as_error(StoreNotFoundError, "the parent of the destination is missing")
    return refusal.as_error(StoreNotFoundError, "nothing is there", at=refusal.source)


def _conflict(refusal: _Refusal, *, replaces: bool) -> CommitterError:
    code, source = refusal.code, refusal.source
    if code == "SourceConditionNotMet":
        return refusal.as_error(StorePreconditionError, "the source is another file", at=source)
    if code in _NOT_EMPTY and source is None:
        return refusal.as_error(StoreNotEmptyError, "the directory is not empty")
    if code in _PARENT_IS_FILE:
        return refusal.as_error(StoreNotADirectoryError, "a file stands at one of its parents")
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
        return refusal.as_error(StoreIsADirectoryError if replaces else StoreExistsError, "something stands there")
    return refusal.as_error(StoreConflictError, "the service met a conflict")
