"""Reads the lists, in a job's directory, of the uploads that its task attempts began, and aborts uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator

from committer.errors import InvalidPathError, RecordError, StoreNotFoundError
from committer.file_names import check_destination_name
from committer.flow.workers import run_workers
from committer.layout import SUCCESS
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import limit_of
from committer.records.pending_uploads import ListedUpload, UploadList, decode_upload_list
from committer.stages.base import StageContext
from committer.stores.helpers import children_of
from committer.stores.upload_ends import end_upload

_log = job_logger("committer.stages")


async def end_uploads(context: StageContext, uploads: Iterable[tuple[StorePath, str]]) -> None:
    """Aborts uploads, given by path and id, concurrently: 2 calls each."""

    async def end(upload: tuple[StorePath, str]) -> None:
        await end_upload(context.store, *upload)

    await run_workers(uploads, end, workers=context.config.io_concurrency, operation="abort_uploads")


async def listed_uploads(context: StageContext, run: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
    """Yields the uploads, by path and id, that the list of one run names: one listing, and a read for each part."""
    # Damaged parts and uploads outside the destination and the roots (G10) are skipped with a warning and
    # stay pending.
    async for part in parts_of_list(context, run):
        for upload in contained(context, run, part):
            yield context.layout.target(upload.name), upload.id


async def parts_of_list(context: StageContext, run: StorePath) -> AsyncIterator[UploadList]:
    """Yields the readable parts of the list of one run: one listing, and a read for each part."""
    store = context.store
    for part in sorted(child.path for child in await children_of(store, run) if not child.is_directory):
        try:
            data = await store.read(part, limit=limit_of(UploadList))
        except StoreNotFoundError:
            continue
        try:
            record = decode_upload_list(data, source=str(part))
        except RecordError as error:
            _log.warning("uploads may stay pending: %s", error)
            continue
        yield record


def contained(context: StageContext, run: StorePath, part: UploadList) -> Iterator[ListedUpload]:
    """Yields the uploads of a part that lie below the destination or a root; warns of the others."""
    for upload in part.uploads:
        try:
            # A rollback restores the old `_SUCCESS` by an upload.
            if upload.name != SUCCESS:
                check_destination_name(upload.name, context.layout.roots)
        except InvalidPathError as error:
            _log.warning("a list in %s names %r, which stays as it is: %s", run, upload.name, error)
            continue
        yield upload
