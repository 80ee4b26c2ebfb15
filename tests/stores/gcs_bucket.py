"""An emulated bucket, stores on it, and the way to its files that does not go through them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from committer.paths import StorePath
from committer.stores.gcs import GcsStore
from committer_testing.emulators.gcs import GcsEmulator, Settings, serve
from committer_testing.emulators.gcs.namespace import Draft
from committer_testing.emulators.gcs.preconditions import Preconditions

ROOT = StorePath("gs", "data", "/test/root")


def emulator_fixture(settings: Settings | None = None) -> Any:
    """The fixture `emulator`: a service with an empty bucket, `data`."""

    @pytest.fixture
    async def emulator() -> AsyncIterator[GcsEmulator]:
        async with serve(settings) as emulator:
            emulator.make_bucket("data")
            yield emulator

    return emulator


def bucket_fixtures(settings: Settings | None = None) -> tuple[Any, Any, Any]:
    """The fixtures `emulator`, `store` on it, and `channel`: the way to its files past any store."""

    @pytest.fixture
    async def store(emulator: GcsEmulator) -> AsyncIterator[GcsStore]:
        store = store_on(emulator)
        yield store
        await store.close()

    @pytest.fixture
    def channel(emulator: GcsEmulator) -> BucketChannel:
        return BucketChannel(emulator)

    return emulator_fixture(settings), store, channel


def store_on(emulator: GcsEmulator, **options: object) -> GcsStore:
    """A store; without a token unless told otherwise."""
    return GcsStore.open_for(ROOT, {"endpoint": emulator.url, **options})


@asynccontextmanager
async def serve_store(settings: Settings | None = None) -> AsyncIterator[tuple[GcsStore, GcsEmulator]]:
    """A store on a service of its own with an empty bucket."""
    async with serve(settings) as emulator:
        emulator.make_bucket("data")
        store = store_on(emulator)
        try:
            yield store, emulator
        finally:
            await store.close()


def user_file(directory: Path, emulator: GcsEmulator) -> Path:
    """A user's credentials, for which the emulator gives tokens."""
    path = directory / "user.json"
    told = {"type": "authorized_user", "client_id": "i", "client_secret": "s-canary", "refresh_token": "r-canary"}
    path.write_text(json.dumps({**told, "token_uri": f"{emulator.url}/token"}))
    return path


def service_file(directory: Path, emulator: GcsEmulator) -> Path:
    """A service account's, for which it gives them too."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "service.json"
    told = {"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com", "private_key": key.decode()}
    path.write_text(json.dumps({**told, "private_key_id": "1", "token_uri": f"{emulator.url}/token"}))
    return path


def requests(emulator: GcsEmulator, *operations: str) -> list[str]:
    """What the server was asked for, oldest first, as far as it is one of some operations."""
    return [entry.operation for entry in emulator.conduct.log if not operations or entry.operation in operations]


class BucketChannel:
    def __init__(self, emulator: GcsEmulator, root: StorePath = ROOT) -> None:
        self._emulator = emulator
        self._prefix = f"{root.path[1:]}/"

    async def files(self) -> dict[str, bytes]:
        return {
            name.removeprefix(self._prefix): one.data
            for name, one in self._emulator.namespace.buckets["data"].objects.items()
            if name.startswith(self._prefix) and not name.endswith("/")
        }

    async def directories(self) -> set[str]:
        return set()

    async def write(self, name: str, data: bytes) -> None:
        self._emulator.namespace.insert("data", self._prefix + name, data, Draft(), Preconditions({}))
