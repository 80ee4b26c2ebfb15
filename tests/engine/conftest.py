"""Places that functional tests run on."""

from __future__ import annotations

import pytest
from blockbuster import BlockBuster

from tests.engine.places import PROFILES, MemoryPlace, place_fixture

place = place_fixture(*PROFILES)


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
