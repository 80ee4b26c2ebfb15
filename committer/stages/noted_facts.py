"""Facts that a decision is going to rest on, noted as they are found: few in memory, many on the driver's disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from committer.flow.spill import SpillFile
from committer.records.job_state import Fact, decode_facts, encode_facts
from committer.stages.decided_facts import Facts, count_directories

FACTS_A_FILE: Final = 25_000
"""Facts of a side file, some 100 bytes each there, and three times as much in memory."""

FACTS_IN_MEMORY: Final = 50_000
"""Facts that are kept; more go to the driver's disk, as they are going to stand in side files."""


class Lines(NamedTuple):
    """The content of a side file, and how many facts it holds."""

    data: bytes
    facts: int


class NotedFacts(Facts):
    """Facts as they are found. Call `close` at the end.

    Attributes:
        within: The directories of what they name.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.of_directories: int = 0
        self.within: set[str] = set()
        self._facts: list[Fact] = []
        self._spill: SpillFile[Lines] | None = None
        self._writing = asyncio.Lock()

    @property
    def in_memory(self) -> list[Fact] | None:
        """The facts themselves, as long as they are few."""
        return self._facts if self._spill is None else None

    async def directories(self) -> set[str]:
        """See `Facts.directories`."""
        return self.within

    async def add(self, facts: list[Fact], directories: AbstractSet[str] = frozenset()) -> None:
        """Notes some more, and their directories where they are asked for.

        Raises:
            CommitterError: The disk did not take them.
        """
        self._facts += facts
        self.count += len(facts)
        self.of_directories += count_directories(facts)
        self.within |= directories
        if self._spill is None and len(self._facts) > FACTS_IN_MEMORY:
            self._spill = SpillFile(Lines)
        if self._spill is None or len(self._facts) < FACTS_A_FILE:
            return
        # While one of those that find facts writes, the others wait: a list goes to the disk slower than it grows.
        async with self._writing:
            while len(self._facts) >= FACTS_A_FILE:
                some, self._facts = self._facts[:FACTS_A_FILE], self._facts[FACTS_A_FILE:]
                await self._spill.append(Lines(encode_facts(some), len(some)))

    async def lines(self) -> AsyncIterator[Lines]:
        """What side files are to hold, a file at a time."""
        if self._spill is not None:
            async for lines in self._spill.read():
                yield lines
        for start in range(0, len(self._facts), FACTS_A_FILE):
            some = self._facts[start : start + FACTS_A_FILE]
            yield Lines(encode_facts(some), len(some))

    async def batches(self) -> AsyncIterator[list[Fact]]:
        """Those of a side file at a time."""
        if self._spill is not None:
            async for lines in self._spill.read():
                yield decode_facts(lines.data, source="a temporary file")
        if self._facts:
            yield self._facts

    async def close(self) -> None:
        """Frees memory and disk. Safe to call twice."""
        spill, self._spill, self._facts = self._spill, None, []
        self.count = 0
        if spill is not None:
            await spill.close()
