"""The uploads that Hadoop's records name, for a process that ends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from committer.committers.pending_sets import target_of
from committer.errors import InvalidPathError, RecordError, StoreNotFoundError
from committer.file_names import check_absolute_name, check_file_name
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.limits import LIMITS
from committer.records.pending_set import PendingCommit, decode_pending, decode_pending_set
from committer.stages.base import StageContext
from committer.stages.names import is_absolute

_log = job_logger("committer.stages")


async def uploads_of_set(context: StageContext, record: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """The uploads that a pending set names, by path and id: one read.

    What is damaged, or lies neither below the destination nor below a root (G10), is passed over with a warning: such
    an upload stays, and ``committer uploads list`` shows it.
    """

    def decode(data: bytes) -> Sequence[PendingCommit]:
        return decode_pending_set(data, source=str(record)).commits

    async for upload in _named(context, record, decode, limit=context.config.record_size_limit):
        yield upload


async def uploads_of_pending(context: StageContext, record: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """The upload that a record of a single file names; as `uploads_of_set`."""

    def decode(data: bytes) -> Sequence[PendingCommit]:
        return (decode_pending(data, source=str(record)),)

    async for upload in _named(context, record, decode, limit=LIMITS["pending"]):
        yield upload


async def _named(
    context: StageContext, record: StorePath, decode: Callable[[bytes], Sequence[PendingCommit]], *, limit: int
) -> AsyncIterator[tuple[StorePath, str]]:
    try:
        named = decode(await context.holding(record).read(record, limit=limit))
    except StoreNotFoundError:
        return
    except RecordError as error:
        _log.warning("uploads may stay pending: %s", error)
        return
    for upload in _contained(context, record, named):
        yield upload


def _contained(
    context: StageContext, record: StorePath, named: Sequence[PendingCommit]
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
