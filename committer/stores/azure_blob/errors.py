"""What refusals of calls with blobs and blocks mean: what is theirs alone, else what accounts have in common."""

from __future__ import annotations

from typing import Final

from committer.errors import (
    CommitterError,
    ConfigurationError,
    StoreConflictError,
    StoreExistsError,
    StorePartsError,
    StorePermissionError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.azure.errors import code_of
from committer.stores.azure.errors import error_of as shared_error_of
from committer.stores.http import Answer
from committer.stores.refusals import Refusal

# "Put Block", "Put Block List": a block that is not there, an id of another length than those that wait, too many.
_PARTS: Final = frozenset({"InvalidBlockList", "InvalidBlobOrBlock", "InvalidBlockId", "BlockListTooLong"})
_TOO_MANY: Final = frozenset({"BlockCountExceedsLimit", "UncommittedBlockCountExceedsLimit"})
_KINDS: Final = frozenset({"InvalidBlobType"})
_KEPT: Final = frozenset({"BlobImmutableDueToPolicy", "BlobImmutableDueToLegalHold"})


def error_of(
    answer: Answer, operation: str, path: StorePath, *, changes: bool = True, exclusive: bool = False
) -> CommitterError:
    """The error that a refusal is.

    Args:
        answer: The refusal: a status of 300 or more.
        operation: The store call.
        path: What it was made on.
        changes: Whether the call may have changed anything.
        exclusive: Whether it was made on the condition that nothing is there.
    """
    code = code_of(answer)
    refusal = Refusal(answer.status, code, answer.headers.get("x-ms-request-id", ""), operation, path)
    if code in _PARTS:
        what = "blocks with ids of another length wait there" if operation == "put_block" else "a block is not there"
        return refusal.as_error(StorePartsError, what)
    if code in _TOO_MANY:
        return refusal.as_error(StorePartsError, "there are too many blocks")
    if answer.status == 413:
        return refusal.as_error(ConfigurationError, "the service takes no body that long", "set multipart_size lower")
    if code in _KEPT:
        return refusal.as_error(
            StorePermissionError,
            "the container does not let blobs be changed or deleted",
            "write to a container without a policy of immutability: a commit replaces and deletes records of its own",
        )
    if code in _KINDS:
        return refusal.as_error(
            StoreConflictError, "a blob of another type is there", "delete it, or choose another name"
        )
    unmet = answer.status == 412 and not code.startswith("Lease")
    if code == "BlobAlreadyExists" or (exclusive and unmet):
        return refusal.as_error(StoreExistsError, "something stands there")
    if unmet:
        return refusal.as_error(StorePreconditionError, "another file is there, or none")
    return shared_error_of(answer, operation, path, changes=changes)
