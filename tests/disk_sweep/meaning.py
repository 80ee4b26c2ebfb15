"""What a system call is made for: two calls of one meaning are taken for one, so that the whole sweep can be run."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_SPELLINGS: Final = (
    (re.compile(r"^.*?/table(?=/|$)"), ""),
    (re.compile(r"\b[0-9a-f]{12,32}\b"), "X"),
    (re.compile(r"_m_\d{6}_\d+"), "_m_N"),
    (re.compile(r"_m_\d{6}"), "_m_N"),
    (re.compile(r"\.committer-probe-.*"), "probe"),
    (re.compile(r"p=[12]\b"), "p=old"),
    (re.compile(r"part-\d+(-\d+)?"), "part-N"),
    (re.compile(r"\b\d{8}\b"), "N"),
)


def spelled(path: str) -> str:
    """A path below the table, without what differs from run to run, from task to task and from file to file."""
    for pattern, by in _SPELLINGS:
        path = pattern.sub(by, path, count=1) if by == "" else pattern.sub(by, path)
    return path


class Operation(NamedTuple):
    """A store call.

    Attributes:
        name: Of the method of `Disk`.
        paths: What it is about.
    """

    name: str
    paths: tuple[str, ...]

    @property
    def meaning(self) -> str:
        """Its name and the first two of its paths, spelled."""
        return " ".join((self.name, *map(spelled, self.paths[:2])))


class Call(NamedTuple):
    """A system call.

    Attributes:
        name: As the kernel knows it.
        at: What it was called with.
        phase: The last record of the job that was put: ``setup``, ``intent``, ``decision``, ``outcome``.
        operation: What the store call under way means.
        index: Which of its calls.
    """

    name: str
    at: str
    phase: str
    operation: str
    index: int

    @property
    def meaning(self) -> str:
        """What it is made for; the same in each job that comes this far in the same way."""
        return f"{self.phase}: {self.operation} #{self.index} {self.name}"
