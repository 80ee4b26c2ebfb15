"""Whether a directory has what one that is made now would have: owner, group, mode, and what a parent hands down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from committer.paths import StorePath
from committer.stores.abilities import Ability


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
