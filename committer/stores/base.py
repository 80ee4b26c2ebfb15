"""The store contract: what a committer needs of a place where files live.

Only abstract methods: a default method would silently bypass a wrapper that forgot to forward it (the lesson of
arrow's ``object_store``). Conveniences are functions, in `committer.stores.helpers`. Optional abilities are
Protocols, below and in `committer.stores.uploads`; whether a store (or what a wrapper wraps) has one is said by its
`Capabilities`, never by its type.

Every operation is one coroutine. Its error says whether it can have had an effect: `StoreOutcomeUnknownError` may,
every other `StoreError` has not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from committer.errors import StoreError
from committer.paths import StorePath


class Refusals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a store knows that it would refuse to do with a file or directory; each a reason, empty where none is known.

    Attributes:
        move: To rename it away, to replace it or to delete it.
        link: To give it a second name.
        enter: To put anything into it.
        mounted: Whether it is the top of another volume: nothing can be renamed into it, or out of it.
    """

    move: str = ""
    link: str = ""
    enter: str = ""
    mounted: bool = False


class FileStatus(msgspec.Struct, frozen=True, gc=False):
    """What a store says about one path.

    Attributes:
        path: The path asked for, or listed.
        is_directory: Whether it is a directory, or a link that leads to one; else it is a file.
        size: Length in bytes; 0 for a directory.
        modified: Seconds since the epoch, or None where the store does not say. Never used to decide what happened.
        identity: The store's proof that this is the very file that was written, unchanged by a rename where
            `Capabilities.identity_through_rename` holds; None where the store has none, and for directories. Where
            it is an etag that S3 made of the content, it proves the bytes and not who wrote them: `stamp` does.
        is_link: Whether it is a symbolic link, to whatever or to nowhere. Everything but `is_directory` then speaks of
            the link itself: to rename or delete it moves the link, never what it leads to.
        is_special: Whether it is neither file, directory nor link: a pipe, a socket, a device.
        stamp: What the file was stamped with when it was made (see `committer.stores.uploads`): proves, with its
            length, who wrote it. Told by `Store.status` only: S3's listings hold no metadata. None without one.
        refuses: What the store would refuse to do with it, where it knows without a further call; None where it knows
            of nothing. A job refuses before its decision what would stop it afterwards.
    """

    path: StorePath
    is_directory: bool
    size: int
    modified: float | None = None
    identity: str | None = None
    is_link: bool = False
    is_special: bool = False
    stamp: str | None = None
    refuses: Refusals | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a store can do. Code asks these, never the type of a store.

    Attributes:
        directories: Directories are real: a file's parent must exist, an empty directory can stand.
        implicit_parents: `Store.put` and `Store.open_writer` make missing parents up instead of failing, so that a
            file can bring a deleted directory back. (ADLS: "Path - Create", "Put Blob".) So does
            `Store.make_directory`, or it looks first, which is not atomic. Renames never do.
        atomic_file_rename: A file rename happens wholly or not at all.
        no_replace_rename: A file rename can be told to fail when the target exists, atomically.
        replacing_rename: A file rename can replace an existing file atomically.
        atomic_directory_rename: A directory with all its content is renamed in one atomic step.
        conditional_rename: A rename can be told which identity its source must have.
        identity: Files have an identity.
        identity_through_rename: A file keeps its identity when it is renamed.
        exclusive_put: `Store.put` can create only when absent, decided by the store.
        hard_links: The store implements `SupportsHardLinks`.
        links: Symbolic links can stand here; the store implements `SupportsLinks`.
        checksum_sidecars: A file `.x.crc` counts as the checksum of `x` and is deleted with it, so no output can have
            such a name.
        local_paths: The store implements `SupportsLocalPaths`.
        durable: The store implements `SupportsSync`: what is written survives a power loss only when synced.
        multipart: The store implements `committer.stores.uploads.SupportsUploads`.
        block_lists: The store implements `committer.stores.uploads.SupportsBlockLists`.
        conditional_delete: The store implements `SupportsConditionalDelete`.
        batch_delete: The store implements `SupportsBatchDelete`: it deletes many files in one call.
        case_folding: Two names that differ only in case are one file.
        unicode_folding: Two names that differ only in Unicode normalisation are one file.
        forbids_trailing_period: A name may not end in a period.
        max_name_bytes: Longest name of one segment, in UTF-8 bytes; None when unlimited.
        max_path_bytes: Longest whole path, in UTF-8 bytes, the slash that it begins with among them; None when
            unlimited.
        max_parts: Most parts of an upload, or blocks of a list; None when unlimited, or without either. (S3 10,000,
            Azure 50,000.)
        min_part_bytes: Shortest part of an upload but for its last. (S3 5 MiB.)
        max_part_bytes: Longest part or block; None when unlimited. (S3 5 GiB, Azure 4000 MiB.)
        max_batch_delete: Most files that one call deletes; None when unlimited, or without `batch_delete`. (S3 1000.)
        default_io_rate: Requests per second that suit the service; None when unlimited.
    """

    directories: bool = True
    implicit_parents: bool = False
    atomic_file_rename: bool = True
    no_replace_rename: bool = True
    replacing_rename: bool = True
    atomic_directory_rename: bool = True
    conditional_rename: bool = False
    identity: bool = True
    identity_through_rename: bool = True
    exclusive_put: bool = True
    hard_links: bool = False
    links: bool = False
    checksum_sidecars: bool = False
    local_paths: bool = False
    durable: bool = False
    multipart: bool = False
    block_lists: bool = False
    conditional_delete: bool = False
    batch_delete: bool = False
    case_folding: bool = False
    unicode_folding: bool = False
    forbids_trailing_period: bool = False
    max_name_bytes: int | None = None
    max_path_bytes: int | None = None
    max_parts: int | None = None
    min_part_bytes: int = 0
    max_part_bytes: int | None = None
    max_batch_delete: int | None = None
    default_io_rate: float | None = None

    @property
    def refuses_late_writes(self) -> bool:
        """Whether a write fails once the directory it goes to is gone, as that of a job that was cleaned up."""
        return self.directories and not self.implicit_parents

    @property
    def publishes_uploads(self) -> bool:
        """Whether files become visible by completing uploads, since none can be renamed: the committer `magic`."""
        return self.multipart and not self.atomic_file_rename


class FileWriter(ABC):
    """A file being written. It exists under its path only as the store allows; do not rely on it before `close`."""

    @abstractmethod
    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends `data`. The buffer may be reused when this returns."""

    @abstractmethod
    async def close(self) -> FileStatus:
        """Finishes the file and returns its status with the identity taken after the last byte."""

    @abstractmethod
    async def abort(self) -> None:
        """Gives the file up. What was written may stay under its path; raises nothing for a file already closed."""


class Store(ABC):
    """A place where files live. Cheap to make, opens lazily, holds no secret when pickled.

    Paths are absolute and belong to this store. Unless said otherwise each method is one store call.
    """

    @property
    @abstractmethod
    def scheme(self) -> str:
        """The URI scheme this store answers to."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """What limits are shared by: stores with one endpoint string share one pacer within a process."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the store can do; known without a call, and constant, except that `probe` or a call may find less."""

    @abstractmethod
    async def probe(self, directory: StorePath) -> None:
        """Proves by trying, inside `directory`, the capabilities a commit relies on (identity kept through a rename,
        no-replace rename). A handful of calls at job setup; leaves nothing behind.

        Raises:
            UnsupportedError: One of them does not hold here.
        """

    @abstractmethod
    async def status(self, path: StorePath) -> FileStatus:
        """Looks at one path; of a link, at the link itself.

        Raises:
            StoreNotFoundError: Nothing is there. (Also when a parent is a file.)
        """

    @abstractmethod
    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the direct children, each with the identity `status` would give; one call a page, any order.

        Raises:
            StoreNotFoundError: Nothing is there (or, without real directories, nothing is below it).
            StoreNotADirectoryError: A file is there.
        """

    @abstractmethod
    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file of at most `limit` bytes.

        Raises:
            StoreNotFoundError: Nothing is there.
            StoreIsADirectoryError: A directory is there.
            RecordError: The file is longer than `limit`; at most `limit` + 1 bytes were read.
        """

    @abstractmethod
    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a small file whole: a reader sees all of it or none.

        Args:
            path: Where it goes. Its parent must exist where directories are real; it is never made up, except as
                `Capabilities.implicit_parents` says.
            data: The whole content.
            exclusive: Fail when something is there, decided atomically by the store; else replace a file atomically.
            temporary: Where a store that must write first and rename after may do so (same volume, overwritten);
                beside `path`, under a name starting with a period, when None.
            durable: Survive a power loss once this returns (data, then the name), on stores that are `durable`.

        Raises:
            StoreExistsError: `exclusive` and something is there.
            StoreIsADirectoryError: A directory is at `path`.
            StoreNotADirectoryError: A file is at one of its parents.
            StoreNotFoundError: The parent is missing, and not made up.
        """

    @abstractmethod
    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Creates a file for writing, replacing nothing.

        Raises:
            StoreExistsError: Something is there.
            StoreNotADirectoryError: A file is at one of its parents.
            StoreNotFoundError: The parent is missing, and not made up.
        """

    @abstractmethod
    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Makes a directory; without real directories does nothing and returns True.

        Args:
            path: The directory.
            parents: Make missing parents too; else a missing parent is an error.

        Returns:
            True when this call made it, False when a directory was there.

        Raises:
            StoreExistsError: A file is at `path`.
            StoreNotADirectoryError: A file is at one of its parents.
            StoreNotFoundError: The parent is missing and `parents` is False.
        """

    @abstractmethod
    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """Renames a file.

        Never moves it *into* a directory that stands at `destination`, never makes parents.

        Args:
            source: The file.
            destination: Its new path.
            replace: Replace a file that stands there; else fail, atomically.
            identity: What the source must be, enforced by stores with `conditional_rename`, ignored elsewhere.

        Raises:
            StoreNotFoundError: The source or the parent of the destination is missing; `path` says which.
            StoreExistsError: Something stands at the destination and `replace` is False.
            StoreIsADirectoryError: A directory stands at the destination and `replace` is True, or at the source.
            StorePreconditionError: The source is another file.
        """

    @abstractmethod
    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory with all its content; never replaces or merges, never makes parents.

        Atomic where `atomic_directory_rename` holds; other stores raise `UnsupportedError`.

        Raises:
            StoreNotFoundError: The source or the parent of the destination is missing; `path` says which.
            StoreExistsError: Something stands at the destination.
            StoreNotADirectoryError: The source is a file.
        """

    @abstractmethod
    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file. True when there was one.

        Raises:
            StoreIsADirectoryError: A directory is there; nothing was deleted.
        """

    @abstractmethod
    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory. True when there was one.

        Of a link to a directory only the link is deleted, and only when `recursive` is True.

        Raises:
            StoreNotEmptyError: It has children and `recursive` is False; or, rarely, others kept adding to it.
            StoreNotADirectoryError: A file is there, or a link and `recursive` is False; nothing was deleted.
        """

    @abstractmethod
    async def close(self) -> None:
        """Frees what the store opened. Safe to call twice; the store may be used again afterwards."""


@runtime_checkable
class SupportsHardLinks(Protocol):
    """A file can have two names at once."""

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """Gives the file at `source` a second name; fails like a no-replace rename."""


@runtime_checkable
class SupportsLinks(Protocol):
    """Symbolic links can stand among the files."""

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """Looks for a link on the way from `root` down to each of some directories: one call for many.

        Args:
            root: Where the names start; it may itself be a link.
            directories: Relative names. What is not there is passed over.

        Returns:
            The first relative name, of a directory or of one of its parents, that is a link; None without any.
        """


@runtime_checkable
class SupportsLocalPaths(Protocol):
    """Files have paths that any program of this machine can open."""

    def local_path(self, path: StorePath) -> str:
        """The operating system's path."""


@runtime_checkable
class SupportsBatchRename(Protocol):
    """Many files can be renamed for little more than what one costs here: on a disk, by one hop to a thread."""

    @property
    def renames_in_batches(self) -> bool:
        """Whether `rename_files` does what `Store.rename_file` would do; not where a subclass renames otherwise."""

    async def rename_files(self, renames: Sequence[tuple[StorePath, StorePath]]) -> dict[int, StoreError]:
        """Renames files as `Store.rename_file` does one, replacing nothing, in any order; no link among them.

        What a thread has begun is ended before a cancellation goes on. It costs least where files that go into one
        directory stand next to one another.

        Args:
            renames: Source and destination of each.

        Returns:
            What went wrong, by index in `renames`; every other file was renamed.
        """


@runtime_checkable
class SupportsSync(Protocol):
    """What is written survives a power loss only when synced."""

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """Forces a file's data, or a directory's entries, to the disk."""


@runtime_checkable
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


@runtime_checkable
class SupportsMetadata(Protocol):
    """A file can be put with texts beside its content."""

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """Puts a whole file with metadata of the caller's; a file that stands there is replaced. One call.

        (S3: headers that start with ``x-amz-meta-``. `committer.stores.helpers.put_described` puts it without where a
        store keeps none.)

        Args:
            path: Where the file stands then.
            data: Its content.
            metadata: Texts by name, of printable ASCII characters, names of lower case; 2 KB in all.
        """


@runtime_checkable
class SupportsBatchDelete(Protocol):
    """Many files can be deleted in one call."""

    async def delete_files(self, paths: Sequence[StorePath]) -> Mapping[StorePath, StoreError]:
        """Deletes files, whether they are there or not. One call; without any, none.

        Not atomic: each name succeeds or fails alone (S3's DeleteObjects answers 200 with a result for each name, and
        says of a missing one what it says of a deleted one).

        Args:
            paths: At most `Capabilities.max_batch_delete` different names.

        Returns:
            What was not deleted, and why; empty when all are gone.

        Raises:
            ConfigurationError: There are too many.
            StoreError: The call as a whole failed.
        """
