"""Which share of a long sweep this run takes: another at each commit, the same again when told to.

What a run leaves out because of its share, other commits' runs take, and `-m slow` takes whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

VARIABLE: Final = "COMMITTER_SWEEP_OFFSET"


def offset() -> int:
    """A number that changes with the commit; without git always the same one.

    The environment variable takes its place, so that a finding can be repeated: a test run says in its first lines which
    number it goes by, and hands it to all processes that it starts.
    """
    told = os.environ.get(VARIABLE)
    return int(told) if told else offset_of_commit(Path(__file__).parent)


def offset_of_commit(directory: Path) -> int:
    """The number of the commit that is checked out there, 0 where git knows none."""
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=False, cwd=directory)
    except OSError:
        return 0
    return 0 if told.returncode else zlib.crc32(told.stdout.strip()) % 1_000_000


def first_of(share: int, what: str = "") -> int:
    """Where this run begins when it takes one of so many; `what` has sweeps of one run begin at different places."""
    return (offset() + zlib.crc32(what.encode())) % share


def rotated(whole: Sequence[T], share: int, what: str = "") -> Sequence[T]:
    """One in `share`, at least one where there is any."""
    return whole[first_of(min(share, len(whole)), what) :: share] if whole else whole


def name_of(nodeid: str) -> str:
    """What names a test to pytest: without the group that xdist puts behind it."""
    return re.sub(r"@[\w-]+$", "", nodeid)


class Share:
    """The part of a sweep that one test of a run takes.

    Args:
        one_in: It takes one in so many places; 1 for all.
        name: Of the test. Tests of one run begin at different places.
    """

    def __init__(self, one_in: int, name: str) -> None:
        self._one_in = one_in
        self._name = name

    def of(self, places: Sequence[T]) -> Sequence[T]:
        """Those of the places that this run takes."""
        return rotated(places, self._one_in, self._name)

    def counted(self) -> Iterator[int]:
        """Numbers from 1 without end, those of them that this run takes; the sweep ends when nothing is left to meet."""
        return count(1 + first_of(self._one_in, self._name), self._one_in)

    @property
    def is_whole(self) -> bool:
        """Whether the test takes every place."""
        return self._one_in == 1

    def check_seen(
        self, seen: AbstractSet[str], expected: AbstractSet[str], possible: AbstractSet[str] = frozenset()
    ) -> None:
        """Compares what was met with what the whole sweep meets.

        Args:
            seen: What was met.
            expected: All of it is met by the whole sweep; a share may meet a part of it, of a short sweep nothing.
            possible: What may be met beside it.
        """
        assert seen <= expected | possible, seen
        assert not self.is_whole or expected <= seen, seen
