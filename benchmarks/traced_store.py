"""Any store, with each call's begin and end written down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from time import perf_counter
from typing import NamedTuple, TypeVar

from committer.errors import StoreError
from committer.paths import StorePath
from committer.stores.abilities import BATCH_RENAME
from committer.stores.base import FileWriter, Store
from committer.stores.forwarding import ForwardingStore, Operation

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


class TracedStore(ForwardingStore):
    """Wraps a store and does all that it does.

    Attributes:
        inner: The store.
        spans: The calls so far, in the order they ended in; a listing ends with its last entry.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.spans: list[Span] = []

    async def call(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> T:
        return await self._traced(operation.name, send)

    async def stream(
        self, operation: Operation, entries: Callable[[], AsyncIterator[T]], path: StorePath
    ) -> AsyncIterator[T]:
        started = perf_counter()
        try:
            async for entry in entries():
                yield entry
        finally:
            self.spans.append(Span(operation.name, started, perf_counter()))

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        # What is written then is not traced.
        return await self._traced("open_writer", lambda: self.inner.open_writer(path, durable=durable))

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        # Counted as what it stands for.
        inner = BATCH_RENAME.required(self.inner, "rename_files")
        return await self._traced(
            "rename_file", lambda: inner.rename_files(renames, seen=seen, looks=looks), times=len(renames)
        )

    async def _traced(self, name: str, send: Callable[[], Awaitable[T]], times: int = 1) -> T:
        started = perf_counter()
        try:
            return await send()
        finally:
            self.spans += [Span(name, started, perf_counter())] * times
