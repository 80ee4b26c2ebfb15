"""Capabilities and optional abilities of stores, and the status of a path.

Uploads and block lists are in `committer.stores.uploads`, deletes and puts on conditions in
`committer.stores.conditions`, what only `committer doctor` asks for is in
`committer.stores.examination`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from committer.errors import StoreError, UnsupportedError
from committer.paths import StorePath


class Refusals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a store knows that it would refuse to do with a file or directory; each a reason, empty where none is known.

    Attributes:
        move: To rename it away, to replace it or to delete it.
        link: To give it a second name.
        enter: To put anything into it.
        mounted: Whether it is the top of another volume, or a link to a directory there: nothing can be renamed into
            it, or out of it.
        advice: What a user does so that it can be moved, where the store knows.
    """

    move: str = ""
    link: str = ""
    enter: str = ""
    mounted: bool = False
    advice: str = ""


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
        is_special: Whether it is neither file, directory nor link: a pipe, a socket, a device; in a bucket, objects
            whose names no path can hold, under the name that all of them begin with.
        stamp: What the file was stamped with when it was made (see `committer.stores.uploads`): proves, with its
            length, who wrote it. Told by `Store.status` only: S3's listings hold no metadata. None without one.
        refuses: What the store would refuse to do with it, where it knows without a further call; None where it knows
            of nothing. A job refuses before its decision what would stop it afterwards.
        version: What the store's conditions know this file by at this moment, where `Capabilities.versions` holds. No
            identity: a rename changes it, and nothing compares it. It only saves a rename a look (see
            `committer.stores.abilities.SupportsVersions`).
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
    """What is asked for its abilities: a store."""

    @property
    def scheme(self) -> str:
        """See `committer.stores.base.Store.scheme`."""

    @property
    def capabilities(self) -> Capabilities:
        """See `committer.stores.base.Store.capabilities`."""


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
        deletes_trees: `Store.delete_directory` is one request of the service, or one a page, whatever is below.
        conditional_rename: A rename can be told which identity its source must have.
        versions: The store implements `SupportsVersions`: statuses hold a version, on whose condition a file is renamed
            without a look.
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
        conditional_delete: The store implements `committer.stores.conditions.SupportsConditionalDelete`.
        conditional_replace: The store implements `committer.stores.conditions.SupportsConditionalReplace`.
        deletes_by_name: The user declared that the service knows no conditional delete. Published files are deleted by
            name, so a job gives each file a name that no other job uses.
        batch_delete: The store implements `SupportsBatchDelete`: it deletes many files in one call.
        conditional_batch_delete: The store implements
            `committer.stores.conditions.SupportsConditionalBatchDelete`, and the service hears each file's condition:
            where that takes a trial, only once `Store.probe` saw it.
        batch_rename: The store implements `SupportsBatchRename`: it renames many files in one call.
        tree_counts: The store implements `committer.stores.directory_abilities.SupportsTreeCounts`, beside
            `SupportsBatchRename`: it counts what a directory holds in one call.
        tree_listing: The store implements `committer.stores.directory_abilities.SupportsTreeListing`.
        known_directories: The store implements `committer.stores.directory_abilities.SupportsKnownDirectories`.
        directory_rights: The store implements `committer.stores.directory_abilities.SupportsDirectoryRights`.
        metadata: The store implements `SupportsMetadata`: it keeps texts beside a file's content.
        examination: The store implements `committer.stores.examination.SupportsExamination`.
        trials: The store implements `committer.stores.examination.SupportsTrials`.
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
    deletes_trees: bool = False
    conditional_rename: bool = False
    versions: bool = False
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
    conditional_replace: bool = False
    deletes_by_name: bool = False
    batch_delete: bool = False
    conditional_batch_delete: bool = False
    batch_rename: bool = False
    tree_counts: bool = False
    tree_listing: bool = False
    known_directories: bool = False
    directory_rights: bool = False
    metadata: bool = False
    examination: bool = False
    trials: bool = False
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
    def spares_others(self) -> bool:
        """Whether a delayed delete of a published file can never meet another job's file."""
        return self.conditional_delete or self.deletes_by_name

    @property
    def publishes_uploads(self) -> bool:
        """Whether files become visible by completing uploads, since none can be renamed: the committer `magic`."""
        return self.multipart and not self.atomic_file_rename

    @property
    def publishes_block_lists(self) -> bool:
        """Whether files become visible by lists of blocks, since none can be renamed: the committer `block-list`."""
        return self.block_lists and not self.atomic_file_rename

    @property
    def fences_drivers(self) -> bool:
        """Whether a rollback keeps every other driver of the job out: one rename takes all sources away, or each upload
        that is ended, and each list of blocks that is used up, is a fence of its own. Elsewhere the user has to know
        that no other driver is alive.
        """
        return self.atomic_directory_rename or self.publishes_uploads or self.publishes_block_lists


class Wrapper:
    """What wraps a store. It has the abilities that it passes on and the inner store has.

    Attributes:
        inner: The store that is wrapped.
    """

    inner: Capable


P = TypeVar("P")
# Of a class, to an ability.
_LACKS, _HAS, _PASSES_ON = range(3)


class Ability(Generic[P]):
    """An optional ability: how callers ask for it, the same way for each, of a store or of what wraps one.

    A store has it if its class has the methods and its `Capabilities` declare it; a `Wrapper` if what it wraps has it
    too. Whether a class has the methods is looked at once a class, so that it can be asked for every file.

    Args:
        protocol: The methods.
        described: What it is called in errors, in the plural: "hard links".
        declared: Whether a store declares it.
        in_place_of: The method of `Store` that is not called where this is: one call of it stands for one or many. A
            subclass that overrides that method alone does not have the ability: its own would never be called.
    """

    def __init__(
        self,
        protocol: type[Any],
        described: str,
        declared: Callable[[Capabilities], bool],
        *,
        in_place_of: str = "",
    ) -> None:
        self.protocol: type[Any] = protocol
        self.described: str = described
        self.declared: Callable[[Capabilities], bool] = declared
        self.methods: tuple[str, ...] = tuple(name for name in vars(protocol) if not name.startswith("_"))
        self._in_place_of = in_place_of
        self._classes: dict[type, int] = {}
        _ABILITIES.append(self)

    def of(self, store: Capable) -> P | None:
        """The store with the methods of the ability, if it has it. No call."""
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
        """As `of`, for callers that need it.

        Raises:
            UnsupportedError: The store does not have it.
        """
        able = self.of(store)
        if able is None:
            raise UnsupportedError(
                f"the store {store.scheme}: has no {self.described}",
                operation=operation,
                path=path,
                next_step="ask the store's capabilities before calling this",
            )
        return able

    def _standing_of(self, kind: type) -> int:
        if not self._is_implemented_by(kind):
            return _LACKS
        return _PASSES_ON if issubclass(kind, Wrapper) else _HAS

    def _is_implemented_by(self, kind: type) -> bool:
        if not all(callable(getattr(kind, method, None)) for method in self.methods):
            return False
        if not self._in_place_of:
            return True
        # The rank of the class that each is defined in, the most derived first.
        ranks = [
            next(rank for rank, above in enumerate(kind.__mro__) if name in vars(above))
            for name in (self._in_place_of, self.methods[0])
        ]
        return ranks[0] >= ranks[1]


_ABILITIES: Final[list[Ability[Any]]] = []


def abilities() -> Sequence[Ability[Any]]:
    """Every ability of the modules that were imported; all of them once `committer.stores.forwarding` was."""
    return tuple(_ABILITIES)


class SupportsHardLinks(Protocol):
    """A file can have two names at once."""

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """Gives the file at `source` a second name; fails like a no-replace rename."""


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


class SupportsLocalPaths(Protocol):
    """Files have paths that any program of this machine can open."""

    def local_path(self, path: StorePath) -> str:
        """The operating system's path."""

    async def enclose_file(self, path: StorePath, name: str) -> None:
        """Replaces a file, in one step, with a directory that holds the file as `name`; does nothing to other entries.

        Raises:
            UnsupportedError: The file system cannot exchange two names, or has no hard links.
        """


class SupportsBatchRename(Protocol):
    """Many files can be renamed for little more than what one costs here: on a disk, by one hop to a thread."""

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        identities: Sequence[str | None] | None = None,
    ) -> dict[int, StoreError]:
        """Renames files as `Store.rename_file` does one, replacing nothing, in any order; without `seen` no link among
        them.

        What a thread has begun is ended before a cancellation goes on. It costs least where files that go into one
        directory stand next to one another.

        Args:
            renames: Source and destination of each.
            seen: Identity and length that each source must have, looked at right before its rename. What has others is
                not renamed: `StorePreconditionError`, or `StoreIsADirectoryError`.
            identities: Identity that each source is said to have, None where none is said: it can spare looks, and is
                no condition.

        Returns:
            What went wrong, by index in `renames`; every other file was renamed.
        """


class SupportsVersions(Protocol):
    """A file that was just written or seen can be renamed without a look at what it is."""

    async def rename_version(
        self, source: StorePath, destination: StorePath, *, version: str, identity: str | None
    ) -> None:
        """Renames a file as `Store.rename_file` does, replacing nothing. One call, if the source has the version.

        The version is a condition of that call, and a proof of the file as long as it is met. Where it is not (the file
        was renamed and back since, a record says something that is none), the source is looked at as by
        `Store.rename_file`, and its identity counts. Without an identity nothing but the version proves the file, and
        one of another version stays.

        Args:
            source: The file.
            destination: Its new path.
            version: What `FileStatus.version` said of it.
            identity: What it must be, where it has another version; None where no identity is known.

        Raises:
            StorePreconditionError: The source is another file, or nothing proves that it is not.
            StoreError: As `Store.rename_file`.
        """


class SupportsSync(Protocol):
    """What is written survives a power loss only when synced."""

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """Forces a file's data, or a directory's entries, to the disk."""


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


HARD_LINKS: Final[Ability[SupportsHardLinks]] = Ability(SupportsHardLinks, "hard links", lambda can: can.hard_links)
LINKS: Final[Ability[SupportsLinks]] = Ability(SupportsLinks, "symbolic links", lambda can: can.links)
LOCAL_PATHS: Final[Ability[SupportsLocalPaths]] = Ability(
    SupportsLocalPaths, "local paths", lambda can: can.local_paths
)
BATCH_RENAME: Final[Ability[SupportsBatchRename]] = Ability(
    SupportsBatchRename, "batch renames", lambda can: can.batch_rename, in_place_of="rename_file"
)
VERSIONS: Final[Ability[SupportsVersions]] = Ability(
    SupportsVersions, "renames by version", lambda can: can.versions, in_place_of="rename_file"
)
SYNC: Final[Ability[SupportsSync]] = Ability(SupportsSync, "syncing to the disk", lambda can: can.durable)
METADATA: Final[Ability[SupportsMetadata]] = Ability(SupportsMetadata, "metadata", lambda can: can.metadata)
BATCH_DELETE: Final[Ability[SupportsBatchDelete]] = Ability(
    SupportsBatchDelete, "batch deletes", lambda can: can.batch_delete, in_place_of="delete_file"
)
