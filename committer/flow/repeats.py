"""Search for texts that occur twice among more than fit in memory."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, NamedTuple

from committer.flow.spill import Closable, SpillFile, lost

# Bits per hash.
_ROOM: Final = 8


class HashFilter:
    """Set of at most `most` hashes in one to two bytes each; up to one in eight other hashes seem to be in it."""

    def __init__(self, most: int) -> None:
        self.count: int = 0
        size = 1 << max(3, (most * _ROOM - 1).bit_length())
        self._mask = size - 1
        self._bits = bytearray(size // 8)

    def update(self, numbers: Iterable[int]) -> None:
        """Adds hashes."""
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
# Hashes are signed 64-bit numbers; their highest bits give the partition.
_RANGE_BITS: Final = 57


class Lacking(NamedTuple):
    """Texts that another `Repeats` has and this one lacks: their number, and hashes of some."""

    hashes: set[int]
    number: int


class Repeats(Closable):
    """Finds texts that were added more than once, by their hashes of 8 bytes. A context manager.

    Beyond `block` hashes, these are partitioned by range into files in `directory` (None: the system's), so at most
    a 128th of all hashes and a block are in memory. Different texts can have equal hashes (two of ten million, in
    one of 400,000 jobs), so the caller compares the texts that seem to repeat. About 0.4 microseconds per text.
    `count` is the number of texts.
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
        """Whether hashes went to disk."""
        return bool(self._files)

    async def add(self, texts: Iterable[str]) -> None:
        """Adds texts. Raises `CommitterError` if the disk fails."""
        before = len(self._hashes)
        self._hashes.extend(map(hash, texts))
        self.count += len(self._hashes) - before
        if len(self._hashes) >= self._block:
            await self._spill()

    async def find(self) -> set[int]:
        """Returns the hashes that were added more than once, after all texts were added. Raises as `SpillFile.read`."""
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
        """Returns the hashes of texts added both here and to `others`; raises as `find`. More may be added afterwards.

        More than `kept` hashes are returned as a filter, which seems to contain a few others.
        """
        found: set[int] | HashFilter = set()
        async for mine, theirs in self._beside(others):
            found.update(mine & theirs)
            if len(found) > kept and isinstance(found, set):
                several, found = found, HashFilter(min(self.count, others.count))
                found.update(several)
        return found

    async def lacking(self, others: Repeats, *, most: int) -> Lacking:
        """Returns texts that were added to `others` and not here, with at most `most` hashes."""
        hashes, count = set[int](), 0
        async for mine, theirs in self._beside(others):
            theirs -= mine
            count += len(theirs)
            hashes.update(islice(theirs, most - len(hashes)))
        return Lacking(hashes, count)

    async def _beside(self, others: Repeats) -> AsyncIterator[tuple[set[int], set[int]]]:
        if not (self._files or others._files):
            yield set(self._hashes), set(others._hashes)
            return
        await self._spill()
        await others._spill()
        for mine, theirs in zip(self._files, others._files, strict=True):
            yield set(await _hashes_of(mine)), set(await _hashes_of(theirs))

    async def close(self) -> None:
        """Frees files and memory. May be called twice."""
        files, self._files, self._hashes = self._files, [], array("q")
        self.count = 0
        for file in files:
            await file.close()

    async def _spill(self) -> None:
        hashes, self._hashes = self._hashes, array("q")
        if not self._files:
            self._files = [
                SpillFile(bytes, directory=self._directory, block_bytes=_PARTITION_BLOCK_BYTES)
                for _ in range(_PARTITIONS)
            ]
        # A negative number indexes from the end, so each range has its own index.
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
