"""Makes names survive a power loss, and sizes batches of store calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
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
    """Syncs directories when the job asked for it and the store needs it; one call each, else none.

    Args:
        context: The job.
        directories: Whose entries are forced to the disk, in any order.
        missing_ok: Pass over those that are gone.
    """
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
    """Those of a directory and its parents that do not stand yet, deepest first; none where nothing needs syncing.

    The caller that makes them must sync the parent of each. One call a missing directory, and one more; without
    durability no call.
    """
    missing: list[StorePath] = []
    if not context.durable:
        return missing
    while directory != directory.parent and not await exists(context.store, directory):
        missing.append(directory)
        directory = directory.parent
    return missing


T = TypeVar("T")

# Files of one call where a store renames many at once, at most, and how many such calls it is given: as many as help
# where renames are slow. How many run at a time is the store's to say.
_TOGETHER: Final = 128
_CALLS_AT_ONCE: Final = 4
# Children of a directory that are looked at together.
_LISTED_TOGETHER: Final = 1000


async def run_together(
    items: Sequence[T], step: Callable[[Sequence[T]], Awaitable[None]], *, io_concurrency: int, operation: str
) -> None:
    """Calls `step` with a part of the items at a time, in order; as many at once as the job allows calls in flight.

    Args:
        items: All of them.
        step: What is done with a part.
        io_concurrency: How many calls the job allows; a call for many items counts as that many.
        operation: For errors.
    """
    together = max(1, min(_TOGETHER, io_concurrency // 2))

    async def part(start: int) -> None:
        await step(items[start : start + together])

    calls = max(1, min(_CALLS_AT_ONCE, io_concurrency // together))
    await run_workers(range(0, len(items), together), part, workers=calls, operation=operation)


async def pages(store: Store, directory: StorePath) -> AsyncIterator[list[FileStatus]]:
    """The children of a directory, a thousand at a time: one call.

    Raises:
        StoreNotFoundError: Nothing is there.
        StoreNotADirectoryError: A file is there.
    """
    some: list[FileStatus] = []
    async for child in store.list(directory):
        some.append(child)
        if len(some) == _LISTED_TOGETHER:
            yield some
            some = []
    if some:
        yield some
