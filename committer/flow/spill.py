"""Bounded memory for unbounded lists: what does not fit goes to temporary files, in blocks.

`SpillFile` is a list; `PartitionedSpill` finds what was added twice. This is the one place of `flow` that enters a
thread, once for each block of about a megabyte. The files have no name, so nothing is left behind however the process
ends.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from committer.flow._spill_file import SpillFile, lost

__all__ = ["DuplicateGroup", "PartitionedSpill", "SpillFile"]


class DuplicateGroup(NamedTuple):
    """One key that was added more than once.

    Attributes:
        key: The key.
        payloads: What was given with it, at most `PartitionedSpill.kept_payloads` of them.
        total: How often the key was added.
    """

    key: str
    payloads: tuple[str, ...]
    total: int


class PartitionedSpill:
    """Finds keys that were added twice, among more keys than fit in memory.

    Keys are held in memory up to a bound. Beyond it they are spread by hash over files on disk, so that equal keys
    meet in one file, and each file is looked at alone (and spread further where it is still too long). Use it as an
    asynchronous context manager, or call `close`.

    Args:
        bound: Keys in memory at once.
        directory: Where files lie; the system's directory for temporary files when None.
        kept_payloads: Payloads of one key that are kept to be told.

    Attributes:
        count: Keys added so far.
    """

    def __init__(self, *, bound: int = 200_000, directory: str | None = None, kept_payloads: int = 100) -> None:
        if bound < 1:
            raise ValueError(f"bound must be at least 1, not {bound}")
        self.count: int = 0
        self.kept_payloads = kept_payloads
        self._bound = bound
        self._directory = directory
        self._groups = _Groups()
        self._files: list[SpillFile[_Row]] = []

    @property
    def on_disk(self) -> bool:
        """Whether the bound was passed."""
        return bool(self._files)

    async def add(self, key: str, payload: str = "") -> None:
        """Adds a key, with something to tell about it if it turns out to be there twice.

        Raises:
            CommitterError: The disk did not take a block.
        """
        self.count += 1
        row = _Row(_pack(key), _pack(payload))
        if self._files:
            await _append(self._files, row, 0)
            return
        self._groups.add(row)
        if self._groups.rows > self._bound:
            groups, self._groups = self._groups, _Groups()
            self._files = self._new_files()
            for moved in groups.all_rows():
                await _append(self._files, moved, 0)

    async def duplicates(self) -> AsyncIterator[DuplicateGroup]:
        """Iterates over the keys that were added more than once. Call it when all are added.

        Raises:
            RecordError: Not as many keys came back as were added.
            CommitterError: The disk failed.
        """
        seen = 0
        if not self._files:
            for group in self._groups.duplicates(self.kept_payloads):
                yield group
            seen = self._groups.rows
        for file in self._files:
            async for group in self._duplicates_of(file, 1):
                yield group
            seen += file.count
        if seen != self.count:
            raise lost(f"{seen} of {self.count} keys came back")

    async def close(self) -> None:
        """Frees files and memory. Safe to call twice."""
        files, self._files, self._groups = self._files, [], _Groups()
        self.count = 0
        for file in files:
            await file.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _duplicates_of(self, file: SpillFile[_Row], level: int) -> AsyncIterator[DuplicateGroup]:
        if file.count <= self._bound or level == _LEVELS:
            groups = _Groups(self.kept_payloads)
            async for row in file.read():
                groups.add(row)
            for group in groups.duplicates(self.kept_payloads):
                yield group
            return
        files = self._new_files()
        try:
            async for row in file.read():
                await _append(files, row, level)
            for part in files:
                async for group in self._duplicates_of(part, level + 1):
                    yield group
        finally:
            for part in files:
                await part.close()

    def _new_files(self) -> list[SpillFile[_Row]]:
        return [
            SpillFile(_Row, directory=self._directory, block_bytes=_PARTITION_BLOCK_BYTES) for _ in range(_PARTITIONS)
        ]


# 64 files of a quarter of a megabyte in memory each; 32 bits of hash tell 64 files apart five times over.
_PARTITIONS = 64
_PARTITION_BLOCK_BYTES = 1 << 18
_PARTITION_BITS = 6
_LEVELS = 5


class _Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    # Bytes, because a file name need not be valid Unicode.
    key: bytes
    payload: bytes


class _Groups:
    """Rows by key; of a key at most `kept` payloads when that is given."""

    def __init__(self, kept: int | None = None) -> None:
        self.rows = 0
        self._first: dict[bytes, bytes] = {}
        self._further: dict[bytes, list[bytes]] = {}
        self._totals: dict[bytes, int] = {}
        self._kept = kept

    def add(self, row: _Row) -> None:
        self.rows += 1
        if row.key not in self._first:
            self._first[row.key] = row.payload
            return
        self._totals[row.key] = self._totals.get(row.key, 1) + 1
        further = self._further.setdefault(row.key, [])
        if self._kept is None or len(further) + 1 < self._kept:
            further.append(row.payload)

    def all_rows(self) -> Iterator[_Row]:
        for key, payload in self._first.items():
            yield _Row(key, payload)
            for further in self._further.get(key, ()):
                yield _Row(key, further)

    def duplicates(self, kept: int) -> Iterator[DuplicateGroup]:
        for key, total in self._totals.items():
            payloads = [self._first[key], *self._further[key]][:kept]
            yield DuplicateGroup(_unpack(key), tuple(map(_unpack, payloads)), total)


async def _append(files: list[SpillFile[_Row]], row: _Row, level: int) -> None:
    # Each level looks at other bits of one hash: what met at one level is told apart at the next.
    index = zlib.crc32(row.key) >> (level * _PARTITION_BITS) & (_PARTITIONS - 1)
    await files[index].append(row)


def _pack(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _unpack(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
