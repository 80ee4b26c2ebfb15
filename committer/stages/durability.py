"""Making names survive a power loss: a file's data is synced when it is closed, its name with its directory."""

from __future__ import annotations

from collections.abc import Iterable

from committer.errors import StoreNotFoundError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stores.abilities import SYNC
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
