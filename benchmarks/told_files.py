"""Files that a store only tells of: those of a very large job, and those below a directory that makes way."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.slow_store import described_file
from committer.layout import PLAN
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus, Store
from committer.stores.forwarding import ForwardingStore

WAY: Final = "way"
"""The directory that exists at a file's name."""

_NEW = re.compile(r"part-(\d+)-(\d+)\.parquet")
_BELOW = re.compile(r"below-(\d+)")
_A_DIRECTORY: Final = 1000


class ToldFilesStore(ForwardingStore):
    """Tells of files that were never written; nothing that is done with one of them changes anything.

    Args:
        inner: Where everything else is: records, directories.
        destination: The job's.
        files: How many files the job has.
        task_files: How many of them a task has.
        directories: Over how many directories.
        published: Whether they exist at the destination; else where their tasks wrote them.
        below: How many files are below the directory `WAY`.
        side_files: Where side files of decisions are kept instead of in `inner`, which may be in memory.
    """

    def __init__(
        self,
        inner: Store,
        destination: str,
        *,
        files: int = 0,
        task_files: int = 1000,
        directories: int = 1000,
        published: bool = False,
        below: int = 0,
        side_files: Path | None = None,
    ) -> None:
        super().__init__(inner)
        self._destination = StorePath.of(destination)
        self._files = files
        self._task_files = task_files
        self._directories = directories
        self._published = published
        self._below = below
        self._side_files = side_files

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(
            super().capabilities,
            local_paths=False,
            hard_links=False,
            durable=False,
            batch_rename=False,
            checksum_sidecars=False,
            conditional_rename=True,
        )

    async def status(self, path: StorePath) -> FileStatus:
        told = self._told(path)
        return told if told is not None else await super().status(path)

    def _told(self, path: StorePath) -> FileStatus | None:
        below, new = _BELOW.fullmatch(path.name), _NEW.fullmatch(path.name)
        if below is not None and path.is_under(self._destination / WAY):
            return self._old(path, int(below[1]))
        if new is not None and self._published == ("/_temporary/" not in path.path):
            return FileStatus(path, False, *described_file(int(new[1]), int(new[2])))
        if path == self._destination / WAY and self._below and not self.capabilities.directories:
            return FileStatus(path, True, 0)
        return None

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        way = self._destination / WAY
        if self._below and directory == way:
            for number in range((self._below + _A_DIRECTORY - 1) // _A_DIRECTORY):
                yield FileStatus(way / f"d={number}", True, 0)
        elif directory.parent == way:
            first = int(directory.name[2:]) * _A_DIRECTORY
            for number in range(first, min(self._below, first + _A_DIRECTORY)):
                yield self._old(directory / f"below-{number:08d}", number)
        elif directory.parent == self._destination and directory.name.startswith("p="):
            for number in range(int(directory.name[2:]), self._files if self._published else 0, self._directories):
                task, file = divmod(number, self._task_files)
                path = directory / f"part-{task:05d}-{file:05d}.parquet"
                yield FileStatus(path, False, *described_file(task, file))
        else:
            async for status in super().list(directory):
                yield status
            if directory == self._destination:
                for number in range(min(self._directories, self._files) if self._published else 0):
                    yield FileStatus(directory / f"p={number}", True, 0)
                if self._below and not self.capabilities.directories:
                    yield FileStatus(way, True, 0)

    def _old(self, path: StorePath, number: int) -> FileStatus:
        return FileStatus(path, False, 1000, 0.0, f"{number}:2")

    async def put(self, path: StorePath, data: bytes, **how: Any) -> FileStatus:
        if self._side_files is None or not path.name.startswith(PLAN):
            return await super().put(path, data, **how)
        (self._side_files / path.name).write_bytes(data)
        return await super().put(path, b"", **how)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        if self._side_files is None or not path.name.startswith(PLAN):
            return await super().read(path, limit=limit)
        return (self._side_files / path.name).read_bytes()

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        if path.name.startswith("p=") and path.parent == self._destination:
            return True
        return await super().make_directory(path, parents=parents)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        if _NEW.fullmatch(source.name) or _BELOW.fullmatch(source.name):
            return
        await super().rename_file(source, destination, replace=replace, identity=identity, version=version)
