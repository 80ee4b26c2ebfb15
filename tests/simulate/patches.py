"""Changing the engine for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from committer.stores.base import Store
from committer.stores.helpers import create_exclusively


class Patches:
    """Changes to the engine that are taken back together."""

    def __init__(self) -> None:
        self._undo: list[tuple[object, str, object]] = []

    def method(self, owner: type, name: str, by: Callable[..., Any]) -> None:
        """Puts another method into a class."""
        self._set(owner, name, by)

    def function(self, function: Callable[..., Any], by: Callable[..., Any]) -> None:
        """Puts another function wherever the engine imported this one to."""
        for name, module in list(sys.modules.items()):
            if not name.startswith("committer."):
                continue
            for attribute, value in list(vars(module).items()):
                if value is function:
                    self._set(module, attribute, by)

    def undo(self) -> None:
        """Takes everything back."""
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)
        self._undo.clear()

    def _set(self, owner: object, name: str, by: object) -> None:
        self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, by)


def create_by_put(patches: Patches, name: str) -> None:
    """The record of this name is written over whatever exists there."""

    async def create(store: Store, path: Any, data: bytes, **options: Any) -> bytes:
        if path.name != name:
            return await create_exclusively(store, path, data, **options)
        await store.put(path, data)
        return data

    patches.function(create_exclusively, create)
