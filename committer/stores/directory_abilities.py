"""Optional abilities of stores with real directories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import FileStatus, Store


class SupportsDirectoryRights(Protocol):
    """It can be told whether a directory that is renamed is, at its new place, as one that this process makes there.

    A rename keeps what a directory has; `Store.make_directory` gives it what this process and the parent say.
    """

    async def made_alike(self, pairs: Sequence[tuple[StorePath, StorePath]]) -> Sequence[bool]:
        """Looks at many directories in one call.

        Args:
            pairs: At least one, each with the directory that one like it would be made in, or below a new one
                in that.

        Returns:
            Of each whether it has all that one which this process makes there would have: owner, group, mode, access
            lists, attributes. False where that cannot be told, or where either is not there or is no directory; also
            where it holds what its files lose when they are renamed one by one (`Capabilities.checksum_sidecars`).
        """


DIRECTORY_RIGHTS: Final[Ability[SupportsDirectoryRights]] = Ability(
    SupportsDirectoryRights, "comparison of directories", lambda can: can.directory_rights
)


class SupportsKnownDirectories(Protocol):
    """A rename of a directory costs a look at it, since the service would rename a file as well; here it does not."""

    async def rename_known_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory as `Store.rename_directory` does, and asks of nothing whether it is one.

        Where a file stands at `source` after all, that is renamed.

        Raises:
            StoreNotFoundError: Nothing is at `source`; with the outcome ``unknown`` where a directory stands at
                `destination`, which this very request may have put there.
            StoreError: As `Store.rename_directory`.
        """


KNOWN_DIRECTORIES: Final[Ability[SupportsKnownDirectories]] = Ability(
    SupportsKnownDirectories,
    "renames of known directories",
    lambda can: can.known_directories,
    in_place_of="rename_directory",
)


async def rename_known_directory(store: Store, source: StorePath, destination: StorePath) -> None:
    """Renames a directory that the caller knows to be one, or need not know; one call on every store."""
    able = KNOWN_DIRECTORIES.of(store)
    if able is None:
        await store.rename_directory(source, destination)
    else:
        await able.rename_known_directory(source, destination)


class TreeCounts(NamedTuple):
    """What a directory holds, at any depth.

    Attributes:
        files: How many files.
        directories: How many directories, itself among them.
        size: Bytes of all files.
    """

    files: int
    directories: int
    size: int


class SupportsTreeCounts(Protocol):
    """One call counts what a directory holds, for less than looks at its files cost.

    A store that renames directories as it does files looks at each file before it renames it. Where a directory holds
    as many files, directories and bytes as a record says, a file that the record names can be a directory only if other
    changes make up for that in all three counts.
    """

    async def rename_counted_files(self, renames: Sequence[tuple[StorePath, StorePath]]) -> dict[int, StoreError]:
        """As `SupportsBatchRename.rename_files`, of sources that are known to be no directories: no look at them."""

    async def count_tree(self, directory: StorePath) -> TreeCounts:
        """Counts what a directory holds: one call.

        Raises:
            StoreNotFoundError: It is not there.
        """


TREE_COUNTS: Final[Ability[SupportsTreeCounts]] = Ability(
    SupportsTreeCounts, "counts of trees", lambda can: can.tree_counts, in_place_of="rename_files"
)


class SupportsTreeListing(Protocol):
    """One listing shows all that is below a directory, for what as long a listing of one directory costs."""

    def list_tree(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over everything below `directory`, in any order: files and directories, not `directory` itself.

        What another client makes, renames or deletes meanwhile may or may not be shown.

        Raises:
            StoreNotFoundError: Nothing is at `directory`.
            StoreNotADirectoryError: A file is there.
        """


TREE_LISTING: Final[Ability[SupportsTreeListing]] = Ability(
    SupportsTreeListing, "listings of trees", lambda can: can.tree_listing
)
