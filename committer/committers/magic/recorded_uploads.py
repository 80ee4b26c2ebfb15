"""Uploads that Hadoop's records in a job's magic directory name: those of its own tasks are in no list."""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet

from committer.committers.magic.layout import attempts_directory
from committer.committers.set_uploads import uploads_of_pending, uploads_of_set
from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.paths import StorePath
from committer.records.pending_set import PENDING_SET_SUFFIX, PENDING_SUFFIX
from committer.stages.base import StageContext
from committer.stores.helpers import children_of, walk


async def places_of_records(context: StageContext) -> list[StorePath]:
    """What in a job's magic directory names uploads: pending sets, directories of attempts that did not commit, and the
    lists of this engine's.

    Of every job attempt: a later one of Hadoop's commits nothing of an earlier one, and all that tells of either goes
    with the one directory. One listing, and three a job attempt.
    """
    found: list[StorePath] = []
    for attempt in await children_of(context.store, attempts_directory(context.layout)):
        if not (attempt.is_directory and attempt.path.name.isdecimal()):
            continue
        # A set that an abort took, and did not delete any more, has another suffix behind its own.
        found += [
            child.path
            for child in await children_of(context.store, attempt.path)
            if not child.is_directory and PENDING_SET_SUFFIX in child.path.name
        ]
        for name in ("tasks", context.layout.uploads.name):
            found += [
                child.path for child in await children_of(context.store, attempt.path / name) if child.is_directory
            ]
    return found


def is_place_of(place: StorePath, winners: AbstractSet[str]) -> bool:
    """Whether a place that `places_of_records` found is of one of these tasks, or task attempts."""
    return place.name.removesuffix(PENDING_SET_SUFFIX) in winners


async def recorded_uploads(context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """The uploads that a pending set names, or the records below a task attempt's directory; by path and id.

    One read for a set; else a listing for each directory, and a read for each record. What is damaged, or lies neither
    below the destination nor below a root (G10), is passed over with a warning: such an upload stays, and ``committer
    uploads list`` shows it.
    """
    if PENDING_SET_SUFFIX in place.name:
        async for upload in uploads_of_set(context, place):
            yield upload
        return
    try:
        records = [
            child.path
            async for child in walk(context.store, place)
            if not child.is_directory and child.path.name.endswith(PENDING_SUFFIX)
        ]
    except (StoreNotFoundError, StoreNotADirectoryError):
        return
    for record in records:
        async for upload in uploads_of_pending(context, record):
            yield upload
