"""The record format of most committers: task manifests as of Hadoop's manifest committer, and lists of uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from committer.paths import StorePath
from committer.records.job_state import BY_PATH
from committer.records.manifest import (
    DirectoryEntry,
    FileEntry,
    TaskManifest,
    decode_task_manifest,
    encode_task_manifest,
)
from committer.stages.base import RecordForms, RecordRef, StageContext
from committer.stages.load.winning_records import list_manifests
from committer.stages.task_output import TaskOutput
from committer.stages.upload_lists import listed_uploads

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
        return await list_manifests(context)

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Yields the uploads of a run's list: one listing, and a read per part; nothing for a task manifest."""
        if place.parent.name == context.layout.uploads.name:
            async for upload in listed_uploads(context, place):
                yield upload
