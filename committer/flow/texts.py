"""Searches among more texts than fit in memory: texts that occur twice, and texts that two lists share."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from committer.file_names import is_utf_8
from committer.flow.spill import Closable, SpillFile

T = TypeVar("T")

_PARTITIONS: Final = 128
# Hashes are signed 64-bit numbers; their highest bits give the partition.
_RANGE_BITS: Final = 57
_BLOCK_BYTES: Final = 1 << 15

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


class Repeats(Closable):
    """Finds texts that were added more than once, by their hashes of 8 bytes. A context manager.

    Beyond `block` hashes, these are partitioned by range into temporary files, so at most a 128th of all hashes and a
    block are in memory. Different texts can have equal hashes (two of ten million, in
    one of 400,000 jobs), so the caller compares the texts that seem to repeat. About 0.4 microseconds per text.
    `count` is the number of texts.
    """

    def __init__(self, *, block: int = BLOCK) -> None:
        self.count: int = 0
        self._block = block
        self._hashes: array[int] = array("q")
        self._files: list[SpillFile[bytes]] = []

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
        for file in self._files:
            found |= _repeated(await _hashes_of(file))
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

    async def lacking(self, others: Repeats, *, most: int) -> tuple[set[int], int]:
        """Returns hashes, at most `most`, and the number of texts that were added to `others` and not here."""
        hashes, count = set[int](), 0
        async for mine, theirs in self._beside(others):
            theirs -= mine
            count += len(theirs)
            hashes.update(islice(theirs, most - len(hashes)))
        return hashes, count

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
            self._files = [SpillFile(bytes, block_bytes=_BLOCK_BYTES) for _ in range(_PARTITIONS)]
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


class Asked(NamedTuple):
    """Text to look up; `number` rises from call to call, `name` replaces the text in the answer."""

    number: int
    text: str
    name: str = ""


class Matches(Closable, Generic[T]):
    """Notes texts with values of a `kind`, then finds which of other texts were noted, in the order asked.

    A context manager. Texts are partitioned by hash into temporary files: at most a 128th of the noted ones, and a
    block of each file, is in memory. Some 5 microseconds per text. A text that
    is not UTF-8, such as a name on a local disk, matches none, since no file of a job has such a name. `count` is
    the number of noted texts.
    """

    def __init__(self, kind: Any) -> None:
        self.count: int = 0
        self._of_noted: Any = tuple[str, kind]
        self._of_answers: Any = tuple[int, str, kind]
        self._noted: list[SpillFile[tuple[str, T]]] = []
        self._asked: list[SpillFile[Asked]] = []

    async def note(self, texts: Sequence[str], values: Sequence[T]) -> None:
        """Notes texts; the later value of a repeated text counts. Raises `CommitterError` if the disk fails."""
        if texts and not self._noted:
            self._noted = [self._file(self._of_noted) for _ in range(_PARTITIONS)]
        for text, value in zip(texts, values, strict=True):
            if not is_utf_8(text):
                continue
            await self._noted[hash(text) >> _RANGE_BITS].append((text, value))
        self.count += len(texts)

    async def ask(self, asked: Sequence[Asked]) -> None:
        """Asks for texts in the order of their numbers. Raises `CommitterError` if the disk fails."""
        if asked and not self._asked:
            self._asked = [self._file(Asked) for _ in range(_PARTITIONS)]
        for one in asked:
            if not is_utf_8(one.text):
                continue
            await self._asked[hash(one.text) >> _RANGE_BITS].append(one)

    async def answers(self) -> AsyncGenerator[tuple[int, str, T]]:
        """Yields number, name and value of each text that was asked for and noted. Once. Raises as `SpillFile.read`."""
        async with AsyncExitStack() as used:
            runs: list[SpillFile[tuple[int, str, T]]] = []
            for noted, asked in zip(self._noted, self._asked, strict=False):
                known = {text: value async for text, value in noted.read()}
                await noted.close()
                # The texts of one partition are in order already.
                run: SpillFile[tuple[int, str, T]] = self._file(self._of_answers)
                used.push_async_callback(run.close)
                async for number, text, name in asked.read():
                    if text in known:
                        await run.append((number, name or text, known[text]))
                await asked.close()
                if run.count:
                    runs.append(run)
            async for answer in _merged(runs):
                yield answer

    async def close(self) -> None:
        """Frees files and memory. May be called twice."""
        files: list[SpillFile[Any]] = [*self._noted, *self._asked]
        self._noted, self._asked = [], []
        self.count = 0
        for file in files:
            await file.close()

    def _file(self, kind: Any) -> SpillFile[Any]:
        return SpillFile(kind, block_bytes=_BLOCK_BYTES)


async def _merged(runs: Sequence[SpillFile[tuple[int, str, T]]]) -> AsyncGenerator[tuple[int, str, T]]:
    readers = [run.read() for run in runs]
    heap = [(item[0], at, item) for at, reader in enumerate(readers) if (item := await anext(reader, None)) is not None]
    heapq.heapify(heap)
    while heap:
        _number, at, item = heap[0]
        yield item
        following = await anext(readers[at], None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following[0], at, following))
