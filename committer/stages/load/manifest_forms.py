"""The record format of most committers: task manifests as of Hadoop's manifest committer, and lists of uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

from committer.errors import InvalidPathError, RecordError, StoreNotFoundError
from committer.file_names import check_destination_name
from committer.flow.workers import run_workers
from committer.layout import SUCCESS
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import BY_PATH, limit_of
from committer.records.manifest import (
    DirectoryEntry,
    FileEntry,
    TaskManifest,
    decode_task_manifest,
    encode_task_manifest,
)
from committer.records.pending_uploads import ListedUpload, UploadList, decode_upload_list
from committer.stages.base import RecordForms, RecordRef, StageContext, TaskOutput
from committer.stages.load.winning_records import list_manifests
from committer.stores.helpers import children_of, end_upload

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


MANIFEST_COMMITTER: Final = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter"


class ManifestForms(RecordForms):
    """A task manifest for each task; for files in uploads, a list of uploads in the job's directory."""

    def __init__(self, hadoop_name: str = "", *, like_s3a: bool = False) -> None:
        self.hadoop_name = hadoop_name
        self.like_s3a = like_s3a

    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """Encodes a task manifest."""
        layout, identity = context.layout, output.identity
        files = [
            FileEntry(
                s=(output.directory / file.name).uri,
                d=layout.target(file.destination).uri,
                z=file.size,
                e=file.identity,
                u=file.upload,
                v=file.version,
            )
            for file in output.files
        ]
        return encode_task_manifest(
            TaskManifest(
                extraData={BY_PATH: "true"} if output.by_path else {},
                jobId=layout.unique_id,
                jobAttemptNumber=layout.job_attempt,
                taskID=layout.task_id(identity.task),
                taskAttemptID=layout.task_attempt_id(identity.task, identity.attempt),
                taskAttemptDir=output.directory.uri,
                files=files,
                directories=directories,
                iostatistics=context.statistics.snapshot(),
            )
        )

    def decode_task(self, context: StageContext, path: StorePath, data: bytes) -> TaskManifest:
        """Decodes a task manifest."""
        return decode_task_manifest(data, source=str(path))

    async def list_records(self, context: StageContext, *, taking: bool) -> list[RecordRef]:
        """Lists the records: one call per page."""
        return await list_manifests(context, taking=taking)

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Yields the uploads of a run's list: one listing, and a read per part; nothing for a task manifest."""
        if place.parent.name == context.layout.uploads.name:
            async for upload in listed_uploads(context, place):
                yield upload
