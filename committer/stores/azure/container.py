"""Which paths belong to a container, and which names its service keeps as they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from committer.errors import ConfigurationError, InvalidPathError, StoreNotFoundError
from committer.paths import StorePath
from committer.stores.http import check_name

MAX_NAME_BYTES: Final = 1024


class Container:
    """One container of an account, by the schemes and the authority of its paths.

    Args:
        schemes: Those that lead to it.
        authority: ``container@account.dfs.core.windows.net``, or what else names it.
    """

    def __init__(self, schemes: Collection[str], authority: str) -> None:
        self._schemes = schemes
        self._authority = authority

    def checked(self, path: StorePath) -> StorePath:
        """The path, where it belongs here.

        Raises:
            ConfigurationError: It belongs to another store.
            InvalidPathError: The service takes no such name.
        """
        if path.authority != self._authority or path.scheme not in self._schemes:
            raise ConfigurationError("the path belongs to another store", path=path)
        check_name(path, MAX_NAME_BYTES)
        return path

    def existing(self, path: StorePath, operation: str) -> StorePath:
        """The path, where something can stand there.

        Raises:
            StoreNotFoundError: A name in it ends in a period.
        """
        # The service may drop the period, and look at, or delete, what has the name without it.
        if ends_in_period(self.checked(path)):
            raise StoreNotFoundError("no name here ends in a period", operation=operation, path=path)
        return path

    def new(self, path: StorePath) -> StorePath:
        """The path, where something can be put there.

        Raises:
            InvalidPathError: A name in it ends in a period.
        """
        if ends_in_period(self.checked(path)):
            raise InvalidPathError(
                "a name ends in a period, which the service does not keep",
                path=path,
                next_step="end the names of files and directories in another character",
            )
        return path


def ends_in_period(path: StorePath) -> bool:
    """Whether one of its names does."""
    return "./" in path.path or path.path.endswith(".")
