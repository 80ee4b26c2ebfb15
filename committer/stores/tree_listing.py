"""Everything below a directory, in one listing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import FileStatus


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
