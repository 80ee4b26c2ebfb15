"""Samples of long sweeps: a quick test tries a sample of the places, the same test marked `slow` tries them all."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def first_of(one_in: int, name: str) -> int:
    """Returns the index of the first place in a sample; it depends on the sweep's name."""
    return zlib.crc32(name.encode()) % one_in


def sample(whole: Sequence[T], one_in: int, name: str) -> Sequence[T]:
    """Returns every `one_in`-th place, at least one if there is any."""
    return whole[first_of(min(one_in, len(whole)), name) :: one_in] if whole else whole


def sampled(values: Iterable[T], one_in: int, name: str) -> list[Any]:
    """Returns the values of a parameter; all but every `one_in`-th are marked `slow`."""
    values = list(values)
    first = first_of(min(one_in, len(values)) or 1, name)
    return [
        value if number % one_in == first else pytest.param(value, marks=pytest.mark.slow)
        for number, value in enumerate(values)
    ]


class Share:
    """The part of a sweep that one test tries.

    Args:
        one_in: The step between the places that it tries; 1 for all.
        name: The test's name.
    """

    def __init__(self, one_in: int, name: str) -> None:
        self._one_in = one_in
        self._name = name

    def of(self, places: Sequence[T]) -> Sequence[T]:
        """Returns the places that this test tries."""
        return sample(places, self._one_in, self._name)

    def counted(self) -> Iterator[int]:
        """Yields the numbers from 1 that this test tries, without end; the sweep ends when it finds no place any more."""
        return count(1 + first_of(self._one_in, self._name), self._one_in)

    @property
    def is_whole(self) -> bool:
        """Whether the test tries every place."""
        return self._one_in == 1

    def check_seen(
        self, seen: AbstractSet[str], expected: AbstractSet[str], possible: AbstractSet[str] = frozenset()
    ) -> None:
        """Compares the results that a test saw with those of the whole sweep.

        Args:
            seen: The results.
            expected: Results of the whole sweep; a sample may show a part of them, a short one none.
            possible: Results that may occur besides.
        """
        assert seen <= expected | possible, seen
        assert not self.is_whole or expected <= seen, seen
