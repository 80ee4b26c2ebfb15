"""An emulated account, stores on it, and the way to its files that does not go through them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from committer.paths import StorePath
from committer.stores.adls import AdlsStore
from committer_testing.emulators.adls import AdlsEmulator, Settings, serve
from committer_testing.emulators.adls.conditions import Conditions
from committer_testing.emulators.adls.nodes import Node

AUTHORITY = "data@devstoreaccount1.dfs.core.windows.net"
ROOT = StorePath("abfss", AUTHORITY, "/test/root")


def put_files(emulator: AdlsEmulator) -> None:
    """Makes the container and the directory that tests work in."""
    emulator.namespace.create_filesystem("data", {})
    make(emulator, ROOT.path, directory=True)


def make(emulator: AdlsEmulator, path: str, *, directory: bool = False, data: bytes = b"") -> None:
    made = emulator.namespace.create(
        "data", path.strip("/"), directory=directory, conditions=Conditions({}), lease=None
    )
    made.data = data


def store_on(emulator: AdlsEmulator, **options: object) -> AdlsStore:
    given = {"endpoint": emulator.dfs_url, "account_key": emulator.settings.key, **options}
    return AdlsStore.open_for(ROOT, {name: value for name, value in given.items() if value is not None})


def account_fixture(settings: Settings | None = None) -> Any:
    """The fixture `emulator`: an account with the directory that tests work in."""

    @pytest.fixture
    async def emulator() -> AsyncIterator[AdlsEmulator]:
        async with serve(settings) as emulator:
            put_files(emulator)
            yield emulator

    return emulator


@asynccontextmanager
async def serve_store(settings: Settings | None = None) -> AsyncIterator[tuple[AdlsStore, AdlsEmulator]]:
    """A store on an account of its own."""
    async with serve(settings) as emulator:
        put_files(emulator)
        store = store_on(emulator)
        try:
            yield store, emulator
        finally:
            await store.close()


def signature(emulator: AdlsEmulator) -> str:
    """A shared access signature for the whole account, made by the official package."""
    official = pytest.importorskip("azure.storage.filedatalake")
    text: str = official.generate_account_sas(
        emulator.settings.account,
        emulator.settings.key,
        resource_types=official.ResourceTypes(service=True, file_system=True, object=True),
        permission=official.AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return text


def requests(emulator: AdlsEmulator, *operations: str) -> list[str]:
    """What the server was asked for, oldest first, as far as it is one of some operations."""
    return [entry.operation for entry in emulator.conduct.log if not operations or entry.operation in operations]


class AccountChannel:
    def __init__(self, emulator: AdlsEmulator, root: StorePath = ROOT) -> None:
        self._emulator = emulator
        self._root = root

    def _walk(self) -> dict[str, Node]:
        found: dict[str, Node] = {}

        def enter(node: Node, base: str) -> None:
            for name, child in (node.children or {}).items():
                found[base + name] = child
                enter(child, f"{base}{name}/")

        top = self._emulator.namespace.find("data", self._root.path[1:])
        if top is not None:
            enter(top, "")
        return found

    async def files(self) -> dict[str, bytes]:
        return {name: node.data for name, node in self._walk().items() if not node.is_directory}

    async def directories(self) -> set[str]:
        return {name for name, node in self._walk().items() if node.is_directory}

    async def write(self, name: str, data: bytes) -> None:
        make(self._emulator, f"{self._root.path}/{name}", data=data)
