"""Files that are written now and made visible later, in one call, from any process: two optional abilities of a
store.

A committer without renames publishes a file so. S3 has uploads whose completion is withheld, Azure's blobs have blocks
that a list makes a file of. Both are stamped, so that a caller that lost an answer can look who wrote what is there:
`FileStatus.stamp` and `FileStatus.size` tell, the identity (an etag) tells only where it was answered before.

What the services do is from their reference pages: for S3 *CreateMultipartUpload*, *UploadPart*,
*CompleteMultipartUpload*, *AbortMultipartUpload*, *ListMultipartUploads*, *ListParts*; for Azure *Put Block*,
*Put Block List*, *Get Block List*.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

from committer.errors import ConfigurationError
from committer.paths import StorePath
from committer.stores.abilities import Ability

_MAX_STAMP: Final = 1024


class PendingUpload(msgspec.Struct, frozen=True, gc=False):
    """An upload that was neither completed nor aborted.

    Attributes:
        path: Where its file would stand.
        upload_id: The store's name for it; any text.
        initiated: When it was created, by the store's clock, in seconds since the epoch.
        initiator: Who created it, where the store says so.
    """

    path: StorePath
    upload_id: str
    initiated: float
    initiator: str | None = None


class UploadPart(msgspec.Struct, frozen=True, gc=False):
    """A part of an upload, as the store answered it.

    Attributes:
        number: Its place, from 1.
        etag: The store's proof of its content, without quotes.
        size: Its length in bytes; None where it was read from a record that does not say.
        checksum: Its checksum as the store wrote it, where its upload has one: S3 asks for it again at completion.
        checksum_algorithm: What that was made with, in the store's spelling.
    """

    number: int
    etag: str
    size: int | None = None
    checksum: str | None = None
    checksum_algorithm: str | None = None


class SupportsUploads(Protocol):
    """Files whose bytes go to the store at once, and which appear when their upload is completed.

    S3's multipart uploads. Until then nothing stands under the name: no status, no listing, no read shows it. Any
    number of uploads to one name may be pending; putting or deleting a file there ends none of them, nor does deleting
    a directory above. An upload waits until it is completed or aborted, and is paid for: it never expires, unless a
    lifecycle rule aborts it.
    """

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """Begins an upload. One call. What stands at `path` is not looked at (S3 takes no condition here).

        A repeated or late request creates one more upload, whose id no caller learns: after a lost answer look for it
        with `list_uploads`.

        Args:
            path: Where the file will stand.
            stamp: What `FileStatus.stamp` will say of it: 1 to 1024 printable ASCII characters without a space. (S3
                takes metadata here and nowhere later, 2 KB in all; kept there as ``committer-attempt``.)

        Returns:
            The id of the upload.

        Raises:
            ConfigurationError: The stamp is out of bounds.
        """

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """Sends one part; one of the same number is replaced. One call. The buffer may be reused when this returns.

        Never send other data under a number once used: the two requests may arrive in either order.

        Args:
            path: The path of the upload.
            upload_id: The upload.
            number: From 1 to `Capabilities.max_parts`. Parts may come in any order, and at the same time.
            data: Its content, at most `Capabilities.max_part_bytes`. How short it may be is judged at completion. A
                file without content is one part without content.

        Raises:
            ConfigurationError: The number or the length is out of bounds.
            StoreUploadNotFoundError: The upload is not pending.
        """

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """Makes the file of an upload visible: its bytes and its stamp, whole. One call. Parts not named are dropped.

        A request that was answered never has to be repeated, and one whose answer was lost must not be before a look:
        the second may be answered like the first, find no upload, or, if `exclusive`, find the caller's own file in its
        way. The file is the caller's when stamp and length are. (`committer.stores.upload_ends.finish_upload` does so.)

        Args:
            path: The path of the upload.
            upload_id: The upload.
            parts: One or more, by rising numbers, which need not be contiguous; each but the last at least
                `Capabilities.min_part_bytes` long. Their sizes are not looked at.
            exclusive: Fail when something is there, decided atomically by the store (``If-None-Match: *``); else
                replace a file atomically.

        Returns:
            The identity of the new file, as `Store.status` gives it. (S3 answers an etag and no length.)

        Raises:
            StoreExistsError: `exclusive` and something is there. The upload stays pending.
            StoreConflictError: `exclusive` and another change of the name was under way. The upload may be gone.
            StoreUploadNotFoundError: The upload is not pending: it was completed, or aborted.
            StorePartsError: The file cannot be made of these parts. The upload stays pending.
        """

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """Drops an upload and its parts. One call. A file that stands at `path` is not touched.

        Parts that are under way at this moment may outlive it (S3): once they have ended, abort again until
        `list_parts` finds no upload.

        Returns:
            True when the store dropped it, or does not tell; False when there was none: it was completed, or aborted
            before.
        """

    def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """Iterates over the pending uploads anywhere below a directory, in any order; one call a page (S3: 1000).

        Below ``d`` lies ``d/x``, never ``d2/x`` nor ``d`` itself. Nothing pending, or no such directory, is no error.
        An upload created or ended meanwhile may be there or not.
        """

    def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """Iterates over the parts of an upload, by rising numbers; one call a page (S3: 1000).

        Raises:
            StoreUploadNotFoundError: The upload is not pending.
        """


class UncommittedBlock(msgspec.Struct, frozen=True, gc=False):
    """A block that no file was made of yet.

    Attributes:
        block_id: Its id.
        size: Its length in bytes.
    """

    block_id: str
    size: int


class SupportsBlockLists(Protocol):
    """Files whose bytes go to the store as blocks, and which appear when a list of blocks is put.

    Azure's block blobs, without a hierarchical namespace. There is no upload: uncommitted blocks belong to the *name*.
    All writers of one name share them, and making a file of some drops the rest, of other writers too: a committer
    gives every block an id that no other writer has. Nothing stands under a name that has only uncommitted blocks.
    They cannot be aborted: they are dropped by the next put of a file there, whole or as a list, or a week after the
    last block was put. (Whether deleting the file drops them is nothing to rely on.)
    """

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """Sends one block; an uncommitted one of the same id is replaced. One call. The buffer may then be reused.

        Never send other data under an id once used: the two requests may arrive in either order. What stands at `path`
        stays as it is.

        Args:
            path: Where the file will stand.
            block_id: 1 to 64 ASCII characters; all uncommitted blocks of one name have ids of one length. (Put Block
                sends them in base64.) At most 100,000 may wait.
            data: Its content, at most `Capabilities.max_part_bytes` and not empty.

        Raises:
            ConfigurationError: The id or the length is out of bounds.
            StorePartsError: The id has another length than those of blocks that wait there.
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
        """Makes uncommitted blocks a file: its bytes and its stamp, whole. One call. Blocks not named are dropped.

        Only uncommitted blocks are taken (``<Uncommitted>``, never ``<Latest>``), and they are used up: the same
        request a second time, repeated or late, changes nothing. Its error then says nothing about the first. Look:
        the file is the caller's when stamp and length are.

        Args:
            path: Where the file stands then.
            block_ids: Its blocks in their order, at most `Capabilities.max_parts`; none make an empty file.
            stamp: As for `SupportsUploads.create_upload`. (Metadata of the blob, whose names are identifiers and take
                no hyphen: ``committerattempt``.)
            exclusive: Fail when something is there, decided atomically by the store (``If-None-Match: *``).
            identity: Fail unless the file that stands there has this identity (``If-Match``). Not with `exclusive`.
                Without either a file is replaced atomically.

        Returns:
            The identity of the new file, as `Store.status` gives it.

        Raises:
            ConfigurationError: Both conditions were given, or the stamp is out of bounds.
            StoreExistsError: `exclusive` and something is there. The blocks stay.
            StorePreconditionError: Another file, or none, is there. The blocks stay.
            StorePartsError: A block is not there, or there are too many. The blocks stay.
        """

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """The blocks that wait under a name, in any order; none is no error. One call (Get Block List, not paged)."""


UPLOADS: Final[Ability[SupportsUploads]] = Ability(SupportsUploads, "uploads", lambda can: can.multipart)
BLOCK_LISTS: Final[Ability[SupportsBlockLists]] = Ability(
    SupportsBlockLists, "block lists", lambda can: can.block_lists
)


def check_stamp(stamp: str, operation: str, path: StorePath) -> None:
    """Refuses a stamp that no service would keep as it is.

    Raises:
        ConfigurationError: It is empty, too long, or has other letters than printable ASCII ones, or a space.
    """
    if not (0 < len(stamp) <= _MAX_STAMP and all("!" <= letter <= "~" for letter in stamp)):
        raise ConfigurationError(f"no file can have the stamp {stamp!a}", operation=operation, path=path)


def check_part(
    number: int, length: int, most: int | None, longest: int | None, operation: str, path: StorePath
) -> None:
    """Refuses a part that no upload can have.

    Raises:
        ConfigurationError: Its number or its length is out of bounds.
    """
    if number < 1 or (most is not None and number > most):
        raise ConfigurationError(
            f"a part cannot have the number {number}: they go from 1 to {most}", operation=operation, path=path
        )
    check_length(length, longest, operation, path)


def check_length(length: int, longest: int | None, operation: str, path: StorePath) -> None:
    """Refuses a part or block that is too long.

    Raises:
        ConfigurationError: It is.
    """
    if longest is not None and length > longest:
        raise ConfigurationError(f"{length} bytes at once: the store takes {longest}", operation=operation, path=path)
