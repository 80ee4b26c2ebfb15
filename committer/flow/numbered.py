"""Items by number on the driver's disk: added in nearly any order, read in the order of their numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from committer.errors import CommitterError
from committer.flow.spill import SpillFile
from committer.logs import job_logger

_log = job_logger("committer.flow")

T = TypeVar("T")

# Decoded, a block takes some five times as much.
_BLOCK_BYTES: Final = 1 << 18

MOST_AHEAD: Final = 4 << 20
"""Weight of the items that a reader holds until their turn comes."""


class NumberedSpill(Generic[T]):
    """Keeps items that its user can get again at a higher cost: what it does not give back was not kept.

    So nothing here fails. A disk that is full, or that gives back something else than was written, ends it with a
    warning. Added to first, then read, as often as wanted. Use it as an asynchronous context manager, or call `close`.

    Args:
        kind: What its items are: anything that msgspec can write and read.
        most_bytes: What they may take on the disk, which may be the machine's memory; what comes then is not kept.
        block_bytes: See `SpillFile`; a quarter of a megabyte when None.
    """

    def __init__(self, kind: Any, *, most_bytes: int, block_bytes: int | None = None) -> None:
        of_item: Any = tuple[int, int, kind]
        self._most_bytes = most_bytes
        self._spill: SpillFile[tuple[int, int, T]] | None = SpillFile(of_item, block_bytes=block_bytes or _BLOCK_BYTES)

    @property
    def takes_more(self) -> bool:
        """Whether what is added now is kept."""
        return self._spill is not None and self._spill.size < self._most_bytes

    async def add(self, number: int, item: T, *, weight: int) -> None:
        """Adds an item.

        Args:
            number: Its turn.
            item: What is kept.
            weight: What a reader has in memory with it, in bytes.
        """
        spill = self._spill
        if spill is None or spill.size >= self._most_bytes:
            return
        try:
            await spill.append((number, weight, item))
        except CommitterError as error:
            await self._give_up(spill, error)
        except ValueError:
            # Given up, or closed, while this waited for the disk.
            if self._spill is spill:
                raise

    def in_turn(self, *, most_ahead: int = MOST_AHEAD) -> InTurn[T]:
        """A reader of what was added so far.

        Args:
            most_ahead: Weight of the items that it holds until their turn comes.
        """
        return InTurn(self._read(), most_ahead)

    async def close(self) -> None:
        """Frees the file and the memory. Safe to call twice."""
        spill, self._spill = self._spill, None
        if spill is not None:
            await spill.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self) -> AsyncIterator[tuple[int, int, T]]:
        spill = self._spill
        if spill is None:
            return
        try:
            async for item in spill.read():
                yield item
        except CommitterError as error:
            await self._give_up(spill, error)
        except ValueError:
            # Another reader gave it up meanwhile.
            if self._spill is spill:
                raise

    async def _give_up(self, spill: SpillFile[tuple[int, int, T]], error: CommitterError) -> None:
        """Frees what the disk holds, for those who cannot do without it."""
        if self._spill is spill:
            _log.warning("what records say is not kept on the driver's disk, so they are read again: %s", error)
            await self.close()


class InTurn(Generic[T]):
    """One pass over a `NumberedSpill`.

    An item that was added long after those of higher numbers is not found in its turn, so that few wait in memory.
    """

    def __init__(self, items: AsyncIterator[tuple[int, int, T]], most_ahead: int) -> None:
        self._items = items
        self._most_ahead = most_ahead
        self._waiting: dict[int, tuple[int, T]] = {}
        self._ahead = 0

    async def take(self, numbers: range) -> dict[int, T]:
        """The items of some numbers, as far as they are found. To be asked for in ascending order."""
        found: dict[int, T] = {}
        waiting = self._waiting
        for number in numbers if waiting else ():
            if number in waiting:
                weight, found[number] = waiting.pop(number)
                self._ahead -= weight
        first, end, wanted = numbers.start, numbers.stop, len(numbers)
        while len(found) < wanted and self._ahead < self._most_ahead:
            added = await anext(self._items, None)
            if added is None:
                break
            number, weight, item = added
            if number >= end:
                waiting[number] = weight, item
                self._ahead += weight
            elif number >= first:
                found[number] = item
        return found
