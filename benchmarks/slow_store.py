"""A local disk far away: every call waits, and is counted as the Java side of the comparison counts it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus, FileWriter
from committer.stores.forwarding import ForwardingStore
from committer.stores.local import LocalStore

_DESCRIBED = re.compile(r"part-(\d+)-(\d+)")


def described_file(task: int, file: int) -> tuple[int, float, str]:
    """Length, time and identity of a file that was never written, as its manifest says."""
    return 1000 + file, 0.0, f"{task}{file:07d}:1"


class SlowStore(ForwardingStore):
    """Wraps a local store.

    One wait a call, and for `put` two: Java creates, then renames. Symbolic links and local paths, which no remote
    store has, are not offered.

    Args:
        latency_s: How long each call waits, in seconds.
        no_op: Whether files are not renamed and directories of the output not made: what is left is
            the engine's own work.
    """

    def __init__(self, latency_s: float, *, no_op: bool = False) -> None:
        super().__init__(LocalStore())
        self.latency_s = latency_s
        self.calls: Counter[str] = Counter()
        self._no_op = no_op

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(
            self.inner.capabilities,
            local_paths=False,
            hard_links=False,
            durable=False,
            batch_rename=False,
            checksum_sidecars=False,
        )

    async def _wait(self, name: str, times: int = 1) -> None:
        self.calls[name] += times
        if self.latency_s:
            await asyncio.sleep(self.latency_s * times)

    async def probe(self, directory: StorePath) -> None:
        await self._wait("probe")

    async def status(self, path: StorePath) -> FileStatus:
        await self._wait("status")
        if self._no_op and (described := _DESCRIBED.search(path.name)) and "/tasks/" in path.path:
            task, file = map(int, described.groups())
            return FileStatus(path, False, *described_file(task, file))
        return await self.inner.status(path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        await self._wait("list")
        async for status in self.inner.list(directory):
            yield status

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        await self._wait("open")
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
        await self._wait("create")
        await self._wait("rename")
        return await self.inner.put(path, data, exclusive=exclusive, temporary=temporary, durable=durable)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        await self._wait("create")
        return await self.inner.open_writer(path, durable=durable)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        await self._wait("mkdirs")
        is_of_output = "/_temporary/" not in path.path
        return True if self._no_op and is_of_output else await self.inner.make_directory(path, parents=parents)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        await self._wait("rename")
        if not self._no_op:
            await self.inner.rename_file(source, destination, replace=replace, identity=identity, version=version)

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        await self._wait("rename")
        await self.inner.rename_directory(source, destination, known=known)

    async def delete_file(self, path: StorePath) -> bool:
        await self._wait("delete")
        return await self.inner.delete_file(path)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        await self._wait("delete")
        return await self.inner.delete_directory(path, recursive=recursive)
