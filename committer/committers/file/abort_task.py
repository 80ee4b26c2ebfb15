"""AbortFileTask: removes what one task attempt wrote, and its task's directory where that is the attempt's."""

from __future__ import annotations

from contextlib import suppress
from typing import cast

from committer.committers.file.layout import CommittedLayout
from committer.committers.file.walking import record_of_directory
from committer.errors import (
    JobNotFoundError,
    JobStateError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TaskError,
)
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest
from committer.stages.abort_task import AbortRequest, AbortTask


class AbortFileTask(AbortTask):
    """Removes the directories of the attempt's runs. What it committed goes too, where its record tells that it did.

    What an attempt of Hadoop's committed stays, as with Hadoop's driver: nothing says whose it is. So does a commit of
    no file, of which any attempt's looks the same.

    Cost: by ids three listings; for each record one read, and one listing for each directory of the task.
    Hadoop: ``FileOutputCommitter.abortTask``.
    """

    async def _remove_records(self, value: AbortRequest, attempt_id: str) -> None:
        layout, store = cast("CommittedLayout", self.context.layout), self.context.store
        await self._check_not_being_committed(value)
        if value.nonce is None:
            records = await self._runs(layout.attempts, attempt_id)
        else:
            records = [layout.attempt_record(value.task, value.attempt, value.nonce)]
        for record in records:
            try:
                told = await store.read(record, limit=self.context.config.record_size_limit)
            except StoreNotFoundError:
                continue
            if decode_task_manifest(told, source=str(record)).files:
                await self._take_back(value, layout, attempt_id, told)
            await store.delete_file(record)

    async def _take_back(self, value: AbortRequest, layout: CommittedLayout, attempt_id: str, told: bytes) -> None:
        """Takes back a commit, if it is the one that a record tells of.

        It is first moved to where a job commit still finds it, and looked at there. A job commit that begins then takes
        it, or it goes by the second rename: never is it deleted where a job commit could take half of it.
        """
        task, token = layout.task_id(value.task), self.context.runtime.nonce()
        committed, aside = layout.manifests / task, layout.replaced(task, token)
        if not await self._is(committed, task, told):
            return
        for earlier in await self._runs(layout.runs, task):
            # What it replaced does not come back.
            await self._discard(layout, earlier, f"{attempt_id}-{self.context.runtime.nonce()}")
        try:
            await self.context.store.rename_directory(committed, aside)
        except StoreNotFoundError:
            return
        try:
            await self._check_not_being_committed(value)
        except (JobStateError, JobNotFoundError):
            await self._put_there(aside, committed)
            raise
        if not await self._is(aside, task, told):
            # Another attempt of the task committed since it was looked at.
            await self._put_there(aside, committed)
            return
        await self._discard(layout, aside, f"{attempt_id}-{token}")

    async def _is(self, directory: StorePath, task: str, told: bytes) -> bool:
        try:
            return await record_of_directory(self.context, directory, task_name=task) == told
        except (StoreNotFoundError, StoreNotADirectoryError, TaskError):
            return False

    async def _put_there(self, aside: StorePath, committed: StorePath) -> None:
        # Where a later commit of the task stands there, or a job commit took it, that counts.
        with suppress(StoreExistsError, StoreNotFoundError):
            await self.context.store.rename_directory(aside, committed)

    async def _discard(self, layout: CommittedLayout, directory: StorePath, name: str) -> None:
        """Deletes a directory that a job commit may be about to take: under a name that it passes over."""
        with suppress(StoreNotFoundError):
            await self.context.store.rename_directory(directory, layout.runs / name)
            await self.context.store.delete_directory(layout.runs / name, recursive=True)
