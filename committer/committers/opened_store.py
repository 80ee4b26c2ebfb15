"""Opens stores that are paced, retried and counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol, cast

import anyio

from committer.events import Statistics, names
from committer.flow.pacing import Claim, claim_limits
from committer.flow.retry import DEFAULT_POLICY
from committer.flow.runtime import current_runtime
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stores.base import Store
from committer.stores.paced import PacedStore
from committer.stores.registry import find_store


def paced(
    store: Store, config: CommitterConfig, statistics: Statistics, *, owned: bool, claim: Claim | None = None
) -> PacedStore:
    """Wraps a store with limits that all jobs of the process share on its endpoint, and counts for one job or task.

    `claim` has the limits of another view of the same opened store.
    """
    if claim is None:
        rate = config.io_rate_for(store.scheme, store.capabilities.default_io_rate)
        claim = claim_limits(store.endpoint, concurrency=config.io_concurrency, rate=rate or None)
    return PacedStore(
        store,
        pacer=claim.pacer,
        claim=claim,
        statistics=statistics,
        retry_policy=DEFAULT_POLICY,
        owned=owned,
        weights={"read": config.io_read_weight, "write": config.io_write_weight, "delete": config.io_delete_weight},
    )


@asynccontextmanager
async def open_store(
    path: StorePath, storage_options: Mapping[str, object] | None = None, config: CommitterConfig | None = None
) -> AsyncIterator[PacedStore]:
    """Opens the store of a path for a block, with limits and retries, for work of no job; no store call."""
    found = await find_store(path, storage_options)
    store = paced(found, config or CommitterConfig(), Statistics(), owned=is_owned(storage_options))
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


@asynccontextmanager
async def limited(store: Store, config: CommitterConfig | None) -> AsyncIterator[PacedStore]:
    """Yields an opened store with limits and retries, for work of no job."""
    view = paced(store, config or CommitterConfig(), Statistics(), owned=False)
    try:
        yield view
    finally:
        await view.close()


@asynccontextmanager
async def store_beside(
    store: Store, destination: StorePath, place: StorePath, config: CommitterConfig
) -> AsyncIterator[Store]:
    """Yields the destination's `store` if a place is on it too, else opens that of the place for the block."""
    if (place.scheme, place.authority) == (destination.scheme, destination.authority):
        yield store
    else:
        async with open_store(place, config=config) as other:
            yield other


@asynccontextmanager
async def store_of_call(path: StorePath, storage_options: Mapping[str, object] | None = None) -> AsyncIterator[Store]:
    """Opens the store of a path, without limits, for one public call; whatever wraps it must not own it."""
    store = await find_store(path, storage_options)
    try:
        yield store
    finally:
        if is_owned(storage_options):
            await store.close()


class _Closed(Protocol):
    async def close(self) -> None: ...


@asynccontextmanager
async def closed_on_failure(resource: _Closed | None, *, owned: bool = True) -> AsyncIterator[None]:
    """Closes a resource, such as a store, if the block fails and the resource is owned."""
    try:
        yield
    except BaseException:
        if resource is not None and owned:
            with anyio.CancelScope(shield=True):
                await resource.close()
        raise


def is_owned(storage_options: Mapping[str, object] | None) -> bool:
    """Returns whether a store is opened for this use alone, not given by the user."""
    return "store" not in (storage_options or {})


def fresh_statistics(context: StageContext) -> StageContext:
    """Returns the same job with statistics of its own, for a task attempt or a second call."""
    statistics = Statistics()
    store = cast("PacedStore", context.store)
    fresh = paced(store.inner, context.config, statistics, owned=store.owned, claim=store.claim)
    return replace(context, store=fresh, statistics=statistics)


def as_new_driver(context: StageContext) -> StageContext:
    """Returns the same job as a new driver for another try, with the setup's statistics, as in Hadoop's reports.

    A delayed request of an earlier try must not hit a record of this one.
    """
    fresh = replace(fresh_statistics(context), driver=current_runtime().nonce())
    fresh.statistics.merge(context.statistics.snapshot().only(names.JOB_STAGE_SETUP))
    return fresh
