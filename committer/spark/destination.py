"""What stands at the destination of a write, looked at before the job is set up."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

import msgspec

from committer.committers.opened_store import open_store
from committer.committers.registry import default_committer
from committer.config import CommitterConfig
from committer.errors import ConfigurationError, StoreNotADirectoryError, StoreNotFoundError, UnsupportedError
from committer.file_names import working_directory_in
from committer.paths import StorePath
from committer.spark.modes import SaveMode
from committer.spark.options import WriteOptions
from committer.stores.base import Store
from committer.stores.helpers import status_or_none

_LOGS: Final = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_ICEBERG_DIRECTORY: Final = "metadata"


class DestinationState(msgspec.Struct, frozen=True):
    """What a write finds.

    Attributes:
        used: Whether anything is there but directories of jobs. Unlike with Spark's default mode, an empty directory
            does not count: a job that was aborted may leave one.
        committer: The committer that suits the store.
        directories: Whether directories are real there.
    """

    used: bool
    committer: str
    directories: bool


async def look_at_destination(options: WriteOptions, mode: SaveMode) -> DestinationState:
    """`look_at` the destination that the options of a write name."""
    return await look_at(StorePath.of(options.path), mode, await options.resolve_storage(), options.config)


async def look_at(
    destination: StorePath,
    mode: SaveMode,
    storage: Mapping[str, object],
    config: CommitterConfig,
    *,
    committers: Container[str] | None = None,
) -> DestinationState:
    """Looks at the destination of a write, and refuses what no mode may write into: 1 listing, and 3 looks if used.

    Args:
        destination: The directory.
        mode: What is to become of what stands there.
        storage: How to reach the store.
        config: The rate of calls.
        committers: Those of stores that Spark's own writers can write to, where they are to write; None otherwise.

    Raises:
        ConfigurationError: All of a disk or bucket would be replaced.
        UnsupportedError: A table format with a log of its own keeps its files there, or Spark's own writers cannot
            write there.
    """
    if mode == "overwrite" and destination.path in ("", "/"):
        raise ConfigurationError(
            "the root of a disk or bucket is never overwritten",
            operation="save",
            path=destination,
            next_step="write into a directory below it, or append",
        )
    store = await open_store(destination, storage, config)
    try:
        committer = default_committer(store.capabilities)
        if committers is not None and committer not in committers:
            raise UnsupportedError(
                f"Spark's own writers are not committed on this store: its committer is {committer}",
                operation="setup_job",
                path=destination,
                next_step="use committer.spark.write there, or leave spark.sql.sources.commitProtocolClass unset",
            )
        used = await _is_used(store, destination)
        kind = await _table_format(store, destination) if used else None
    finally:
        await store.close()
    if kind is not None:
        raise UnsupportedError(
            f"the destination is a {kind} table: its readers go by its own log, and would not see what is written here"
            " or miss what is replaced",
            operation="save",
            path=destination,
            next_step=f"write it with {kind}, or give a directory of its own",
        )
    return DestinationState(used, committer, store.capabilities.directories)


async def _is_used(store: Store, destination: StorePath) -> bool:
    try:
        async for child in store.list(destination):
            if not working_directory_in(child.path.name):
                return True
    except StoreNotFoundError:
        return False
    except StoreNotADirectoryError:
        return True
    return False


async def _table_format(store: Store, destination: StorePath) -> str | None:
    for name, kind in _LOGS.items():
        if await status_or_none(store, destination / name) is not None:
            return kind
    try:
        async for child in store.list(destination / _ICEBERG_DIRECTORY):
            if child.path.name == "version-hint.text" or child.path.name.endswith(".metadata.json"):
                return "Iceberg"
    except (StoreNotFoundError, StoreNotADirectoryError):
        return None
    return None
