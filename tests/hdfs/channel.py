"""The way to HDFS's files that does not go through the store."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from committer.paths import StorePath


class Asked(Protocol):
    """Servers that Hadoop's own client is asked about."""

    @property
    def hdfs(self) -> Any:
        """The client."""

    def path(self, name: str) -> Any:
        """A path as it takes it."""


class JavaChannel:
    """Hadoop's own client."""

    def __init__(self, cluster: Asked, root: StorePath) -> None:
        self._cluster = cluster
        self.root = root

    async def files(self) -> dict[str, bytes]:
        return await asyncio.to_thread(lambda: {name: self._read(name) for name in self._walk(directories=False)})

    async def directories(self) -> set[str]:
        return await asyncio.to_thread(lambda: set(self._walk(directories=True)))

    async def write(self, name: str, data: bytes) -> None:
        def write() -> None:
            stream = self._cluster.hdfs.create(self._cluster.path(f"{self.root.path}/{name}"), True)
            stream.write(bytearray(data))
            stream.close()

        await asyncio.to_thread(write)

    def _walk(self, *, directories: bool) -> list[str]:
        found, pending = [], [self.root.path]
        while pending:
            for status in self._cluster.hdfs.listStatus(self._cluster.path(pending.pop())):
                path = status.getPath().toUri().getPath()
                if status.isDirectory():
                    pending.append(path)
                if status.isDirectory() == directories:
                    found.append(path.removeprefix(f"{self.root.path}/"))
        return found

    def _read(self, name: str) -> bytes:
        stream = self._cluster.hdfs.open(self._cluster.path(f"{self.root.path}/{name}"))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()
