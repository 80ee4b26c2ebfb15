"""Files of a task attempt whose bytes go to the store as they are written: in uploads, or as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.attempt_files import FilesInStore
from committer.stages.base import StageContext
from committer.stages.part_writer import PartWriter, Sending
from committer.stages.task_output import WrittenFile
from committer.stores.base import FileStatus

W = TypeVar("W", bound=PartWriter[Any])


class SentFiles(FilesInStore, Generic[W]):
    """Files that wait in the store, under the names that they will have, until the job is committed.

    A subclass begins them, and says what it began.

    Args:
        context: The job, with the attempt's own statistics.
        directory: The directory of the run.
    """

    def __init__(self, context: StageContext, directory: StorePath) -> None:
        super().__init__(context)
        self._entries: dict[str, UploadEntry] = {}
        self._open: dict[str, W] = {}
        # Parts as long as the job wants them, within what the store takes.
        can, config = context.store.capabilities, context.config
        part_bytes = max(config.multipart_size, can.min_part_bytes)
        self._sending = Sending(
            context.layout.stamp(directory.name),
            min(part_bytes, can.max_part_bytes or part_bytes),
            config.multipart_in_flight,
        )

    def _sent(self, staged: str, entry: UploadEntry) -> None:
        """All of a file is in the store."""
        self._entries[staged] = entry
        del self._open[staged]

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Its name, size, and what waits for it."""
        return WrittenFile(staged, status.size, None, absolute=absolute, upload=self._entries[staged])

    def kept_at(self, staged: str) -> StorePath | None:
        """At the path that the file will have."""
        return None

    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Nothing: they are in the store."""
        return files

    async def stop(self) -> None:
        """Stops sending files that were not closed."""
        for writer in tuple(self._open.values()):
            await writer.stop()
