"""Optional abilities to write a file now and publish it later, in one call, from any process.

Committers use them on stores without renames: S3's multipart uploads and Azure's block lists. Files are stamped:
after a lost response, `FileStatus.stamp` and `FileStatus.size` tell the writer; the identity (an etag) does only if
a response gave it before.

Sources are the services' pages: for S3 *CreateMultipartUpload*, *UploadPart*, *CompleteMultipartUpload*,
*AbortMultipartUpload*, *ListMultipartUploads*, *ListParts*; for Azure *Put Block* and *Put* and *Get Block List*.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from committer.errors import ConfigurationError
from committer.paths import StorePath
from committer.stores.abilities import Ability, FileStatus

_MAX_STAMP: Final = 1024


class PendingUpload(msgspec.Struct, frozen=True, gc=False):
    """Upload that was neither completed nor aborted.

    Attributes:
        path: The path of its file.
        upload_id: The store's id of it; any text.
        initiated: Its creation by the store's clock, in seconds since the epoch.
        initiator: Its creator, if the store says so.
    """

    path: StorePath
    upload_id: str
    initiated: float
    initiator: str | None = None


class UploadPart(msgspec.Struct, frozen=True, gc=False):
    """Part of an upload, as the store confirmed it.

    Attributes:
        number: Its place, from 1.
        etag: The store's proof of its content, without quotes.
        size: Its length in bytes; None if it was read from a record that does not say.
        checksum: Its checksum in the store's spelling, if the upload has one: S3 requires it again at completion.
        checksum_algorithm: The algorithm of the checksum, in the store's spelling.
    """

    number: int
    etag: str
    size: int | None = None
    checksum: str | None = None
    checksum_algorithm: str | None = None


class SupportsUploads(Protocol):
    """Ability to upload a file that appears only when its upload is completed: S3's multipart uploads.

    Before that no status, listing or read shows it. Several uploads to one name may be pending; a put or delete of a
    file there, or of a directory above, ends none of them. A pending upload is paid for and never expires, unless a
    lifecycle rule aborts it.
    """

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """Begins an upload, whether or not `path` exists (S3 takes no condition here), and returns its id. One call.

        A repeated or delayed request creates one more upload, whose id no caller learns: after a lost response look
        for it with `list_uploads`. `stamp` is the later `FileStatus.stamp`: 1 to 1024 printable ASCII characters
        without a space, else a `ConfigurationError`. (S3 takes metadata only here, 2 KB in all; kept as
        ``committer-attempt``.)
        """

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """Sends one part; replaces one of the same number. One call. The buffer may be reused when this returns.

        Never send other data under a used number: the two requests may arrive in either order.

        Args:
            number: From 1 to `Capabilities.max_parts`; in any order, and concurrently.
            data: Its content, at most `Capabilities.max_part_bytes`; the minimum is checked at completion. An empty
                file is one empty part.

        Raises:
            ConfigurationError: The number or the length is out of bounds.
            StoreUploadNotFoundError: The upload is not pending.
        """

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """Publishes the file of an upload, whole and with its stamp; returns its identity. One call. Drops other parts.

        After a lost response look before you repeat the request: the repetition may succeed like the first, find no
        upload, or, if `exclusive`, find the caller's own file. Stamp and length tell whose file it is.
        (`committer.stores.helpers.finish_upload` does so.)

        Args:
            parts: At least one, by rising numbers, not necessarily contiguous; each but the last at least
                `Capabilities.min_part_bytes` long. Their sizes are ignored.
            exclusive: Fail if the path exists, decided atomically by the store (``If-None-Match: *``); else replace
                a file atomically.

        Raises:
            StoreExistsError: `exclusive` and the path exists. The upload stays pending.
            StoreConflictError: `exclusive` and another change of the name was under way. The upload may be gone.
            StoreUploadNotFoundError: The upload is not pending: it was completed or aborted.
            StorePartsError: No file can be made of these parts. The upload stays pending.
        """

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """Drops an upload and its parts, and no file at `path`. One call.

        Parts under way at this moment may outlive it (S3): once they have ended, abort again until `list_parts`
        finds no upload. Returns False if the upload was completed or aborted before; True if it was dropped, or the
        store does not tell.
        """

    def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """Iterates over the pending uploads anywhere below a directory, in any order. One call per page (S3: 1000).

        Below ``d`` is ``d/x``, never ``d2/x`` nor ``d`` itself. A missing directory is no error. An upload created
        or ended meanwhile may be listed or not.
        """

    def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """Iterates over the parts of an upload, by rising numbers. One call per page (S3: 1000).

        Raises:
            StoreUploadNotFoundError: The upload is not pending.
        """

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """Writes a whole file as `Store.put` does, with metadata, replacing an existing file. One call.

        S3A's magic committer keeps a file's length so. `metadata` maps lower-case names to texts of printable ASCII,
        2 KB in all. (S3: ``x-amz-meta-`` headers.) No method returns it; a store may drop it.
        """


class UncommittedBlock(msgspec.Struct, frozen=True, gc=False):
    """Block that is not part of a file yet; its size in bytes."""

    block_id: str
    size: int


class SupportsBlockLists(Protocol):
    """Ability to send blocks that become a file when their list is committed: Azure's flat block blobs.

    Uncommitted blocks belong to the *name*, and no status, listing or read shows them. All writers of a name share
    them, and a file made of some drops the rest, also of other writers: a committer gives every block an id of its
    own. They cannot be aborted; the next put of the file, whole or as a list, drops them, or a week after the last
    block. (Do not rely on a delete of the file to drop them.)
    """

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """Sends one block; replaces an uncommitted one of the same id. One call. The buffer may then be reused.

        Never send other data under a used id: the two requests may arrive in either order. An existing file stays.

        Args:
            block_id: 1 to 64 ASCII characters; all uncommitted blocks of a name have ids of one length. (Put Block
                sends them in base64.) At most 100,000 may wait.
            data: Its content, at most `Capabilities.max_part_bytes` and not empty.

        Raises:
            ConfigurationError: The id or the length is out of bounds.
            StorePartsError: The id's length differs from those of waiting blocks.
        """

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """Makes a file of uncommitted blocks, with its stamp; returns its identity. One call. Drops other blocks.

        Only uncommitted blocks are used (``<Uncommitted>``, never ``<Latest>``), and they are used up: a repeated or
        delayed request changes nothing. Its error then says nothing about the first; the file's stamp and length do.

        Args:
            block_ids: Its blocks in their order, at most `Capabilities.max_parts`; none for an empty file.
            stamp: As for `SupportsUploads.create_upload`. (Kept in the blob's metadata, whose names take no hyphen,
                as ``committerattempt``.)
            exclusive: Fail if the path exists, decided atomically by the store (``If-None-Match: *``).
            identity: Fail unless the existing file has this identity (``If-Match``). Not with `exclusive`. Without
                either a file is replaced atomically.

        Raises:
            ConfigurationError: Both conditions were given, or the stamp is invalid.
            StoreExistsError: `exclusive` and the path exists. The blocks stay.
            StorePreconditionError: Another file, or none, exists. The blocks stay.
            StorePartsError: A block does not exist, or there are too many. The blocks stay.
        """

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """Returns the blocks that wait under a name, in any order. One call (Get Block List, not paged)."""


UPLOADS: Final[Ability[SupportsUploads]] = Ability(SupportsUploads, "uploads", lambda can: can.multipart)
BLOCK_LISTS: Final[Ability[SupportsBlockLists]] = Ability(
    SupportsBlockLists, "block lists", lambda can: can.block_lists
)


def check_stamp(stamp: str, operation: str, path: StorePath) -> None:
    """Refuses a stamp that services would not keep unchanged by `ConfigurationError`."""
    if not (0 < len(stamp) <= _MAX_STAMP and all("!" <= letter <= "~" for letter in stamp)):
        raise ConfigurationError(f"no file can have the stamp {stamp!a}", operation=operation, path=path)


def check_part(
    number: int, length: int, most: int | None, longest: int | None, operation: str, path: StorePath
) -> None:
    """Refuses a part's number or length by `ConfigurationError`."""
    if number < 1 or (most is not None and number > most):
        raise ConfigurationError(
            f"a part cannot have the number {number}: they go from 1 to {most}", operation=operation, path=path
        )
    check_length(length, longest, operation, path)


def check_length(length: int, longest: int | None, operation: str, path: StorePath) -> None:
    """Refuses the length of a part or block by `ConfigurationError`."""
    if longest is not None and length > longest:
        raise ConfigurationError(f"{length} bytes at once: the store takes {longest}", operation=operation, path=path)
