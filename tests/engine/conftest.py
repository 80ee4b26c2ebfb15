"""Places that functional tests run on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from tests.engine.places import PROFILES, MemoryPlace, Place, make_place


@pytest.fixture(params=PROFILES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Each kind of place in turn."""
    made = make_place(request.param, tmp_path)
    yield made
    await made.store.close()


@pytest.fixture
def memory() -> MemoryPlace:
    """A memory space that is like a local disk."""
    return MemoryPlace("local")


@pytest.fixture
def flat() -> MemoryPlace:
    """A memory space without directories."""
    return MemoryPlace("gcs")


@pytest.fixture(scope="session")
def _guard(_guard: BlockBuster) -> BlockBuster:
    for function in _guard.functions.values():
        # Tests look at the disk in the middle of a store call.
        function.can_block_in("tests/engine/places.py", {"all_files", "directories", "write", "remove"})
    return _guard
