"""Task commit and task abort of FileOutputCommitter's algorithm 1."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from committer.committers.file.layout import CommittedLayout
from committer.committers.file.walking import manifest_of_directory, record_of_directory, tidy
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    TaskError,
)
from committer.events import names
from committer.flow.together import both
from committer.paths import StorePath
from committer.records.manifest import TaskManifest, decode_task_manifest, encode_task_manifest
from committer.records.task_commit import TaskCommit
from committer.stages.base import Stage, StageContext
from committer.stages.durability import sync_directories
from committer.stages.state.job_directory import look_at_job
from committer.stages.state.job_liveness import check_job_is_live, too_late
from committer.stages.task.abort_task import AbortRequest, AbortTask
from committer.stages.task.attempt_files import attempt_aborted
from committer.stages.task.commit_task import message_of, sync_output
from committer.stages.task_output import AttemptIdentity, TaskOutput
from committer.stores.helpers import exists

# A further round follows if another attempt of the task committed.
_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class _Ready:
    manifest: TaskManifest
    record: bytes


class CommitFileTask(Stage[TaskOutput, TaskCommit]):
    """Stage that renames a task attempt's directory to its task's name; of several attempts the last wins.

    The directory's content is what the task commits, for Hadoop's driver too: unfinished files are deleted
    first. A driver writes its intent before it takes directories; a task looks for one after its rename. So one
    of the two sees the other: a commit that returns is part of the job.

    Preconditions: every file is closed; the job exists, and no driver commits it.
    Postconditions: the directory has the task's name; the attempt's record tells whose it is; earlier commits
    are aside.
    Failure modes: the attempt did not commit; or, with `outcome="unknown"`, it may have.
    Cost: one listing a directory, four looks at the job, one write, one rename; two more renames after an
    earlier commit.
    Hadoop: ``FileOutputCommitter.commitTask``, which deletes the earlier directory first: a moment without either.
    """

    name = statistic = names.TASK_STAGE_COMMIT

    def __init__(self, context: StageContext, layout: CommittedLayout) -> None:
        super().__init__(context)
        self._layout = layout

    async def execute(self, value: TaskOutput) -> TaskCommit:
        """Deletes strays from the directory, renames it."""
        context, layout, identity = self.context, self._layout, value.identity
        task_name = layout.task_id(identity.task)
        try:
            await tidy(context, value, operation=self.name)
        except TaskError:
            # A removed job explains the missing files.
            await self._check_job(value)
            raise
        if context.durable:
            await sync_output(context, value)
        manifest = await manifest_of_directory(context, value.directory, task_name=task_name)
        ready = _Ready(manifest, encode_task_manifest(manifest))
        await self._check_job(value)
        if not context.spec.hadoop:
            # Written before the rename: an abort must be able to tell whose the task's directory is.
            place = layout.attempt_record(*identity)
            await context.store.put(place, ready.record, durable=context.durable)
        await self._rename(value, ready, layout.manifests / task_name)
        try:
            # Another job that ended may have removed the shared directories since setup, and this attempt created
            # them again: then their names are not on the disk yet either.
            await sync_directories(context, [layout.manifests, layout.runs, layout.temporary])
            await self._look_again(value)
        except CommitterError as error:
            # The directory has its task's name, and a job commit may take it.
            error.outcome = "unknown"
            raise
        size = sum(file.z for file in manifest.files)
        context.statistics.sample(names.COMMITTER_TASK_FILE_COUNT, len(manifest.files))
        context.statistics.sample(names.COMMITTER_TASK_FILE_SIZE, size)
        context.statistics.count(names.COMMITTER_TASKS_COMPLETED)
        return message_of_directory(context, identity, ready.record, manifest)

    async def _check_job(self, value: TaskOutput) -> None:
        if self.context.spec.hadoop:
            return
        found, taken = await both(check_job_is_live(self.context, operation=self.name), self._is_taken(value))
        if found.intents:
            raise self._too_late(value, "this task attempt came too late")
        if taken:
            raise self._replaces_nothing(value)

    async def _is_taken(self, value: TaskOutput) -> bool:
        """Returns whether refused drivers left an earlier commit of the task taken: each saw the other's intent."""
        task_name = self._layout.task_id(value.identity.task)
        return await exists(self.context.store, self._layout.tasks / task_name)

    async def _look_again(self, value: TaskOutput) -> None:
        """Refuses a commit that a driver may have missed when it listed committed tasks."""
        try:
            found = await look_at_job(self.context.store, self._layout)
        except JobNotFoundError:
            if self.context.spec.hadoop:
                return
            raise
        if found.intents or found.decided or found.ended:
            raise self._too_late(value, "this task attempt came too late, or just in time")
        # Only after that look: a driver that began earlier and has no intent any more has finished its return.
        if not self.context.spec.hadoop and await self._is_taken(value):
            raise self._replaces_nothing(value)

    def _too_late(self, value: TaskOutput, how: str) -> JobStateError:
        return too_late(self._layout, how, operation=self.name, path=value.directory)

    def _replaces_nothing(self, value: TaskOutput) -> JobStateError:
        task_name = self._layout.task_id(value.identity.task)
        return JobStateError(
            f"a refused commit of job {self._layout.job_id} took what {task_name} committed before: that counts, and "
            "this task attempt came too late",
            operation=self.name,
            path=value.directory,
            next_step="commit the job with the earlier attempt of the task, or abort it",
        )

    async def _rename(self, value: TaskOutput, ready: _Ready, target: StorePath) -> None:
        store, layout = self.context.store, self._layout
        for round_number in range(_ROUNDS):
            try:
                await store.rename_directory(value.directory, target)
                return
            except StoreExistsError:
                await self._move_aside(target, layout.replaced(target.name, f"{value.identity.nonce}{round_number:x}"))
            except StoreOutcomeUnknownError as error:
                if await exists(store, value.directory):
                    continue
                if await stands(self.context, target, ready.record):
                    return
                raise self._unknown(value, error) from error
            except StoreNotFoundError as error:
                await self._check_job(value)
                raise attempt_aborted(self.name, value.directory) from error
        raise TaskError(
            f"other attempts of {target.name} committed at each of {_ROUNDS} tries",
            operation=self.name,
            path=target,
            next_step="run one attempt of the task at a time",
        )

    async def _move_aside(self, target: StorePath, aside: StorePath) -> None:
        """Moves an earlier commit of the task aside; the next round handles a lost response."""
        try:
            await self.context.store.rename_directory(target, aside)
        except (StoreNotFoundError, StoreOutcomeUnknownError):
            return

    def _unknown(self, value: TaskOutput, error: StoreOutcomeUnknownError) -> JobStateError:
        return JobStateError(
            "cannot tell whether the task attempt committed: its directory is gone, and another one, or none, exists "
            "under its task's name",
            operation=self.name,
            path=value.directory,
            outcome="unknown",
            next_step="run the task again as a new attempt: its commit replaces this one",
            causes=[error],
        )


async def stands(context: StageContext, directory: StorePath, record: bytes) -> bool:
    """Returns whether a task's directory matches a record."""
    try:
        return await context.forms.read(context, directory) == record
    except (StoreNotFoundError, TaskError):
        return False


def message_of_directory(
    context: StageContext, identity: AttemptIdentity, record: bytes, manifest: TaskManifest
) -> TaskCommit:
    """Builds the message of a committed task from its manifest."""
    sizes = [file.z for file in manifest.files]
    return message_of(context, identity, context.layout.manifest(identity.task), record, sizes, inline=False)


class AbortFileTask(AbortTask):
    """Stage that deletes the directories of an attempt's runs, and its commit if its record proves it.

    Commits of Hadoop's attempts, and commits without files, stay: no record tells whose they are.

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
        """Removes a task's commit, if it is the one that a record describes.

        It is first moved to where a job commit still finds it, and compared there: a job commit never finds
        half of it.
        """
        task, token = layout.task_id(value.task), self.context.runtime.nonce()
        committed, aside = layout.manifests / task, layout.replaced(task, token)
        if not await self._is(committed, task, told):
            return
        for earlier in await self._runs(layout.runs, task):
            # An earlier commit that this one replaced does not come back.
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
            # Another attempt of the task committed after the comparison.
            await self._put_there(aside, committed)
            return
        await self._discard(layout, aside, f"{attempt_id}-{token}")

    async def _is(self, directory: StorePath, task: str, told: bytes) -> bool:
        try:
            return await record_of_directory(self.context, directory, task_name=task) == told
        except (StoreNotFoundError, StoreNotADirectoryError, TaskError):
            return False

    async def _put_there(self, aside: StorePath, committed: StorePath) -> None:
        # A later commit of the task, or a job commit that took it, wins.
        with suppress(StoreExistsError, StoreNotFoundError):
            await self.context.store.rename_directory(aside, committed)

    async def _discard(self, layout: CommittedLayout, directory: StorePath, name: str) -> None:
        """Renames a directory to a name that job commits ignore, then deletes it."""
        with suppress(StoreNotFoundError):
            await self.context.store.rename_directory(directory, layout.runs / name)
            await self.context.store.delete_directory(layout.runs / name, recursive=True)
