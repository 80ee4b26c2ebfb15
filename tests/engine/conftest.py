"""Places that functional tests run on."""

from __future__ import annotations

import pytest

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
