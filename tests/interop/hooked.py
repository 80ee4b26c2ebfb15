"""A store in which something else happens at a chosen moment of a commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.local import LocalStore


class HookedStore(LocalStore):
    """The local store. Once, right before a file of a name is created or renamed to it, it lets something else happen."""

    def arm(self, name: str, action: Callable[[], Awaitable[object]]) -> HookedStore:
        """Sets the name and what happens."""
        self.fired = 0
        self._name, self._action = name, action
        return self

    async def rename_file(self, source: StorePath, destination: StorePath, **choices: Any) -> None:
        """Maybe acts, then renames."""
        await self._maybe(destination)
        await super().rename_file(source, destination, **choices)

    async def put(self, path: StorePath, data: bytes, **choices: Any) -> FileStatus:
        """Maybe acts, then writes."""
        await self._maybe(path)
        return await super().put(path, data, **choices)

    async def _maybe(self, destination: StorePath) -> None:
        if destination.name == self._name and not self.fired:
            self.fired += 1
            await self._action()
