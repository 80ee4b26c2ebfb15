"""A local disk far away: every call waits, and is counted as the Java side of the comparison counts it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Collection
from typing import Literal

import msgspec

from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.local import LocalStore

_DESCRIBED = re.compile(r"part-(\d+)-(\d+)")


def described_file(task: int, file: int) -> tuple[int, float, str]:
    """Length, time and identity of a file that nobody wrote, as its manifest says."""
    return 1000 + file, 0.0, f"{task}{file:07d}:1"


class SlowStore(Store):
    """Wraps a local store.

    One wait a call, and for `put` two: Java creates, then renames. Symbolic links and local paths, which no remote
    store has, are not offered.

    Args:
        latency_s: How long each call waits, in seconds.
        no_op: Whether files are not renamed and directories not made: what is left is the engine's own work.
    """

    def __init__(self, latency_s: float, *, no_op: bool = False) -> None:
        self.inner = LocalStore()
        self.latency_s = latency_s
        self.calls: Counter[str] = Counter()
        self._no_op = no_op

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def endpoint(self) -> str:
        return self.inner.endpoint

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(
            self.inner.capabilities,
            links=False,
            local_paths=False,
            hard_links=False,
            durable=False,
            checksum_sidecars=False,
        )

    async def _call(self, name: str, times: int = 1) -> None:
        self.calls[name] += times
        if self.latency_s:
            await asyncio.sleep(self.latency_s * times)

    async def probe(self, directory: StorePath) -> None:
        await self._call("probe")

    async def status(self, path: StorePath) -> FileStatus:
        await self._call("status")
        if self._no_op and (described := _DESCRIBED.search(path.name)) and "/tasks/" in path.path:
            task, file = map(int, described.groups())
            return FileStatus(path, False, *described_file(task, file))
        return await self.inner.status(path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        await self._call("list")
        async for status in self.inner.list(directory):
            yield status

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        await self._call("open")
        return await self.inner.read(path, limit=limit)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        await self._call("create")
        await self._call("rename")
        return await self.inner.put(path, data, exclusive=exclusive, temporary=temporary, durable=durable)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        await self._call("create")
        return await self.inner.open_writer(path, durable=durable)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        await self._call("mkdirs")
        return True if self._no_op else await self.inner.make_directory(path, parents=parents)

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        await self._call("rename")
        if not self._no_op:
            await self.inner.rename_file(source, destination, replace=replace, identity=identity)

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        await self._call("rename")
        await self.inner.rename_directory(source, destination)

    async def delete_file(self, path: StorePath) -> bool:
        await self._call("delete")
        return await self.inner.delete_file(path)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        await self._call("delete")
        return await self.inner.delete_directory(path, recursive=recursive)

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        return await self.inner.find_link(root, directories)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        await self._call("sync")
        await self.inner.sync(path, kind=kind)

    async def close(self) -> None:
        await self.inner.close()
