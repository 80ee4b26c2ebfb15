"""Renames of directories that are known to be such, where a store would look at each before."""

from __future__ import annotations

from typing import Final, Protocol

from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import Store


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
