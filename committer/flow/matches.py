"""Finding which of more texts than fit in memory were noted, with what was noted of each."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from committer.file_names import is_utf_8
from committer.flow.spill import SpillFile

T = TypeVar("T")

_PARTITIONS: Final = 128
# Hashes are signed 64-bit numbers; each partition takes an equal range of them, which the highest bits tell.
_RANGE_BITS: Final = 57
_BLOCK_BYTES: Final = 1 << 15


class Asked(NamedTuple):
    """A text that is asked for.

    Attributes:
        number: Its turn; a later one has a higher number.
        text: What is compared.
        name: What it is to be told as; empty for the text itself.
    """

    number: int
    text: str
    name: str = ""


class Matches(Generic[T]):
    """Notes texts with a value each, is asked for others, and tells which of these were noted, in the order asked.

    Both are cut into ranges of hashes, each a temporary file of its own, so that equal texts meet in one range: at
    most a 128th of what was noted is in memory, and a block of each file. Some 5 microseconds a text. Use it as an
    asynchronous context manager, or call `close`.

    A text that is not UTF-8, as names on a local disk may be, is equal to none: no name of a job's file is like that.

    Args:
        kind: What the values are: anything that msgspec can write and read.
        directory: Where files lie; the system's directory for temporary files when None.

    Attributes:
        count: Texts noted so far.
    """

    def __init__(self, kind: Any, *, directory: str | None = None) -> None:
        self.count: int = 0
        self._of_noted: Any = tuple[str, kind]
        self._of_answers: Any = tuple[int, str, kind]
        self._directory = directory
        self._noted: list[SpillFile[tuple[str, T]]] = []
        self._asked: list[SpillFile[Asked]] = []

    async def note(self, texts: Sequence[str], values: Sequence[T]) -> None:
        """Notes texts; of one that is noted twice the later value counts.

        Raises:
            CommitterError: The disk did not take a block.
        """
        if texts and not self._noted:
            self._noted = [self._file(self._of_noted) for _ in range(_PARTITIONS)]
        for text, value in zip(texts, values, strict=True):
            if not is_utf_8(text):
                continue
            await self._noted[hash(text) >> _RANGE_BITS].append((text, value))
        self.count += len(texts)

    async def ask(self, asked: Sequence[Asked]) -> None:
        """Asks for texts, in the order of their numbers.

        Raises:
            CommitterError: The disk did not take a block.
        """
        if asked and not self._asked:
            self._asked = [self._file(Asked) for _ in range(_PARTITIONS)]
        for one in asked:
            if not is_utf_8(one.text):
                continue
            await self._asked[hash(one.text) >> _RANGE_BITS].append(one)

    async def answers(self) -> AsyncGenerator[tuple[int, str, T]]:
        """Number, name and value of each text that was asked for and noted. Once; nothing is kept afterwards.

        Raises:
            RecordError: Not as much came back as was written.
            CommitterError: The disk failed.
        """
        async with AsyncExitStack() as used:
            runs: list[SpillFile[tuple[int, str, T]]] = []
            for noted, asked in zip(self._noted, self._asked, strict=False):
                known = {text: value async for text, value in noted.read()}
                await noted.close()
                # Those of one range come in order already.
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
        """Frees files and memory. Safe to call twice."""
        files: list[SpillFile[Any]] = [*self._noted, *self._asked]
        self._noted, self._asked = [], []
        self.count = 0
        for file in files:
            await file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _file(self, kind: Any) -> SpillFile[Any]:
        return SpillFile(kind, directory=self._directory, block_bytes=_BLOCK_BYTES)


async def _merged(runs: Sequence[SpillFile[tuple[int, str, T]]]) -> AsyncGenerator[tuple[int, str, T]]:
    """What several lists hold, each in the order of its numbers, in the order of all."""
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
