"""The records of a job by listing of the magic committer: Hadoop's pending sets, and what they say of uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet

from committer.committers.magic.layout import attempts_directory, task_attempt_directory
from committer.committers.magic.recorded_uploads import is_place_of, places_of_records, recorded_uploads
from committer.committers.pending_sets import manifest_of, set_of
from committer.paths import StorePath
from committer.records.manifest import DirectoryEntry, TaskManifest, encode_task_manifest
from committer.stages.base import StageContext
from committer.stages.manifest_forms import ManifestForms
from committer.stages.task_output import TaskOutput
from committer.stores.base import FileStatus


class MessageForms(ManifestForms):
    """This engine's task manifests, of a job by message."""

    def __init__(self) -> None:
        super().__init__("magic", like_s3a=True)

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """What S3A notes of files that tasks write by its magic paths, as those of Spark's own writers do; no call."""
        return [FileStatus(attempts_directory(context.layout).parent, True, 0)]


class PendingSetForms(ManifestForms):
    """Pending sets in the job's magic directory, where Hadoop's tasks and drivers look for them."""

    names_directories = False

    def __init__(self) -> None:
        super().__init__("magic", like_s3a=True)

    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """A pending set, which names no directories."""
        return set_of(context, output)

    def decode_task(self, context: StageContext, path: StorePath, data: bytes) -> TaskManifest:
        """The manifest that a pending set amounts to."""
        return manifest_of(context, data, path=path)

    def as_manifest(self, context: StageContext, path: StorePath, data: bytes) -> bytes:
        """The same, encoded; the copy of one that a decision rests on is one already."""
        is_set = context.layout.is_record(path.name)
        return encode_task_manifest(manifest_of(context, data, path=path)) if is_set else data

    async def upload_lists(self, context: StageContext) -> list[StorePath]:
        """Two listings, and three a job attempt."""
        return await places_of_records(context)

    def is_list_of(self, place: StorePath, winners: AbstractSet[str]) -> bool:
        """By the name of a task, a task attempt, or a run of one."""
        return super().is_list_of(place, winners) or is_place_of(place, winners)

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Those of a run's list; of a pending set, one read; of an attempt, a listing a directory, a read a record."""
        of_list = place.parent.name == context.layout.uploads.name
        async for upload in super().uploads_in(context, place) if of_list else recorded_uploads(context, place):
            yield upload

    def upload_lists_of(self, context: StageContext, attempt_id: str) -> list[StorePath]:
        """What its runs told of each file."""
        return [task_attempt_directory(context.layout, attempt_id)]
