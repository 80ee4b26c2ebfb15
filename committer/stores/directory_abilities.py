"""Optional abilities of stores with real directories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import FileStatus


class TreeCounts(NamedTuple):
    """Number of files and directories (with itself) in a directory at any depth, and bytes of all files."""

    files: int
    directories: int
    size: int


class SupportsTreeCounts(Protocol):
    """Ability to count the content of a directory in one call, for less than looks at its files cost.

    A store that renames directories as it does files looks at each file before it renames it, unless it is told that
    none is a directory (`looks` of `SupportsBatchRename.rename_files`). If a directory holds as many files, directories
    and bytes as a record says, a file of the record can be a directory only if other changes make up for that in all
    three counts.
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
