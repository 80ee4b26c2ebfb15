"""Join of two sets of texts that do not fit in memory."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Generic, NamedTuple, TypeVar

from committer.file_names import is_utf_8
from committer.flow.spill import Closable, SpillFile

T = TypeVar("T")

_PARTITIONS: Final = 128
# Hashes are signed 64-bit numbers; their highest bits give the partition.
_RANGE_BITS: Final = 57
_BLOCK_BYTES: Final = 1 << 15


class Asked(NamedTuple):
    """Text to look up; `number` rises from call to call, `name` replaces the text in the answer."""

    number: int
    text: str
    name: str = ""


class Matches(Closable, Generic[T]):
    """Notes texts with values of a `kind`, then finds which of other texts were noted, in the order asked.

    A context manager. Texts are partitioned by hash into temporary files in `directory` (None: the system's): at
    most a 128th of the noted ones, and a block of each file, is in memory. Some 5 microseconds per text. A text that
    is not UTF-8, such as a name on a local disk, matches none, since no file of a job has such a name. `count` is
    the number of noted texts.
    """

    def __init__(self, kind: Any, *, directory: str | None = None) -> None:
        self.count: int = 0
        self._of_noted: Any = tuple[str, kind]
        self._of_answers: Any = tuple[int, str, kind]
        self._directory = directory
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
        return SpillFile(kind, directory=self._directory, block_bytes=_BLOCK_BYTES)


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
