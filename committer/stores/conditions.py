"""What a store can do to a file on the condition that it is still the one that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.abilities import Ability, FileStatus


class SupportsConditionalDelete(Protocol):
    """A file can be deleted on the condition that it is still the one that was seen."""

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """Deletes a file whose identity is still the given one, decided by the store. One call.

        (S3: DeleteObject with ``If-Match``, which needs the right to read too; Azure: Delete Blob with ``If-Match``.)
        Where the identity is an etag of the content, another file of the same content passes for the one that was
        seen: no condition tells stamps apart.

        Returns:
            True when there was one; False when nothing is there, however the service says that (204, 404 or 412: a
            store whose service says 412 of both looks once more).

        Raises:
            StorePreconditionError: Another file is there; it was not deleted.
        """


class SupportsConditionalBatchDelete(Protocol):
    """Many files can be deleted in one call, each on the condition that it is still the one that was seen."""

    async def delete_files_if(self, files: Mapping[StorePath, str]) -> Mapping[StorePath, StoreError]:
        """Deletes those of some files whose identity is still the given one, decided by the store for each. One call;
        without any, none.

        Not atomic: each name succeeds or fails alone. (S3: DeleteObjects with an ``ETag`` for each key.) The same call
        may be sent again, also after a lost answer: what it deleted is absent then, and what was put there since has
        another identity. As to content that an etag cannot tell apart see `SupportsConditionalDelete.delete_file_if`.

        Args:
            files: Identities by name; at most `Capabilities.max_batch_delete`.

        Returns:
            What was not deleted, and why; of a name where nothing is, nothing, or `StorePreconditionError` on services
            that say so of both. Where it is `StorePreconditionError`, what stands there was not deleted.

        Raises:
            ConfigurationError: There are too many.
            UnsupportedError: The service is not known to hear the condition: `Store.probe` did not show it.
            StoreError: The call as a whole failed.
        """


class SupportsConditionalReplace(Protocol):
    """A small file can be replaced on the condition that it is still the one that was seen."""

    async def replace_file(
        self, path: StorePath, data: bytes, *, seen: FileStatus, temporary: StorePath | None = None
    ) -> FileStatus:
        """Puts a whole file over the very one that was seen, decided by the store. One call.

        (S3: PutObject with ``If-Match``; Google Cloud Storage: an insert with ``ifGenerationMatch``; Azure: Put Blob
        with ``If-Match``.) Where a service that speaks like S3 does not know the condition, whatever is there is
        replaced: nothing may rest on the condition alone. A lost answer is not tried again: the second request would
        be refused.

        Args:
            path: The file.
            data: Its new content.
            seen: What `Store.status` said of it, or the call that wrote it.
            temporary: As for `Store.put`.

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
