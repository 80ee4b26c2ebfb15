"""Ways to a store's files that do not go through the store."""

from __future__ import annotations

import os

from committer.paths import StorePath
from committer.stores.memory import MemorySpace


class DiskChannel:
    def __init__(self, root: StorePath) -> None:
        self._root = root.path

    async def files(self) -> dict[str, bytes]:
        found = {}
        for directory, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.islink(path):
                    continue
                with open(path, "rb") as file:
                    found[os.path.relpath(path, self._root)] = file.read()
        return found

    async def directories(self) -> set[str]:
        return {
            os.path.relpath(os.path.join(directory, name), self._root)
            for directory, names, _ in os.walk(self._root)
            for name in names
            if not os.path.islink(os.path.join(directory, name))
        }

    async def link(self, name: str, leads_to: str) -> None:
        path = os.path.join(self._root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(leads_to, path)

    async def links(self) -> dict[str, str]:
        return {
            os.path.relpath(path, self._root): os.readlink(path)
            for directory, below, names in os.walk(self._root)
            for path in (os.path.join(directory, name) for name in (*below, *names))
            if os.path.islink(path)
        }

    async def write(self, name: str, data: bytes) -> None:
        path = os.path.join(self._root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


class SpaceChannel:
    def __init__(self, space: MemorySpace, root: StorePath) -> None:
        self._space = space
        self._prefix = f"{root.path}/"

    async def files(self) -> dict[str, bytes]:
        return {
            path.removeprefix(self._prefix): data
            for path, data in self._space.files().items()
            if path.startswith(self._prefix)
        }

    async def directories(self) -> set[str]:
        return {path.removeprefix(self._prefix) for path in self._space.directories() if path.startswith(self._prefix)}

    async def write(self, name: str, data: bytes) -> None:
        self._space.write(self._prefix + name, data)
