"""Optional abilities to delete or replace a file on the condition of its identity."""

from __future__ import annotations

from typing import Final, Protocol

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
    SupportsConditionalReplace, "conditional puts", lambda can: can.conditional_replace, in_place_of=("put",)
)
