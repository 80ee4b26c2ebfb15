"""Fixtures that tests of stores share."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from committer.flow.threads import LastingExecutor
from committer.stores import batches
from committer.stores.local import LocalStore, kernel_rename
from tests.stores.paced_bench import Bench

AtRename = Callable[[int, Callable[[], object]], None]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A paced store that fails as told; no permit of it is held or waited for afterwards."""
    bench = Bench()
    yield bench
    assert bench.pacer.in_use == bench.pacer.waiting == 0


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Records each batch that a thread was handed, as an item of a list."""
    handed: list[object] = []

    class Counting(LastingExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            handed.append(fn)
            return super().submit(fn, *args, **kwargs)

    monkeypatch.setattr(batches, "LastingExecutor", Counting)
    return handed


@pytest.fixture
async def local() -> AsyncIterator[LocalStore]:
    """A store of the disk."""
    store = LocalStore()
    yield store
    await store.close()


@pytest.fixture
def at_rename(monkeypatch: pytest.MonkeyPatch) -> AtRename:
    """Returns a function that plans an action right before the nth rename of the kernel, counted from one."""

    def planned(number: int, act: Callable[[], object]) -> None:
        rename, numbers = kernel_rename.rename_no_replace, itertools.count(1)

        def acting(source: str, destination: str, **ends: int | None) -> None:
            if next(numbers) == number:
                act()
            rename(source, destination, **ends)

        monkeypatch.setattr(kernel_rename, "rename_no_replace", acting)

    return planned
