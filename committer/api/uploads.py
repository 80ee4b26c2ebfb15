"""Lists and aborts uploads that were never completed.

A job that died may leave some. They are invisible, and cost money until they are aborted by a call or by a
lifecycle rule of the bucket. The store tells each one's path, start and initiator, but not its job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from committer.advice import call
from committer.api.cleanup import age_in_seconds
from committer.committers.advising import advised
from committer.committers.opened_store import open_store
from committer.errors import ConfigurationError, StoreError, StoreUploadNotFoundError, UnsupportedError
from committer.flow.runtime import current_runtime
from committer.flow.workers import run_workers
from committer.options.config import CommitterConfig, ConfigLike, config_of
from committer.options.values import check_flag
from committer.paths import Destination, StorePath
from committer.readable import Shown
from committer.stores.helpers import end_upload
from committer.stores.paced import PacedStore


class UploadInfo(Shown, frozen=True, kw_only=True):
    """An upload that was neither completed nor aborted.

    Attributes:
        path: The path that its file would have.
        upload_id: The store's id of the upload.
        initiated: When it began, by the store's clock.
        initiator: The user that began it; None if the store does not tell.
        parts: Number of its parts; None when not asked for.
        size: Their length in bytes; None when not asked for.
    """

    path: StorePath
    upload_id: str
    initiated: datetime
    initiator: str | None = None
    parts: int | None = None
    size: int | None = None


class UploadsReport(Shown, frozen=True, kw_only=True):
    """Result of aborting uploads.

    Attributes:
        aborted: Uploads that this call aborted.
        gone: Uploads that were completed or aborted before.
        failed: Ids of uploads that still exist, with the reason.
    """

    aborted: list[UploadInfo]
    gone: list[UploadInfo]
    failed: dict[str, str]


@advised
async def list_uploads(
    dest: Destination,
    *,
    older_than: timedelta | float | None = None,
    sizes: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> list[UploadInfo]:
    """Lists the pending uploads anywhere below a directory, by path and age: one call for 1,000.

    ``dataset10`` is not below ``dataset1``. Uploads of running jobs are included: nothing tells them apart.

    Args:
        older_than: Only those begun longer ago than this (seconds, or a timedelta), by this machine's clock.
        sizes: Also ask for the parts of each: a call for each upload and 1,000 of its parts.
        config: Concurrency and rate.

    Raises:
        ConfigurationError: `older_than` is no age.
        UnsupportedError: The store has no uploads.
        DestinationNotFoundError: There is no such bucket.
    """
    config = config_of(config) or CommitterConfig()
    directory = StorePath.of(dest)
    async with _open(directory, storage_options, config) as store:
        found = await _find(store, directory, older_than)
        if sizes:
            measured: dict[str, UploadInfo] = {}

            async def measure(upload: UploadInfo) -> None:
                info = await _measured(store, upload)
                if info is not None:
                    measured[upload.upload_id] = info

            await run_workers(found, measure, workers=config.io_concurrency, operation="list_uploads")
            found = [measured[upload.upload_id] for upload in found if upload.upload_id in measured]
        return found


@advised
async def abort_uploads(
    dest: Destination,
    *,
    older_than: timedelta | float | None = None,
    force: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> UploadsReport:
    """Aborts the pending uploads below a directory; their data is lost. Two calls for each.

    A running job would lose its output, so an age is needed that no running job has. Each upload is aborted
    until the store reports that it is gone: parts that were under way can outlive the first call.

    Args:
        older_than: Only those begun longer ago than this (seconds, or a timedelta), by this machine's clock.
        force: Whatever their age: the caller vouches that no job runs there.
        config: Concurrency and rate.

    Raises:
        ConfigurationError: Neither `older_than` nor `force` was given (it is a ValueError), or that is no age.
        UnsupportedError: The store has no uploads.
        DestinationNotFoundError: There is no such bucket.
    """
    check_flag(force, "force", "abort_uploads")
    if older_than is None and not force:
        raise ConfigurationError(
            "abort_uploads needs older_than, or force: the uploads of running jobs are among them",
            operation="abort_uploads",
            next_step="give an age that no running job has: older_than=timedelta(days=7)",
        )
    config = config_of(config) or CommitterConfig()
    directory = StorePath.of(dest)
    async with _open(directory, storage_options, config) as store:
        return await _abort_all(store, await _find(store, directory, older_than), config)


async def abort_these(
    dest: Destination,
    chosen: Sequence[UploadInfo],
    *,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> UploadsReport:
    """Aborts exactly the given uploads, which `list_uploads` found and a user agreed to abort."""
    config = config_of(config) or CommitterConfig()
    async with _open(StorePath.of(dest), storage_options, config) as store:
        return await _abort_all(store, chosen, config)


async def _abort_all(store: PacedStore, chosen: Sequence[UploadInfo], config: CommitterConfig) -> UploadsReport:
    report = UploadsReport(aborted=[], gone=[], failed={})

    async def abort(upload: UploadInfo) -> None:
        try:
            there = await end_upload(store, upload.path, upload.upload_id)
            (report.aborted if there else report.gone).append(upload)
        except StoreError as error:
            report.failed[upload.upload_id] = error.message

    await run_workers(chosen, abort, workers=config.io_concurrency, operation="abort_uploads")
    return report


@asynccontextmanager
async def _open(
    directory: StorePath, storage_options: Mapping[str, object] | None, config: CommitterConfig
) -> AsyncIterator[PacedStore]:
    async with open_store(directory, storage_options, config) as store:
        if not store.capabilities.multipart:
            raise _no_uploads(store, directory)
        yield store


def _no_uploads(store: PacedStore, directory: StorePath) -> UnsupportedError:
    if store.capabilities.block_lists:
        what = "has blocks in place of uploads: they have no id and no age, and no call drops them"
        step = (
            "the service drops what waits under a name with the next file there, or a week after the last block was "
            f"sent; {call('list_jobs', str(directory))} shows what else jobs left"
        )
    else:
        what = "has no uploads: a file that was not finished is a file there"
        step = f"{call('list_jobs', str(directory))} shows what jobs left"
    return UnsupportedError(
        f"the store {directory.scheme}: {what}", operation="list_uploads", path=directory, next_step=step
    )


async def _find(store: PacedStore, directory: StorePath, older_than: timedelta | float | None) -> list[UploadInfo]:
    age_s = age_in_seconds(older_than, operation="list_uploads")
    latest = None if age_s is None else current_runtime().now().timestamp() - age_s
    found = [
        UploadInfo(
            path=upload.path,
            upload_id=upload.upload_id,
            initiated=datetime.fromtimestamp(upload.initiated, tz=UTC),
            initiator=upload.initiator,
        )
        async for upload in store.list_uploads(directory)
        if latest is None or upload.initiated <= latest
    ]
    return sorted(found, key=lambda upload: (upload.path, upload.initiated, upload.upload_id))


async def _measured(store: PacedStore, upload: UploadInfo) -> UploadInfo | None:
    parts = size = 0
    try:
        async for part in store.list_parts(upload.path, upload.upload_id):
            parts += 1
            size += part.size or 0
    except StoreUploadNotFoundError:
        return None
    return msgspec.structs.replace(upload, parts=parts, size=size)
