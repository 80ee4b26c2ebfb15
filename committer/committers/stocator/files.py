"""Files of a task attempt that are written where readers see them, under names that hold the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from committer.committers.stocator.names import attempt_name
from committer.committers.stocator.objects import delete_objects
from committer.errors import StoreError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.layout import TEMPORARY
from committer.paths import StorePath
from committer.records.pending_uploads import ListedUpload
from committer.stages.attempt_files import FilesInStore
from committer.stages.base import StageContext
from committer.stages.task_output import AttemptIdentity, WrittenFile
from committer.stages.uploaded_files import ListBeingWritten
from committer.stores.base import FileStatus, FileWriter

OBJECT: Final = "object"
"""What a list says in place of an upload's id: that it names an object."""


class DirectFiles(FilesInStore):
    """Files that are objects at the destination as soon as they are closed.

    Opening one costs 2 calls: its name is listed in the job's directory, then the job is looked at. Files that are
    opened at the same time share both. So either an object is found listed once a job is decided, or the task attempt
    finds the job decided, or gone, and writes nothing.

    Args:
        context: The job, with the attempt's own statistics.
        identity: Which run of which attempt.
    """

    def __init__(self, context: StageContext, identity: AttemptIdentity) -> None:
        super().__init__(context)
        layout = context.layout
        self._run = layout.task_attempt_directory(identity.task, identity.attempt, identity.nonce).name
        attempt_id = layout.task_attempt_id(identity.task, identity.attempt)
        self._list = ListBeingWritten(context, layout.uploads / self._run, attempt_id)
        self._begun: dict[str, StorePath] = {}
        self._open: dict[str, FileWriter] = {}
        self._closed: set[str] = set()

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Lists its name, opens it."""
        context, name = self._context, attempt_name(destination, self._run)
        path = context.layout.target(name)
        await self._list.add(ListedUpload(name, OBJECT))
        self._begun[staged] = path
        writer = self._open[staged] = await context.store.open_writer(path)
        return writer

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Its name, which holds the attempt, its size and identity."""
        self._closed.add(staged)
        self._open.pop(staged, None)
        if absolute:
            return WrittenFile(staged, status.size, status.identity, absolute=attempt_name(absolute, self._run))
        return WrittenFile(attempt_name(staged, self._run), status.size, status.identity)

    def kept_at(self, staged: str) -> StorePath | None:
        """At its destination; of a file outside it the destination itself is all there is to look at."""
        if staged.startswith(f"{TEMPORARY}/"):
            return None
        return self._context.layout.target(attempt_name(staged, self._run))

    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Deletes files that were given up: one whose closing had no answer may stand there all the same."""
        given_up = [path for staged, path in self._begun.items() if staged not in self._closed]
        await delete_objects(self._context, given_up)
        return files

    async def stop(self) -> None:
        """Gives up files that were not closed."""
        for writer in tuple(self._open.values()):
            with suppress(StoreError):
                await run_shielded(writer.abort, bound_s=UNDO_BOUND_S)

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Every object that this run began, those of files that were given up too."""
        return [(path, OBJECT) for path in self._begun.values()]
