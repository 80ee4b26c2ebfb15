"""Optional abilities to delete or replace a file on the condition of its identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.abilities import Ability, FileStatus


class SupportsConditionalDelete(Protocol):
    """Ability to delete a file on the condition of its identity."""

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """Deletes a file if it still has the identity, decided by the store; returns whether it existed. One call.

        (S3: DeleteObject with ``If-Match``, which needs the right to read, too; Azure: Delete Blob with
        ``If-Match``.) Where the identity is an etag of the content, a file of equal content meets the condition,
        whatever its stamp. Services answer 204, 404 or 412 for a missing file; if 412 also means another file, the
        store looks once more.

        Raises:
            StorePreconditionError: Another file is there; it was not deleted.
        """


class SupportsConditionalBatchDelete(Protocol):
    """Ability to delete many files in one call, each on the condition of its identity."""

    async def delete_files_if(self, files: Mapping[StorePath, str]) -> Mapping[StorePath, StoreError]:
        """Deletes files that still have the given identities, decided by the store. One call; none for no files.

        Takes at most `Capabilities.max_batch_delete` identities by path. Not atomic: each name succeeds or fails
        alone. (S3: DeleteObjects with an ``ETag`` for each key.) Idempotent, also after a lost response: a deleted
        file is absent then, and a file put there since has another identity. For content that an etag cannot tell
        apart see `SupportsConditionalDelete.delete_file_if`.

        Returns errors by the path that was not deleted. A `StorePreconditionError` means that another file is there;
        services that answer the same for a missing file report that so, too.

        Raises:
            ConfigurationError: There are too many files.
            UnsupportedError: `Store.probe` has not shown that the service checks the condition.
            StoreError: The call as a whole failed.
        """


class SupportsConditionalReplace(Protocol):
    """Ability to replace a small file on the condition of its identity."""

    async def replace_file(
        self, path: StorePath, data: bytes, *, seen: FileStatus, temporary: StorePath | None = None
    ) -> FileStatus:
        """Replaces a whole file if it is the one that was `seen`, decided by the store. One call.

        (S3: PutObject with ``If-Match``; Google Cloud Storage: an insert with ``ifGenerationMatch``; Azure: Put Blob
        with ``If-Match``.) An S3-compatible service that ignores the condition replaces any file, so correctness
        must not rest on it alone. A lost response is not retried, since the second request would be refused.
        `temporary` is as for `Store.put`.

        Raises:
            StorePreconditionError: Another file is there, or none; nothing was changed.
        """


CONDITIONAL_DELETE: Final[Ability[SupportsConditionalDelete]] = Ability(
    SupportsConditionalDelete, "conditional deletes", lambda can: can.conditional_delete
)
CONDITIONAL_REPLACE: Final[Ability[SupportsConditionalReplace]] = Ability(
    SupportsConditionalReplace, "conditional puts", lambda can: can.conditional_replace, in_place_of="put"
)
CONDITIONAL_BATCH_DELETE: Final[Ability[SupportsConditionalBatchDelete]] = Ability(
    SupportsConditionalBatchDelete,
    "conditional batch deletes",
    lambda can: can.conditional_batch_delete,
    in_place_of="delete_file_if",
)
