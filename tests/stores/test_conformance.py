"""Every store, and every wrapper, passes the one suite."""

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
from committer.stores.memory import PROFILES, MemorySpace, MemoryStore
from committer.stores.paced import PacedStore
from committer.testing.conformance import Channel, StoreConformance
from committer.testing.faults import FaultyStore
from tests.stores.channels import DiskChannel, SpaceChannel

_numbers = itertools.count()


class _OnDisk(StoreConformance):
    many = 1100

    @pytest.fixture
    def root(self, tmp_path: Path) -> StorePath:
        return StorePath.of(tmp_path)

    @pytest.fixture
    def channel(self, root: StorePath) -> Channel:
        return DiskChannel(root)


@pytest.mark.every_loop
class TestLocal(_OnDisk):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = LocalStore()
        yield store
        await store.close()


class TestLocalByLinks(_OnDisk):
    """As on a file system that has no rename that fails when its target exists."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = LocalStore(no_replace="link")
        yield store
        await store.close()


class _InMemory(StoreConformance):
    many = 500

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
        return space.store()


_VARIANTS: dict[str, tuple[str, dict[str, int]]] = {
    **{profile: (profile, {}) for profile in PROFILES},
    "local, all names folded": ("local", {"case_folding": True, "unicode_folding": True}),
    "local, no identity": ("local", {"identity": False}),
    "hdfs, directories not renamed": ("hdfs", {"atomic_directory_rename": False}),
    "adls, names folded": ("adls", {"case_folding": True}),
    "s3, few parts, none short": ("s3", {"min_part_bytes": 16, "max_parts": 40, "max_batch_delete": 5}),
    "s3, no identity": (
        "s3",
        {
            "identity": False,
            "conditional_delete": False,
            "conditional_batch_delete": False,
            "conditional_replace": False,
        },
    ),
}


class TestMemory(_InMemory):
    @pytest.fixture(params=list(_VARIANTS))
    def space(self, request: pytest.FixtureRequest) -> MemorySpace:
        profile, flags = _VARIANTS[request.param]
        return MemoryStore.space(f"conformance-{next(_numbers)}", profile, **flags)


class TestPacedOverMemory(_InMemory):
    @pytest.fixture(params=["local", "adls", "s3", "azure-flat"])
    def space(self, request: pytest.FixtureRequest) -> MemorySpace:
        return MemoryStore.space(f"conformance-{next(_numbers)}", request.param)

    @pytest.fixture
    def store(self, space: MemorySpace) -> Store:
        return PacedStore(space.store(), pacer=Pacer("e", concurrency=2), statistics=Statistics())


class TestPacedOverDisk(_OnDisk):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = PacedStore(LocalStore(), pacer=Pacer("e", concurrency=4, rate=1e5), statistics=Statistics())
        yield store
        await store.close()


class TestFaultyStoreWithoutFaults(_InMemory):
    @pytest.fixture(params=["local", "s3", "azure-flat"])
    def space(self, request: pytest.FixtureRequest) -> MemorySpace:
        return MemoryStore.space(f"conformance-{next(_numbers)}", request.param)

    @pytest.fixture
    def store(self, space: MemorySpace) -> Store:
        return FaultyStore(space.store())


class TestFaultyStoreOverDisk(_OnDisk):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = FaultyStore(LocalStore())
        yield store
        await store.close()
