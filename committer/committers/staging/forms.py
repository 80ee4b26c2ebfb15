"""The records of a job of the staging committers by listing whose caller named a place for them: Hadoop's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet

from committer.committers.pending_sets import manifest_of, set_of
from committer.committers.set_uploads import uploads_of_set
from committer.paths import StorePath
from committer.records.manifest import DirectoryEntry, TaskManifest, encode_task_manifest
from committer.stages.base import StageContext
from committer.stages.manifest_forms import ManifestForms
from committer.stages.task_output import TaskOutput
from committer.stores.helpers import children_of


class PlacedForms(ManifestForms):
    """Pending sets, where Hadoop's tasks and drivers look for them. A decision rests on copies at the destination.

    Where the place is not open, as for a caller who did not name it, nothing there is looked at.
    """

    names_directories = False

    def __init__(self, name: str) -> None:
        super().__init__(name, like_s3a=True)

    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """A pending set, which names no directories."""
        return set_of(context, output)

    def decode_task(self, context: StageContext, path: StorePath, data: bytes) -> TaskManifest:
        """The manifest that a pending set amounts to."""
        return manifest_of(context, data, path=path)

    def as_manifest(self, context: StageContext, path: StorePath, data: bytes) -> bytes:
        """The same, encoded; the copy of one that a decision rests on is one already."""
        is_set = path.parent == context.layout.manifests
        return encode_task_manifest(manifest_of(context, data, path=path)) if is_set else data

    async def upload_lists(self, context: StageContext) -> list[StorePath]:
        """Two listings: the lists of runs, and the pending sets, those that an abort took and did not delete too."""
        lists, place = await super().upload_lists(context), context.layout.manifests
        if context.records is None:
            return lists
        return [*lists, *(one.path for one in await children_of(context.records, place) if not one.is_directory)]

    def is_list_of(self, place: StorePath, winners: AbstractSet[str]) -> bool:
        """By the name of a run, or of a task."""
        return super().is_list_of(place, winners) or place.name in winners

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Those of a run's list; of a pending set, one read."""
        is_set = place.parent == context.layout.manifests
        async for upload in uploads_of_set(context, place) if is_set else super().uploads_in(context, place):
            yield upload
