"""A store in which something else happens at a chosen moment of a commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from committer.paths import StorePath
from committer.stores.local import LocalStore


class HookedStore(LocalStore):
    """The local store. Once, at the first rename to a name, it lets something else happen.

    Right before a file is renamed to it, or right after a directory was.
    """

    def arm(self, name: str, action: Callable[[], Awaitable[None]]) -> HookedStore:
        """Sets the name and what happens."""
        self.fired = 0
        self._name, self._action = name, action
        return self

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """Maybe acts, then renames."""
        await self._maybe(destination)
        await super().rename_file(source, destination, replace=replace, identity=identity)

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames, then maybe acts."""
        await super().rename_directory(source, destination)
        await self._maybe(destination)

    async def _maybe(self, destination: StorePath) -> None:
        if destination.name == self._name and not self.fired:
            self.fired += 1
            await self._action()
