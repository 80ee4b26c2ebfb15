# ruff: noqa: S101
"""What the parts of the conformance suite share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Protocol, TypeVar, cast

import msgspec
import pytest

from committer.paths import StorePath
from committer.stores.abilities import Ability
from committer.stores.base import Capabilities, FileStatus, Store

T = TypeVar("T")


class Channel(Protocol):
    """A way to the files that does not go through the store. Names are relative to the root, without a first slash."""

    async def files(self) -> dict[str, bytes]:
        """Every file below the root, hidden and temporary ones too."""

    async def directories(self) -> set[str]:
        """Every real directory below the root."""

    async def write(self, name: str, data: bytes) -> None:
        """Puts a file below the root, with the directories it needs."""


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
    """The fixtures that a subclass of the suite gives, each fresh for every test."""

    many: int = 60
    """How many files the listing tests make: more than a page, if that is not too slow."""

    awkward_names: tuple[str, ...] = AWKWARD_NAMES
    """Names that any store can hold; without those that a test's server is known to lose."""

    @pytest.fixture
    def store(self) -> Store:
        """The store."""
        raise NotImplementedError("give a fixture `store`")

    @pytest.fixture
    def root(self) -> StorePath:
        """An empty directory that exists, where directories are real."""
        raise NotImplementedError("give a fixture `root`")

    @pytest.fixture
    def channel(self) -> Channel:
        """The independent way to what is below the root."""
        raise NotImplementedError("give a fixture `channel`")

    @pytest.fixture
    def can(self, store: Store) -> Capabilities:
        """The store's capabilities."""
        return store.capabilities


def undeclared(ability: Ability[T], store: Store) -> T | None:
    """The store with the methods of an ability that its capabilities do not declare: it must refuse them."""
    if ability.declared(store.capabilities):
        return None
    if not all(callable(getattr(type(store), method, None)) for method in ability.methods):
        return None
    return cast("T", store)


async def names_in(store: Store, directory: StorePath) -> set[str]:
    """The names that a listing gives; asserts that it gives each once."""
    found = [status.path.name async for status in store.list(directory)]
    assert len(found) == len(set(found)), f"a listing repeats itself: {sorted(found)}"
    return set(found)


async def outcomes(calls: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    """Runs calls at the same time and gives what each returned or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


def alike(answered: FileStatus, looked_at: FileStatus) -> bool:
    """Whether a write was answered with what `status` then says, but for a time that the answer need not tell."""
    if answered.modified is None:
        looked_at = msgspec.structs.replace(looked_at, modified=None)
    return answered == looked_at


def successes(found: Iterable[object]) -> int:
    """How many of them are no errors."""
    return sum(not isinstance(one, BaseException) for one in found)
