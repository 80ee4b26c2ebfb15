"""Inspects the destination of a write before the job is set up."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from committer.committers.opened_store import open_store
from committer.committers.registry import default_committer
from committer.errors import ConfigurationError, StoreNotADirectoryError, StoreNotFoundError, UnsupportedError
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.spark.modes import SaveMode
from committer.spark.options import WriteOptions
from committer.stages.check.foreign_metadata import RootView, first_data, look_at_root, refusal_of


class DestinationState(msgspec.Struct, frozen=True):
    """State of a write's destination; `directories` means that the store has real directories.

    `used` means that anything but directories of jobs exists. An empty directory does not count, unlike in Spark's
    default mode: an aborted job may leave one.
    """

    used: bool
    committer: str
    directories: bool


async def look_at_destination(options: WriteOptions, mode: SaveMode) -> DestinationState:
    """Calls `look_at` for the destination in a write's options."""
    whole = not (options.partition_by and options.overwrite_mode == "dynamic")
    return await look_at(StorePath.of(options.path), mode, await options.resolve_storage(), options.config, whole=whole)


async def look_at(
    destination: StorePath,
    mode: SaveMode,
    storage: Mapping[str, object],
    config: CommitterConfig,
    *,
    whole: bool,
    committers: Container[str] | None = None,
) -> DestinationState:
    """Inspects the destination of a write, and refuses one that the mode must not write to: see `look_at_root`.

    `whole` means that an overwrite replaces the whole destination; `committers` are those that Spark's own writers
    support, None if Python writes.
    """
    if mode == "overwrite" and destination.path in ("", "/"):
        raise ConfigurationError(
            "the root of a disk or bucket is never overwritten",
            operation="save",
            path=destination,
            next_step="write into a directory below it, or append",
        )
    async with open_store(destination, storage, config) as store:
        committer = default_committer(store.capabilities)
        if committers is not None and committer not in committers:
            raise UnsupportedError(
                f"Spark's own writers are not committed on this store: its committer is {committer}",
                operation="setup_job",
                path=destination,
                next_step="use committer.spark.write there, or leave spark.sql.sources.commitProtocolClass unset",
            )
        try:
            view = await look_at_root(store, destination)
            if view.used and mode in ("error", "ignore") and not store.capabilities.directories:
                view.used = await first_data(store, destination, hidden=True) is not None
        except StoreNotFoundError:
            view = RootView()
        except StoreNotADirectoryError:
            view = RootView(used=True)
        capabilities = store.capabilities
    # The modes `ignore` and `error` write nothing to a destination that is not empty.
    adds = mode == "append" or (mode == "overwrite" and not whole)
    refusal = refusal_of(view, whole=not adds)
    if refusal is not None:
        raise UnsupportedError(refusal[0], operation="save", path=destination, next_step=refusal[1])
    return DestinationState(view.used, committer, capabilities.directories)
