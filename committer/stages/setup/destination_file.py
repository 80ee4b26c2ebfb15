"""Rules for a file at the destination's own path: the job replaces the file, or is refused."""

from __future__ import annotations

import shlex

from committer.errors import (
    StoreError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePermissionError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.durability import sync_directories
from committer.stages.names import is_hidden
from committer.stores.abilities import LOCAL_PATHS
from committer.stores.base import FileStatus
from committer.stores.helpers import status_or_none


async def object_at_destination(context: StageContext) -> FileStatus | None:
    """Returns the status of an object with the destination's own name: one call, none with real directories."""
    destination = context.layout.destination
    if context.store.capabilities.directories or not destination.name:
        return None
    try:
        standing = await status_or_none(context.store, destination)
    except StorePermissionError:
        # A policy may allow the objects below a name but not the name itself.
        return None
    return standing if standing is not None and not standing.is_directory else None


async def refuse_object(context: StageContext, operation: str) -> None:
    """Refuses a job if an object has the destination's own name and the job does not replace it: at most one call."""
    # Readers of the destination would find that object instead of the job's files.
    if not context.config.replaces_destination and await object_at_destination(context) is not None:
        raise _error(context, operation, context.layout.destination, None)


async def enclose_file(context: StageContext) -> bool:
    """Replaces a file at the destination with a directory that contains it, if the job replaces the destination."""
    # Readers of the directory still find the old data, and the commit supersedes the file. Local disks only.
    # Two calls; with `durability="fsync"` two more. Returns False if nothing was changed.
    store, destination = context.store, context.layout.destination
    if not (context.config.replaces_destination and store.capabilities.local_paths):
        return False
    try:
        standing = await status_or_none(store, destination)
        if standing is None or standing.is_directory or standing.is_link or standing.is_special:
            return False
        # Readers of a directory ignore hidden names.
        name = f"old{destination.name}" if is_hidden(destination.name) else destination.name
        await LOCAL_PATHS.required(store, "enclose_file").enclose_file(destination, name)
    except (StoreNotFoundError, StoreNotADirectoryError, UnsupportedError):
        return False
    await sync_directories(context, [destination, destination.parent])
    return True


async def file_in_the_way(context: StageContext, operation: str, cause: StoreError) -> StoreError:
    """Builds the error of a job directory that cannot be created: looks for the file in its path, bottom up."""
    place = context.layout.job_directory
    for _depth in range(place.path.count("/")):
        try:
            standing = await status_or_none(context.store, place)
            if standing is not None and not standing.is_directory:
                return _error(context, operation, place, cause)
        except StoreNotADirectoryError:
            pass
        place = place.parent
    return StoreNotFoundError(
        f"a file at {context.layout.destination} or above it was replaced while the job was set up",
        operation=operation,
        path=context.layout.destination,
        next_step="open the job again",
        causes=[cause],
    )


def _error(
    context: StageContext, operation: str, place: StorePath, cause: StoreError | None
) -> StoreNotADirectoryError:
    program = {"file": "mv -n", "s3": "aws s3 mv"}.get(place.scheme, "hadoop fs -mv")
    name = place.path if place.scheme == "file" else str(place)
    why = also = ""
    # A job can replace a file at its destination, not one above it or in the place of `_temporary`.
    replaceable = place == context.layout.destination
    if replaceable and context.config.replaces_destination:
        why = "; this store cannot replace a file with a directory in one step" if cause is not None else ""
    elif replaceable and (cause is None or context.store.capabilities.local_paths):
        also = 'overwrite the whole destination, which replaces the file (conflict_mode="replace" with '
        also += 'superseded_scope="destination"), '
    return StoreNotADirectoryError(
        f"a file exists at {name}, where a directory must be{why}",
        operation=operation,
        path=context.layout.destination,
        next_step=f"choose another destination, {also}or move the file away: "
        f"{program} {shlex.quote(name)} {shlex.quote(f'{name}.old')}",
        causes=[cause] if cause is not None else [],
    )
