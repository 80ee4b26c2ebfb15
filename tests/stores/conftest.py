"""Fixtures that tests of stores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.paced_bench import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A paced store that fails as told; no permit of it is held or waited for afterwards."""
    bench = Bench()
    yield bench
    assert bench.pacer.in_use == bench.pacer.waiting == 0
