"""Old files that a job takes away: written on a disk, or only told of by a store on which renames do nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from benchmarks.slow_store import SlowStore
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus

_OLD = re.compile(r"old-(\d+)")


def old_file(number: int, directories: int) -> str:
    """The name of an old file, spread over the directories that the job writes to."""
    return f"p={number % directories}/old-{number:08d}.parquet"


class OldFilesStore(SlowStore):
    """Tells of old files that were never written. A rename is told what its source must be, as on ADLS.

    Args:
        latency_s: As for `SlowStore`.
        destination: Where they are.
        old: How many.
        directories: Over how many directories.
    """

    def __init__(self, latency_s: float, destination: str, old: int, directories: int) -> None:
        super().__init__(latency_s, no_op=True)
        self._destination = StorePath.of(destination)
        self._old = old
        self._directories = directories

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, conditional_rename=True)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        if directory.parent == self._destination and directory.name.startswith("p="):
            await self._wait("list")
            for number in range(int(directory.name[2:]), self._old, self._directories):
                yield self._described(self._destination / old_file(number, self._directories), number)
            return
        async for status in super().list(directory):
            yield status
        if directory == self._destination:
            for number in range(min(self._directories, self._old)):
                yield FileStatus(directory / f"p={number}", True, 0)

    async def status(self, path: StorePath) -> FileStatus:
        described = _OLD.match(path.name)
        if described is None:
            return await super().status(path)
        await self._wait("status")
        return self._described(path, int(described[1]))

    def _described(self, path: StorePath, number: int) -> FileStatus:
        return FileStatus(path, False, 1000, 0.0, f"{number}:2")
