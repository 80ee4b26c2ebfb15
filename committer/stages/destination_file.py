"""A file that has the name of a job's destination: replaced where an object and a prefix share a name, else refused."""

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
    """The object that has the destination's own name; one call, none where directories are real, nor for a bucket."""
    destination = context.layout.destination
    if context.store.capabilities.directories or not destination.name:
        return None
    try:
        standing = await status_or_none(context.store, destination)
    except StorePermissionError:
        # A policy for the objects below a name may say nothing of the name itself.
        return None
    return standing if standing is not None and not standing.is_directory else None


async def refuse_object(context: StageContext, operation: str) -> None:
    """Refuses a job at whose destination an object stands that the job does not replace: at most one call.

    Readers that look at the destination find that object, and none of the job's files. A commit that replaces all of
    the destination takes it away with the other old files. Objects above the destination are not looked for.

    Raises:
        StoreNotADirectoryError: An object stands there.
    """
    if not context.config.replaces_destination and await object_at_destination(context) is not None:
        raise _error(context, operation, context.layout.destination, None)


async def enclose_file(context: StageContext) -> bool:
    """Puts a directory in the place of a file at the destination, with the file in it, for a job that replaces both.

    Readers of the directory go on reading the old data, which the commit replaces like any other. Two calls; with
    `durability="fsync"` two more.

    Returns:
        Whether the destination is a directory now; False where nothing was changed.
    """
    store, destination = context.store, context.layout.destination
    if not (context.config.replaces_destination and store.capabilities.local_paths):
        return False
    try:
        standing = await status_or_none(store, destination)
        if standing is None or standing.is_directory or standing.is_link or standing.is_special:
            return False
        # A name that readers of the directory do not pass over.
        name = f"old{destination.name}" if is_hidden(destination.name) else destination.name
        await LOCAL_PATHS.required(store, "enclose_file").enclose_file(destination, name)
    except (StoreNotFoundError, StoreNotADirectoryError, UnsupportedError):
        return False
    await sync_directories(context, [destination, destination.parent])
    return True


async def file_in_the_way(context: StageContext, operation: str, cause: StoreError) -> StoreNotADirectoryError:
    """The error of a destination whose directory cannot be made; looks for the file, from the destination upwards."""
    place = context.layout.destination
    for _depth in range(place.path.count("/")):
        try:
            standing = await status_or_none(context.store, place)
        except StoreError:
            break
        if standing is not None and not standing.is_directory:
            return _error(context, operation, place, cause)
        place = place.parent
    return _error(context, operation, StorePath.of(cause.path or context.layout.job_directory), cause)


def _error(
    context: StageContext, operation: str, place: StorePath, cause: StoreError | None
) -> StoreNotADirectoryError:
    program, name = ("mv -n", place.path) if place.scheme == "file" else ("hadoop fs -mv", str(place))
    why = also = ""
    if cause is None:
        also = "overwrite all of the destination, which replaces it, "
    elif context.config.replaces_destination:
        why = "; this store cannot replace a file by a directory without a moment in which a reader finds neither"
    return StoreNotADirectoryError(
        f"a file stands at {name}, where a directory must be{why}",
        operation=operation,
        path=context.layout.destination,
        next_step=f"choose another destination, {also}or move the file away: "
        f"{program} {shlex.quote(name)} {shlex.quote(f'{name}.old')}",
        causes=[cause] if cause is not None else [],
    )
