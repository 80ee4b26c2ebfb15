"""Targets: what stands where files of a job go, and makes way for them or has the job refused."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final, Generic, TypeVar

from committer.records.job_state import Fact
from committer.stages.in_the_way import Standing
from committer.stages.noted_facts import NotedFacts

T = TypeVar("T")

# Those that are told; a job can have millions.
_MOST_TOLD: Final = 100
_NOTED_TOGETHER: Final = 1000


class FirstNames(Generic[T]):
    """The first of many names, with what is said of each."""

    def __init__(self) -> None:
        self._kept: dict[str, T] = {}

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, name: str, said: T) -> None:
        """Adds one."""
        self._kept[name] = said
        if len(self._kept) > 10 * _MOST_TOLD:
            self._kept = dict(self.items())

    def items(self) -> list[tuple[str, T]]:
        """At most a hundred, in order."""
        return [(name, self._kept[name]) for name in nsmallest(_MOST_TOLD, self._kept)]


class Targets:
    """What stands at the names of a job's files.

    Attributes:
        facts: What the decision says of each, in the order of the job's files; where directories are not real without
            them.
        first: The first names that `facts` tell of.
        refused: The first of those that cannot make way, with the reason.
        unwanted: The first of those that only `existing_target="replace"` has make way.
        directories: The directories, by name.
    """

    def __init__(self) -> None:
        self.facts: NotedFacts = NotedFacts()
        self.first: FirstNames[Standing] = FirstNames()
        self.refused: FirstNames[str] = FirstNames()
        self.unwanted: FirstNames[Standing] = FirstNames()
        self.directories: list[str] = []
        self._waiting: list[Fact] = []

    def __bool__(self) -> bool:
        return bool(self.facts or self.directories)

    async def add(self, name: str, standing: Standing, *, aside: int, superseded: bool, real: bool) -> None:
        """Notes one.

        Args:
            name: Of the file that goes there.
            standing: What stands there.
            aside: Its place aside.
            superseded: Whether old files make room there.
            real: Whether directories are.

        Raises:
            CommitterError: The disk did not take it.
        """
        if standing.refuses:
            self.refused.add(name, standing.refuses)
        if standing.is_directory or not superseded:
            self.unwanted.add(name, standing)
        if standing.is_directory:
            self.directories.append(name)
            if not real:
                return
        self.first.add(name, standing)
        self._waiting.append(Fact("target", name, standing.identity, standing.size, standing.is_directory, aside))
        if len(self._waiting) >= _NOTED_TOGETHER:
            await self.end()

    async def end(self) -> None:
        """Notes what is left. Call it after the last one.

        Raises:
            CommitterError: The disk did not take it.
        """
        waiting, self._waiting = self._waiting, []
        await self.facts.add(waiting, {fact.path.rpartition("/")[0] for fact in waiting})

    async def close(self) -> None:
        """Frees what the driver's disk holds. Safe to call twice."""
        await self.facts.close()
