"""Capabilities and optional abilities of stores, and the status of a path.

More abilities are in `committer.stores.uploads` and `committer.stores.examination`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec

from committer.errors import StoreError, UnsupportedError
from committer.paths import StorePath


class Refusals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Reasons for which a store would refuse operations on a file or directory; each text is empty if none is known.

    Attributes:
        move: Why it cannot be renamed away, replaced or deleted.
        link: Why it cannot get a second name.
        enter: Why nothing can be created in it.
        mounted: True for the top of another volume, or a link to a directory on one: no rename goes into or out of
            it.
        advice: What the user can do so that it can be moved.
    """

    move: str = ""
    link: str = ""
    enter: str = ""
    mounted: bool = False
    advice: str = ""


class FileStatus(msgspec.Struct, frozen=True, gc=False):
    """Status of one path.

    Attributes:
        path: The path that was asked for, or listed.
        is_directory: True for a directory, or a link that leads to one.
        size: Length in bytes; 0 for a directory.
        modified: Seconds since the epoch; None if the store does not say. Never used to decide what happened.
        identity: The store's proof that this is the very file that was written. A rename keeps it where
            `Capabilities.identity_through_rename` holds. None for directories, and where the store has none. If S3
            computed it as an etag of the content, it proves the bytes but not their writer; `stamp` proves the
            writer.
        is_link: True for a symbolic link, also a broken one. All but `is_directory` then describe the link itself: a
            rename or delete affects the link, not its target.
        is_special: True for a pipe, socket or device; in a bucket, for objects whose names no path can hold, under
            the prefix that they share.
        stamp: The stamp given when the file was created (see `committer.stores.uploads`); with the length it proves
            the writer. Only `Store.status` returns it, since S3's listings hold no metadata. None if there is none.
        refuses: Operations that the store would refuse, as far as it knows without a further call. A job checks them
            before its decision.
        version: The value that the store's conditions compare at this moment, where `Capabilities.versions` holds.
            Not an identity, since a rename changes it; it only spares a rename a look (see `Store.rename_file`).
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
    version: str | None = None


class Capable(Protocol):
    """Interface of an object that has abilities: a store."""

    @property
    def scheme(self) -> str:
        """See `committer.stores.base.Store.scheme`."""

    @property
    def capabilities(self) -> Capabilities:
        """See `committer.stores.base.Store.capabilities`."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of a store. Code asks these, never the type of a store.

    Attributes:
        directories: Directories are real: a file's parent must exist, and a directory can be empty.
        implicit_parents: `Store.put` and `Store.open_writer` create missing parents instead of failing, so a delayed
            request can bring a deleted directory back. (ADLS: "Path - Create", "Put Blob".) `Store.make_directory`
            does too, or it checks first, which is not atomic. Renames never do.
        atomic_file_rename: A file rename happens wholly or not at all.
        no_replace_rename: A file rename can fail atomically if the destination exists.
        replacing_rename: A file rename can replace an existing file atomically.
        atomic_directory_rename: A directory with all its content is renamed in one atomic step.
        deletes_trees: `Store.delete_directory` is one request, or one per page, whatever the directory holds.
        conditional_rename: A rename can require an identity of its source.
        versions: `FileStatus.version` is set, and a rename can require it of its source, without a look.
        identity: Files have an identity.
        identity_through_rename: A file keeps its identity when it is renamed.
        exclusive_put: `Store.put` can create only if absent, decided by the store.
        hard_links: The store implements `SupportsHardLinks`.
        checksum_sidecars: A file `.x.crc` is the checksum of `x` and is deleted with it, so no output can have such
            a name.
        local_paths: The store implements `SupportsLocalPaths`; symbolic links can exist.
        durable: The store implements `SupportsSync`: data survives a power loss only when synced.
        multipart: The store implements `committer.stores.uploads.SupportsUploads`.
        block_lists: The store implements `committer.stores.uploads.SupportsBlockLists`.
        conditional_delete: The store implements `committer.stores.abilities.SupportsConditionalDelete`.
        conditional_replace: The store implements `committer.stores.abilities.SupportsConditionalReplace`.
        deletes_by_name: The user declared that the service has no conditional delete. Published files are deleted by
            name, so a job gives each file a name that no other job uses.
        batch_delete: The store implements `SupportsBatchDelete`: it deletes many files in one call.
        conditional_batch_delete: With `batch_delete`, the service checks an identity for each file; where that takes
            a trial, only after `Store.probe` saw it.
        batch_rename: The store implements `SupportsBatchRename`: it renames many files in one call.
        tree_counts: The store implements `committer.stores.abilities.SupportsTreeCounts` and
            `SupportsBatchRename`: it counts the content of a directory in one call.
        tree_listing: The store implements `committer.stores.abilities.SupportsTreeListing`.
        directory_rights: With `local_paths`, the store can tell which directories it would create alike.
        examination: The store implements `committer.stores.examination.SupportsExamination`.
        case_folding: Names that differ only in case are one file.
        unicode_folding: Names that differ only in Unicode normalisation are one file.
        forbids_trailing_period: A name may not end in a period.
        max_name_bytes: Longest name of one segment, in UTF-8 bytes; None if unlimited.
        max_path_bytes: Longest whole path with its leading slash, in UTF-8 bytes; None if unlimited.
        max_parts: Most parts of an upload, or blocks of a list; None if unlimited, or without either. (S3 10,000,
            Azure 50,000.)
        min_part_bytes: Shortest part of an upload, except its last. (S3 5 MiB.)
        max_part_bytes: Longest part or block; None if unlimited. (S3 5 GiB, Azure 4000 MiB.)
        max_batch_delete: Most files that one call deletes; None if unlimited, or without `batch_delete`. (S3 1000.)
        default_io_rate: Requests per second that suit the service; None if unlimited.
    """

    directories: bool = True
    implicit_parents: bool = False
    atomic_file_rename: bool = True
    no_replace_rename: bool = True
    replacing_rename: bool = True
    atomic_directory_rename: bool = True
    deletes_trees: bool = False
    conditional_rename: bool = False
    versions: bool = False
    identity: bool = True
    identity_through_rename: bool = True
    exclusive_put: bool = True
    hard_links: bool = False
    checksum_sidecars: bool = False
    local_paths: bool = False
    durable: bool = False
    multipart: bool = False
    block_lists: bool = False
    conditional_delete: bool = False
    conditional_replace: bool = False
    deletes_by_name: bool = False
    batch_delete: bool = False
    conditional_batch_delete: bool = False
    batch_rename: bool = False
    tree_counts: bool = False
    tree_listing: bool = False
    directory_rights: bool = False
    examination: bool = False
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
        """Whether a delayed write fails once its directory was deleted, such as that of a cleaned-up job."""
        return self.directories and not self.implicit_parents

    @property
    def spares_others(self) -> bool:
        """Whether a delayed delete of a published file can never delete another job's file."""
        return self.conditional_delete or self.deletes_by_name

    @property
    def publishes_uploads(self) -> bool:
        """Whether a commit publishes files by completing uploads, for want of renames: the committer `magic`."""
        return self.multipart and not self.atomic_file_rename

    @property
    def publishes_block_lists(self) -> bool:
        """Whether a commit publishes files by lists of blocks, for want of renames: the committer `block-list`."""
        return self.block_lists and not self.atomic_file_rename

    @property
    def fences_drivers(self) -> bool:
        """Whether a rollback excludes every other driver of the job; elsewhere the user has to know that none is alive.

        Its one rename takes all sources away; or each upload aborted, or list of blocks used up, is a fence of its
        own.
        """
        return self.atomic_directory_rename or self.publishes_uploads or self.publishes_block_lists


class Wrapper:
    """Base of store wrappers of `inner`. A wrapper has an ability if its class and the inner store have it."""

    inner: Capable


P = TypeVar("P")
# Whether a class implements an ability, or forwards it.
_LACKS, _HAS, _PASSES_ON = range(3)


class Ability(Generic[P]):
    """Optional ability of stores, which callers look up by `of`.

    A store has it if its class has the methods of `protocol` and its `Capabilities` declare it; a `Wrapper` has it
    if its inner store does, too. Classes are inspected once, so that `of` is cheap enough for every file. Errors use
    `described`, a plural such as "hard links".

    Callers use the ability in place of the methods `in_place_of`. A subclass that overrides only one of those does
    not have the ability, since its override would never be called.
    """

    def __init__(
        self,
        protocol: type[Any],
        described: str,
        declared: Callable[[Capabilities], bool],
        *,
        in_place_of: tuple[str, ...] = (),
    ) -> None:
        self.protocol: type[Any] = protocol
        self.described: str = described
        self.declared: Callable[[Capabilities], bool] = declared
        self.methods: tuple[str, ...] = tuple(name for name in vars(protocol) if not name.startswith("_"))
        self._in_place_of = in_place_of
        self._classes: dict[type, int] = {}
        _ABILITIES.append(self)

    def of(self, store: Capable) -> P | None:
        """Returns the store, typed with the ability's methods, if it has the ability. No call."""
        asked = store
        while True:
            kind = type(asked)
            standing = self._classes.get(kind)
            if standing is None:
                standing = self._classes[kind] = self._standing_of(kind)
            if standing == _LACKS or not self.declared(asked.capabilities):
                return None
            if standing == _HAS:
                return cast("P", store)
            asked = cast("Wrapper", asked).inner

    def required(self, store: Capable, operation: str, path: StorePath | str = "") -> P:
        """Returns the same as `of`, for callers that cannot go without.

        Raises:
            UnsupportedError: The store does not have the ability.
        """
        able = self.of(store)
        if able is None:
            what, step = f"has no {self.described}", "ask the store's capabilities before calling this"
            while isinstance(store, Wrapper):
                store = store.inner
            missing = [method for method in self.methods if not callable(getattr(store, method, None))]
            if missing and self.declared(store.capabilities):
                what = f"declares {self.described}, and its class lacks {', '.join(missing)}"
                step = "install the release of the store's package for this one, or add what is missing"
            raise UnsupportedError(f"the store {store.scheme}: {what}", operation=operation, path=path, next_step=step)
        return able

    def _standing_of(self, kind: type) -> int:
        if not self._is_implemented_by(kind):
            return _LACKS
        return _PASSES_ON if issubclass(kind, Wrapper) else _HAS

    def _is_implemented_by(self, kind: type) -> bool:
        if not all(callable(getattr(kind, method, None)) for method in self.methods):
            return False

        def rank(name: str) -> int:
            """Returns the rank of the class that defines a method; the most derived class has rank 0."""
            classes = kind.__mro__
            return next((rank for rank, above in enumerate(classes) if name in vars(above)), len(classes))

        own = rank(self.methods[0])
        return all(rank(name) >= own for name in self._in_place_of)


_ABILITIES: Final[list[Ability[Any]]] = []


def abilities() -> Sequence[Ability[Any]]:
    """Returns every ability of the imported modules; `committer.stores.forwarding` imports all of them."""
    return tuple(_ABILITIES)


class SupportsHardLinks(Protocol):
    """Ability to give one file two names."""

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """Gives the file at `source` a second name; fails like a rename that replaces nothing."""


class SupportsLocalPaths(Protocol):
    """Ability of a disk of this machine: paths that any program can open, symbolic links, and rights."""

    def local_path(self, path: StorePath) -> str:
        """Returns the operating system's path."""

    async def enclose_file(self, path: StorePath, name: str) -> None:
        """Replaces a file, in one step, with a directory that holds it as `name`; does nothing to other entries.

        Raises:
            UnsupportedError: The file system cannot exchange two names, or has no hard links.
        """

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """Finds a link among directories and their parents below `root`, which may itself be one. One call for many.

        `directories` are relative names; those that do not exist are ignored. Returns the first name that is a link,
        of a directory or of one of its parents; None if there is none.
        """

    async def made_alike(self, pairs: Sequence[tuple[StorePath, StorePath]]) -> Sequence[bool]:
        """Compares directories with new ones, in one call: whether a rename gives what this process would create.

        A rename keeps owner, group and mode; `Store.make_directory` takes them from the process and the parent.
        Takes at least one pair of a directory and its future parent. Returns for each whether it has the owner,
        group, mode, access lists and attributes that a directory would have which this process creates in the
        parent, or in another new directory there. False if the store cannot tell, if either is missing or no
        directory, or if it holds files that would be lost in renames of single files
        (`Capabilities.checksum_sidecars`).
        """


class SupportsBatchRename(Protocol):
    """Ability to rename many files for little more than one costs: on a disk, by one hop to a thread."""

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        """Renames files in any order, as `Store.rename_file` does; replaces nothing. Without `seen` none may be a link.

        A cancelled call first ends what its thread has begun. Cheapest if files for one directory are adjacent.

        Args:
            renames: Source and destination of each.
            seen: Identity and length that each source must have, checked right before its rename; another file stays
                and is reported as `StorePreconditionError` or `StoreIsADirectoryError`.
            looks: False if no source is a directory: spares a store that renames both alike a look at each, except with
                `seen`. (A count of their directory tells, see
                `committer.stores.abilities.SupportsTreeCounts`.)

        Returns:
            Errors by index in `renames`; every other file was renamed.
        """


class SupportsSync(Protocol):
    """Ability to force data to the disk, for stores whose data survives a power loss only then."""

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """Forces a file's data, or a directory's entries, to the disk."""


class SupportsBatchDelete(Protocol):
    """Ability to delete many files in one call."""

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """Deletes files, whether or not they exist; of another identity than given only with None. One call.

        Not atomic: each name succeeds or fails alone. (S3's DeleteObjects answers 200 with a result per name, the
        same for a missing and a deleted one.) Identities are conditions, decided by the store. (S3: an ``ETag`` for
        each key.) Idempotent, also after a lost response: a deleted file is absent then, and a file put there since
        has another identity. For content that an etag cannot tell apart see
        `committer.stores.abilities.SupportsConditionalDelete.delete_file_if`.

        Args:
            files: At most `Capabilities.max_batch_delete` paths, each with the identity that its file must have, or
                None. No call for none.

        Returns:
            Errors by the path that was not deleted. A `StorePreconditionError` means that another file is there;
            services that answer the same for a missing file report that so, too.

        Raises:
            ConfigurationError: There are too many files.
            UnsupportedError: An identity was given without `Capabilities.conditional_batch_delete`; nothing was
                deleted.
            StoreError: The call as a whole failed.
        """


def has_conditions(files: Mapping[Any, str | None]) -> bool:
    """Whether `SupportsBatchDelete.delete_files` is given an identity for any of these files."""
    return any(identity is not None for identity in files.values())


HARD_LINKS: Final[Ability[SupportsHardLinks]] = Ability(SupportsHardLinks, "hard links", lambda can: can.hard_links)
LOCAL_PATHS: Final[Ability[SupportsLocalPaths]] = Ability(
    SupportsLocalPaths, "local paths", lambda can: can.local_paths
)
BATCH_RENAME: Final[Ability[SupportsBatchRename]] = Ability(
    SupportsBatchRename, "batch renames", lambda can: can.batch_rename, in_place_of=("rename_file",)
)
SYNC: Final[Ability[SupportsSync]] = Ability(SupportsSync, "syncing to the disk", lambda can: can.durable)
BATCH_DELETE: Final[Ability[SupportsBatchDelete]] = Ability(
    SupportsBatchDelete, "batch deletes", lambda can: can.batch_delete, in_place_of=("delete_file", "delete_file_if")
)


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

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """Replaces a whole file if it is the one that was `seen`, decided by the store. One call.

        (S3: PutObject with ``If-Match``; Google Cloud Storage: an insert with ``ifGenerationMatch``; Azure: Put Blob
        with ``If-Match``.) An S3-compatible service that ignores the condition replaces any file, so correctness
        must not rest on it alone. A lost response is not retried, since the second request would be refused.

        Raises:
            StorePreconditionError: Another file is there, or none; nothing was changed.
        """


CONDITIONAL_DELETE: Final[Ability[SupportsConditionalDelete]] = Ability(
    SupportsConditionalDelete, "conditional deletes", lambda can: can.conditional_delete
)
CONDITIONAL_REPLACE: Final[Ability[SupportsConditionalReplace]] = Ability(
    SupportsConditionalReplace, "conditional puts", lambda can: can.conditional_replace, in_place_of=("put",)
)


class TreeCounts(NamedTuple):
    """Number of files and directories (with itself) in a directory at any depth, and bytes of all files."""

    files: int
    directories: int
    size: int


class SupportsTreeCounts(Protocol):
    """Ability to count the content of a directory in one call, for less than looks at its files cost.

    A store that renames directories as it does files looks at each file before it renames it, unless the caller says
    that none is a directory (`looks` of `SupportsBatchRename.rename_files`). If a directory holds as many files,
    directories and bytes as a record says, a file of the record can be a directory only if other changes make up for
    that in all three counts.
    """

    async def count_tree(self, directory: StorePath) -> TreeCounts:
        """Counts the content of a directory. One call.

        Raises:
            StoreNotFoundError: The directory does not exist.
        """


TREE_COUNTS: Final[Ability[SupportsTreeCounts]] = Ability(
    SupportsTreeCounts, "counts of trees", lambda can: can.tree_counts
)


class SupportsTreeListing(Protocol):
    """Ability to list everything below a directory for the cost of an equally long listing of one directory."""

    def list_tree(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over all files and directories below `directory`, in any order.

        What other clients create, rename or delete meanwhile may or may not be listed.

        Raises:
            StoreNotFoundError: `directory` does not exist.
            StoreNotADirectoryError: `directory` is a file.
        """


TREE_LISTING: Final[Ability[SupportsTreeListing]] = Ability(
    SupportsTreeListing, "listings of trees", lambda can: can.tree_listing
)
