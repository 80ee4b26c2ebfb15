"""Making names survive a power loss: a file's data is synced when it is closed, its name with its directory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import cast

from committer.errors import StoreNotFoundError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stores.base import SupportsSync


async def sync_directories(context: StageContext, directories: Iterable[StorePath]) -> None:
    """Syncs directories when the job asked for it and the store needs it; one call each, else none."""
    if not context.durable:
        return
    store = cast("SupportsSync", context.store)

    async def sync(directory: StorePath) -> None:
        # One that is gone holds no names; that it is gone is its parent's to keep.
        with contextlib.suppress(StoreNotFoundError):
            await store.sync(directory, kind="directory")

    await run_workers(
        sorted(set(directories)), sync, workers=context.config.io_concurrency, operation="sync_directories"
    )
