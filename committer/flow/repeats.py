"""Finds texts that occur twice among more than fit in memory."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from types import TracebackType
from typing import Final, NamedTuple, Self

from committer.flow.spill import SpillFile, lost

# Bits for each hash there may be.
_ROOM: Final = 8


class HashFilter:
    """Hashes in one to two bytes each. All that were added are in it, and up to one in eight of those that were not.

    Args:
        most: How many there may be.

    Attributes:
        count: Hashes added so far.
    """

    def __init__(self, most: int) -> None:
        self.count: int = 0
        size = 1 << max(3, (most * _ROOM - 1).bit_length())
        self._mask = size - 1
        self._bits = bytearray(size // 8)

    def update(self, numbers: Iterable[int]) -> None:
        """Adds some."""
        bits, mask = self._bits, self._mask
        for number in numbers:
            place = number & mask
            bits[place >> 3] |= 1 << (place & 7)
            self.count += 1

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = number & self._mask
        return bool(self._bits[place >> 3] & 1 << (place & 7))

    def __len__(self) -> int:
        return self.count


BLOCK: Final = 1 << 16
"""Hashes in memory before they go to disk."""

_PARTITIONS: Final = 128
_PARTITION_BLOCK_BYTES: Final = 1 << 15
# Hashes are signed 64-bit numbers; each partition takes an equal range of them, which the highest bits tell.
_RANGE_BITS: Final = 57


class Lacking(NamedTuple):
    """Texts that were added elsewhere, and not here.

    Attributes:
        hashes: Their hashes, as many as were asked for.
        number: How many there are.
    """

    hashes: set[int]
    number: int


class Repeats:
    """Finds which of many texts were added more than once, by their hashes: 8 bytes a text.

    Hashes are held in memory up to a block; from then on each block is cut into ranges, and each range is a
    file of its own, so that equal hashes meet in one file and each file is looked at alone: at most a 128th of all
    texts, and a block, in memory. Hashes of different texts can be equal, so a caller told that some repeat looks at
    the texts themselves (two of ten million are by chance, in one of 400,000 jobs). About 0.4 microseconds a text. Use
    it as an asynchronous context manager, or call `close`.

    Args:
        block: Hashes in memory at once.
        directory: Where files lie; the system's directory for temporary files when None.

    Attributes:
        count: Texts added so far.
    """

    def __init__(self, *, block: int = BLOCK, directory: str | None = None) -> None:
        if block < 1:
            raise ValueError(f"block must be at least 1, not {block}")
        self.count: int = 0
        self._block = block
        self._directory = directory
        self._hashes: array[int] = array("q")
        self._files: list[SpillFile[bytes]] = []

    @property
    def on_disk(self) -> bool:
        """Whether the first block was passed."""
        return bool(self._files)

    async def add(self, texts: Iterable[str]) -> None:
        """Adds texts.

        Raises:
            CommitterError: The disk did not take a block.
        """
        before = len(self._hashes)
        self._hashes.extend(map(hash, texts))
        self.count += len(self._hashes) - before
        if len(self._hashes) >= self._block:
            await self._spill()

    async def find(self) -> set[int]:
        """The hashes that were added more than once. Call it when all texts are added.

        Raises:
            RecordError: Not as many came back as were added.
            CommitterError: The disk failed.
        """
        if not self._files:
            return _repeated(self._hashes)
        await self._spill()
        found: set[int] = set()
        seen = 0
        for file in self._files:
            hashes = await _hashes_of(file)
            seen += len(hashes)
            found |= _repeated(hashes)
        if seen != self.count:
            raise lost(f"{seen} of {self.count} hashes came back")
        return found

    async def common(self, others: Repeats, *, kept: int = BLOCK) -> set[int] | HashFilter:
        """The hashes of texts that were added both here and to `others`. More may be added afterwards.

        Args:
            others: The other texts.
            kept: More hashes than these come as a filter, which takes a few others for one of them.

        Raises:
            RecordError: Not as many came back as were added.
            CommitterError: The disk failed.
        """
        found: set[int] | HashFilter = set()
        async for mine, theirs in self._beside(others):
            found.update(mine & theirs)
            if len(found) > kept and isinstance(found, set):
                several, found = found, HashFilter(min(self.count, others.count))
                found.update(several)
        return found

    async def lacking(self, others: Repeats, *, most: int) -> Lacking:
        """What was added to `others` and not here, at most so many hashes of it; as `common`."""
        hashes, count = set[int](), 0
        async for mine, theirs in self._beside(others):
            theirs -= mine
            count += len(theirs)
            hashes.update(islice(theirs, most - len(hashes)))
        return Lacking(hashes, count)

    async def _beside(self, others: Repeats) -> AsyncIterator[tuple[set[int], set[int]]]:
        """The hashes of both, a range at a time."""
        if not (self._files or others._files):
            yield set(self._hashes), set(others._hashes)
            return
        await self._spill()
        await others._spill()
        for mine, theirs in zip(self._files, others._files, strict=True):
            yield set(await _hashes_of(mine)), set(await _hashes_of(theirs))

    async def close(self) -> None:
        """Frees files and memory. Safe to call twice."""
        files, self._files, self._hashes = self._files, [], array("q")
        self.count = 0
        for file in files:
            await file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _spill(self) -> None:
        hashes, self._hashes = self._hashes, array("q")
        if not self._files:
            self._files = [
                SpillFile(bytes, directory=self._directory, block_bytes=_PARTITION_BLOCK_BYTES)
                for _ in range(_PARTITIONS)
            ]
        # Negative numbers count from the end: each range has its index all the same.
        ranges = [array("q") for _ in range(_PARTITIONS)]
        appends = [part.append for part in ranges]
        for number in hashes:
            appends[number >> _RANGE_BITS](number)
        for file, part in zip(self._files, ranges, strict=False):
            if part:
                await file.append(part.tobytes())


async def _hashes_of(file: SpillFile[bytes]) -> array[int]:
    hashes: array[int] = array("q")
    async for piece in file.read():
        hashes.frombytes(piece)
    return hashes


def _repeated(hashes: array[int]) -> set[int]:
    once = set(hashes)
    if len(once) == len(hashes):
        return set()
    found: set[int] = set()
    for number in hashes:
        if number in once:
            once.discard(number)
        else:
            found.add(number)
    return found
