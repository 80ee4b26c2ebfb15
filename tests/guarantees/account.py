"""A destination in an emulated account of Azure Data Lake Storage Gen2, seen past the store."""

from __future__ import annotations

from collections.abc import Iterator

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.base import Store
from committer_testing.emulators.adls import AdlsEmulator
from committer_testing.emulators.adls.nodes import Node
from committer_testing.simulate.worlds import OUT
from tests.guarantees.walked import WalkedWorld
from tests.stores.adls_account import AUTHORITY, make, store_on


class AccountWorld(WalkedWorld):
    """The filesystem `data` of an account, new."""

    def __init__(self, emulator: AdlsEmulator) -> None:
        self._emulator = emulator
        emulator.namespace.create_filesystem("data", {})

    @property
    def destination(self) -> StorePath:
        return StorePath("abfss", AUTHORITY, f"/{OUT}")

    def store(self) -> Store:
        return store_on(self._emulator)

    def files(self, but: str | None = None) -> dict[str, bytes]:
        return {name: node.data for name, node in self._walk(but) if not node.is_directory}

    def read(self, name: str) -> bytes | None:
        node = self._emulator.namespace.find("data", name)
        return None if node is None or node.is_directory else node.data

    def directories(self) -> set[str]:
        return {name for name, node in self._walk() if node.is_directory}

    def write(self, name: str, data: bytes) -> None:
        make(self._emulator, name, data=data)

    def remove(self, name: str) -> None:
        parent, _, last = name.rpartition("/")
        if self.read(name) is None:
            raise StoreError("no file is there", path=name)
        self._emulator.namespace.get("data", parent).remove(last)

    def forget(self) -> None:
        self._emulator.namespace.filesystems.clear()

    def _walk(self, but: str | None = None) -> Iterator[tuple[str, Node]]:
        pending = [("", self._emulator.namespace.filesystem("data").root)]
        while pending:
            base, directory = pending.pop()
            for last, node in (directory.children or {}).items():
                name = f"{base}{last}"
                if name == but:
                    continue
                yield name, node
                if node.is_directory:
                    pending.append((f"{name}/", node))
