"""Syncs directories to disk, and splits work into batches of store calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from committer.errors import StoreNotFoundError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stores.abilities import SYNC
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import exists


async def sync_directories(
    context: StageContext, directories: Iterable[StorePath], *, missing_ok: bool = False
) -> None:
    """Syncs directories, one call each, if the job requires durability and the store needs it."""
    if not context.durable:
        return
    store = SYNC.required(context.store, "sync")

    async def sync(directory: StorePath) -> None:
        try:
            await store.sync(directory, kind="directory")
        except StoreNotFoundError:
            if not missing_ok:
                raise

    await run_workers(
        sorted(set(directories)), sync, workers=context.config.io_concurrency, operation="sync_directories"
    )


async def missing_directories(context: StageContext, directory: StorePath) -> list[StorePath]:
    """Returns those of a directory and its parents that do not exist, deepest first; empty without durability."""
    # The caller that creates them must sync the parent of each. One call per missing directory and one more.
    missing: list[StorePath] = []
    if not context.durable:
        return missing
    while directory != directory.parent and not await exists(context.store, directory):
        missing.append(directory)
        directory = directory.parent
    return missing


T = TypeVar("T")

# Most files in one call that renames many, and such calls at a time: as many as help where renames are slow.
# The store decides how many renames run at a time.
_TOGETHER: Final = 128
_CALLS_AT_ONCE: Final = 4
# Most children of a directory in one batch.
_LISTED_TOGETHER: Final = 1000


async def run_together(
    items: Sequence[T], step: Callable[[Sequence[T]], Awaitable[None]], *, io_concurrency: int, operation: str
) -> None:
    """Calls `step` with batches of items; a call with many items counts as that many of `io_concurrency`."""
    together = max(1, min(_TOGETHER, io_concurrency // 2))

    async def part(start: int) -> None:
        await step(items[start : start + together])

    calls = max(1, min(_CALLS_AT_ONCE, io_concurrency // together))
    await run_workers(range(0, len(items), together), part, workers=calls, operation=operation)


def batches_by_length(
    items: Iterable[T], length_of: Callable[[T], int], *, most: int, most_bytes: int
) -> Iterator[list[T]]:
    """Yields batches of at most `most` items and `most_bytes` by `length_of`, but of at least one item."""
    batch: list[T] = []
    total = 0
    for item in items:
        length = length_of(item)
        if batch and (len(batch) == most or total + length > most_bytes):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += length
    if batch:
        yield batch


async def pages(store: Store, directory: StorePath) -> AsyncIterator[list[FileStatus]]:
    """Yields the children of a directory in batches of a thousand, with the errors of `Store.list`: one call."""
    some: list[FileStatus] = []
    async for child in store.list(directory):
        some.append(child)
        if len(some) == _LISTED_TOGETHER:
            yield some
            some = []
    if some:
        yield some
