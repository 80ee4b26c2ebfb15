"""The pacing wrapper is a store as good as the one that it wraps."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from committer.events import Statistics
from committer.flow.pacing import Pacer
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemorySpace, MemoryStore
from committer.stores.paced import PacedStore
from committer.testing.conformance import Channel, StoreConformance
from tests.stores.channels import DiskChannel, SpaceChannel

_numbers = itertools.count()


class TestPacedOverMemory(StoreConformance):
    many = 500

    @pytest.fixture(params=["local", "adls", "s3", "azure-flat"])
    def space(self, request: pytest.FixtureRequest) -> MemorySpace:
        return MemoryStore.space(f"paced-conformance-{next(_numbers)}", request.param)

    @pytest.fixture
    def root(self, space: MemorySpace) -> StorePath:
        root = space.path("test/root")
        space.tree.make_directory(root, parents=True)
        return root

    @pytest.fixture
    def channel(self, space: MemorySpace, root: StorePath) -> Channel:
        return SpaceChannel(space, root)

    @pytest.fixture
    def store(self, space: MemorySpace) -> Store:
        return PacedStore(space.store(), pacer=Pacer("e", concurrency=2), statistics=Statistics())


class TestPacedOverDisk(StoreConformance):
    @pytest.fixture
    def root(self, tmp_path: Path) -> StorePath:
        return StorePath.of(tmp_path)

    @pytest.fixture
    def channel(self, root: StorePath) -> Channel:
        return DiskChannel(root)

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = PacedStore(LocalStore(), pacer=Pacer("e", concurrency=4, rate=1e5), statistics=Statistics())
        yield store
        await store.close()
