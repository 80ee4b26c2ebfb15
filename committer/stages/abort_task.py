"""AbortTask: removes what one task attempt wrote, by its ids alone."""

from __future__ import annotations

from dataclasses import dataclass

from committer.errors import RecordError, StoreExistsError, StoreNotADirectoryError, StoreNotFoundError
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest
from committer.stages.base import Stage


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """Which runs of a task attempt are removed.

    Attributes:
        task: The task's number.
        attempt: The attempt's number.
        nonce: One run only; every run of the attempt when None.
    """

    task: int
    attempt: int
    nonce: str | None = None


class AbortTask(Stage[AbortRequest, None]):
    """Removes a task attempt: its record first, then its directories.

    Works in the driver, for attempts of any host (``OutputCommitter.abortTask`` demands it). The record goes first:
    a record whose files are gone would fail the job commit, as it does in Hadoop, which leaves it behind. A record
    under the task's name is removed only when it is this attempt's: another attempt's stays.

    Preconditions: the job is not decided.
    Postconditions: nothing of the attempt is left; no other attempt is touched.
    Cost: by ids 2 listings, one read of the task's record, one delete a run; by nonce without listings.
    Hadoop: ``AbortTaskStage``.
    """

    name = "task_stage_abort_task"
    statistic = "task_stage_abort_task"

    async def execute(self, value: AbortRequest) -> None:
        """Deletes records, then directories."""
        layout, store = self.context.layout, self.context.store
        attempt_id = layout.task_attempt_id(value.task, value.attempt)
        if self.context.spec.delivery == "listing":
            await self._take_back_manifest(value)
        if value.nonce is None:
            records = await self._runs(layout.attempts, attempt_id)
            directories = await self._runs(layout.tasks, attempt_id)
        else:
            records = [layout.attempt_record(value.task, value.attempt, value.nonce)]
            directories = [layout.task_attempt_directory(value.task, value.attempt, value.nonce)]
        for record in records:
            await store.delete_file(record)

        async def delete(directory: StorePath) -> None:
            await store.delete_directory(directory, recursive=True)

        await run_workers(directories, delete, workers=self.context.config.io_concurrency, operation=self.name)

    async def _runs(self, directory: StorePath, attempt_id: str) -> list[StorePath]:
        """Children of `directory` that belong to a run of the attempt: `<id>` (Hadoop's) or `<id>-<nonce>…`."""
        try:
            children = [child.path async for child in self.context.store.list(directory)]
        except (StoreNotFoundError, StoreNotADirectoryError):
            return []
        return [path for path in children if path.name == attempt_id or path.name.startswith(f"{attempt_id}-")]

    async def _take_back_manifest(self, value: AbortRequest) -> None:
        # Looking and deleting are two steps, and another attempt may commit in between. So the record is first moved
        # to a name of this attempt, then looked at, and moved back without replacing if it is another's.
        layout, store = self.context.layout, self.context.store
        manifest = layout.manifest(value.task)
        if not await self._is_of(manifest, value):
            return
        attempt_id = layout.task_attempt_id(value.task, value.attempt)
        taken = layout.manifests / f"{attempt_id}-aborted{MANIFEST_SUFFIX}.tmp"
        try:
            await store.rename_file(manifest, taken, replace=True)
        except StoreNotFoundError:
            return
        if not await self._is_of(taken, value):
            try:
                await store.rename_file(taken, manifest)
                return
            except StoreExistsError:
                pass
        await store.delete_file(taken)

    async def _is_of(self, path: StorePath, value: AbortRequest) -> bool:
        layout = self.context.layout
        try:
            data = await self.context.store.read(path, limit=self.context.config.record_size_limit)
            manifest = decode_task_manifest(data, source=str(path))
        except (StoreNotFoundError, RecordError):
            return False
        if value.nonce is not None:
            return manifest.taskAttemptDir == layout.task_attempt_directory(value.task, value.attempt, value.nonce).uri
        return manifest.taskAttemptID == layout.task_attempt_id(value.task, value.attempt)
