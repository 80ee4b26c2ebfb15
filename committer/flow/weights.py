"""What one wire call costs of an endpoint's rate, by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["read", "write", "delete"]


class Weights(NamedTuple):
    """Tokens that one call of each kind costs; 0 leaves a kind out of the rate, not out of the concurrency.

    One each, as services count: Azure's and S3's limits are requests a second. Hadoop's ABFS client paces renames
    alone, one token each (`AzureBlobFileSystem.commitSingleFileByRename`); ``Weights(0, 1, 0)`` comes nearest to it.

    Attributes:
        read: Status, listing, reading.
        write: Creating, writing, renaming.
        delete: Deleting; of a batch, each name.
    """

    read: float = 1.0
    write: float = 1.0
    delete: float = 1.0

    @property
    def by_kind(self) -> dict[Kind, float]:
        """The same as a table."""
        return {"read": self.read, "write": self.write, "delete": self.delete}


ONE_EACH: Final[Mapping[Kind, float]] = Weights().by_kind
