"""Uploads that Hadoop's records in a job's magic directory name: those of its own tasks are in no list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet

from committer.committers.magic.layout import attempts_directory
from committer.committers.magic.pending_sets import target_of
from committer.errors import InvalidPathError, RecordError, StoreNotADirectoryError, StoreNotFoundError
from committer.file_names import check_absolute_name, check_file_name
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.pending_set import (
    PENDING_LIMIT,
    PENDING_SET_SUFFIX,
    PENDING_SUFFIX,
    PendingCommit,
    decode_pending,
    decode_pending_set,
)
from committer.stages.base import StageContext
from committer.stages.names import is_absolute
from committer.stores.helpers import children_of, walk

_log = job_logger("committer.stages")


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
        async for upload in _named(context, place, limit=context.config.record_size_limit):
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
        async for upload in _named(context, record, limit=PENDING_LIMIT):
            yield upload


async def _named(context: StageContext, record: StorePath, *, limit: int) -> AsyncIterator[tuple[StorePath, str]]:
    try:
        data = await context.store.read(record, limit=limit)
        if PENDING_SET_SUFFIX in record.name:
            named = decode_pending_set(data, source=str(record)).commits
        else:
            named = (decode_pending(data, source=str(record)),)
    except StoreNotFoundError:
        return
    except RecordError as error:
        _log.warning("uploads may stay pending: %s", error)
        return
    for upload in _contained(context, record, named):
        yield upload


def _contained(
    context: StageContext, record: StorePath, named: tuple[PendingCommit, ...]
) -> Iterator[tuple[StorePath, str]]:
    layout = context.layout
    for one in named:
        try:
            path = target_of(layout, one)
            name = layout.name_of(path)
            if is_absolute(name):
                check_absolute_name(name, layout.roots)
            else:
                check_file_name(name)
        except InvalidPathError as error:
            _log.warning("%s names an upload to %r, which stays as it is: %s", record, one.destinationKey, error)
            continue
        yield path, one.uploadId
