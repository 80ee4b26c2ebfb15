"""Any store, with each call's begin and end written down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable
from inspect import iscoroutinefunction
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store

T = TypeVar("T")


class Span(NamedTuple):
    """One store call; times on the clock of `time.perf_counter`, in seconds."""

    name: str
    start: float
    end: float


def round_trips(spans: Iterable[Span]) -> int:
    """The most calls of which each began when the one before had ended: what a caller waited for, one after another."""
    count, last = 0, float("-inf")
    for span in sorted(spans, key=lambda span: span.end):
        if span.start >= last:
            count, last = count + 1, span.end
    return count


class TracedStore(Store):
    """Wraps a store and does all that it does. Optional abilities are passed on, and traced too.

    Attributes:
        inner: The store.
        spans: The calls so far, in the order they ended in; a listing ends with its last entry.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.spans: list[Span] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not iscoroutinefunction(found):
            return found

        async def traced(*arguments: Any, **named: Any) -> Any:
            if name == "rename_files":
                # Counted as what it stands for.
                return await self._traced("rename_file", found(*arguments, **named), times=len(arguments[0]))
            return await self._traced(name, found(*arguments, **named))

        return traced

    async def _traced(self, name: str, call: Awaitable[T], times: int = 1) -> T:
        started = perf_counter()
        try:
            return await call
        finally:
            self.spans += [Span(name, started, perf_counter())] * times

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def endpoint(self) -> str:
        return self.inner.endpoint

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def probe(self, directory: StorePath) -> None:
        await self._traced("probe", self.inner.probe(directory))

    async def status(self, path: StorePath) -> FileStatus:
        return await self._traced("status", self.inner.status(path))

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        started = perf_counter()
        try:
            async for status in self.inner.list(directory):
                yield status
        finally:
            self.spans.append(Span("list", started, perf_counter()))

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        return await self._traced("read", self.inner.read(path, limit=limit))

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        put = self.inner.put(path, data, exclusive=exclusive, temporary=temporary, durable=durable)
        return await self._traced("put", put)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        return await self._traced("open_writer", self.inner.open_writer(path, durable=durable))

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        return await self._traced("make_directory", self.inner.make_directory(path, parents=parents))

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        renamed = self.inner.rename_file(source, destination, replace=replace, identity=identity)
        await self._traced("rename_file", renamed)

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        await self._traced("rename_directory", self.inner.rename_directory(source, destination))

    async def delete_file(self, path: StorePath) -> bool:
        return await self._traced("delete_file", self.inner.delete_file(path))

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        return await self._traced("delete_directory", self.inner.delete_directory(path, recursive=recursive))

    async def close(self) -> None:
        await self.inner.close()
