"""How much a directory holds, asked in one call, and renames of files that a count proved to be files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.abilities import Ability


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
