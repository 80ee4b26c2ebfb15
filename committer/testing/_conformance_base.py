# ruff: noqa: S101
"""Fixtures and helpers of the conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

import msgspec
import pytest

from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import Capabilities, FileStatus, Store

T = TypeVar("T")


class Channel(Protocol):
    """A way to the files that bypasses the store. Names are relative to the root, without a leading slash."""

    async def files(self) -> dict[str, bytes]:
        """Reads every file below the root, hidden and temporary ones too."""

    async def directories(self) -> set[str]:
        """Lists every real directory below the root."""

    async def write(self, name: str, data: bytes) -> None:
        """Writes a file below the root, and creates its directories."""


STAMP = "job-1/3/0/0f3a"
WRONG_STAMPS = ("", "two words", " around ", "line\nbreak", "ünïcödé", "x" * 1025)


AWKWARD_NAMES = (
    "with space",
    " leading and trailing ",
    "per%20cent%",
    "a#b?c+d&e=f[g]",
    "colon:name",
    "quote'\"back\\slash",
    "semi;star*pipe|",
    "~tilde^{brace}`",
    ".hidden",
    "_underscore",
    "ünïcödé-日本語-😀",
    "no\u00a0break",
    "line\nbreak\ttab",
)


class ConformanceBase:
    """Fixtures that a subclass of the suite gives, each fresh for every test."""

    many: int = 60
    """Number of files in the listing tests: more than a page, if that is not too slow."""

    awkward_names: tuple[str, ...] = AWKWARD_NAMES
    """Names that any store can hold; a subclass removes those that its test server loses."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("give a fixture `store`")

    @pytest.fixture
    def root(self) -> StorePath:
        """Empty directory, which exists if directories are real."""
        raise NotImplementedError("give a fixture `root`")

    @pytest.fixture
    def channel(self) -> Channel:
        """Independent way to the files below the root."""
        raise NotImplementedError("give a fixture `channel`")

    @pytest.fixture
    def can(self, store: Store) -> Capabilities:
        return store.capabilities


def requires(store: Store, *capabilities: str) -> None:
    """Skips the test for a store that does not declare all of these capabilities."""
    for name in capabilities:
        if not getattr(store.capabilities, name):
            pytest.skip(f"the store does not declare {name}")


def required(ability: Ability[T], store: Store) -> T:
    """Returns the store with the methods of an ability; skips the test for a store that does not declare it."""
    if not ability.declared(store.capabilities):
        pytest.skip(f"the store declares no {ability.described}")
    return ability.required(store, "conformance test")


@contextmanager
def refused(kind: type[CommitterError], path: StorePath) -> Iterator[None]:
    """Asserts that the block raises such an error about this path, which says that nothing changed."""
    with pytest.raises(kind) as caught:
        yield
    assert (caught.value.outcome, caught.value.path) == ("unchanged", str(path))


def undeclared(ability: Ability[T], store: Store) -> T | None:
    """Returns the store if it has the methods of an undeclared ability, which must refuse every call."""
    if ability.declared(store.capabilities):
        return None
    if not all(callable(getattr(type(store), method, None)) for method in ability.methods):
        return None
    return cast("T", store)


async def names_in(store: Store, directory: StorePath) -> set[str]:
    """Lists the names in a directory; asserts that each occurs once."""
    found = [status.path.name async for status in store.list(directory)]
    assert len(found) == len(set(found)), f"a listing repeats itself: {sorted(found)}"
    return set(found)


async def outcomes(calls: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    """Runs calls concurrently and returns each result or error."""
    return await asyncio.gather(*calls, return_exceptions=True)


def alike(answered: FileStatus, looked_at: FileStatus) -> bool:
    """Returns True if the status from a write equals that of `status`; the write may lack the time."""
    if answered.modified is None:
        looked_at = msgspec.structs.replace(looked_at, modified=None)
    return answered == looked_at


def winner_of(found: Sequence[object], *refusals: type[Exception]) -> int:
    """Returns the number of the only call that succeeded; asserts that the others raised one of these errors."""
    winners = [number for number, one in enumerate(found) if not isinstance(one, BaseException)]
    assert len(winners) == 1, found
    assert all(isinstance(one, refusals) for one in found if isinstance(one, BaseException))
    return winners[0]
