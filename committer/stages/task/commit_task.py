"""The stages that set up and commit a task attempt: its directory, and the record of its files."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from committer.advice import BUCKET_GONE
from committer.errors import (
    CommitterError,
    DestinationNotFoundError,
    InvalidPathError,
    JobNotFoundError,
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    TaskError,
)
from committer.events import names
from committer.flow.retry import RetryPolicy, retry
from committer.flow.together import together
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.manifest import (
    DIRECTORY_IS_DIRECTORY,
    DIRECTORY_IS_FILE,
    DIRECTORY_NOT_FOUND,
    DIRECTORY_UNKNOWN,
    DirectoryEntry,
)
from committer.records.task_commit import INLINE_LIMIT, TaskCommit, digest_of
from committer.stages.base import AttemptIdentity, Stage, StageContext, TaskOutput, WrittenFile
from committer.stages.durability import sync_directories
from committer.stages.load.winning_records import no_directory
from committer.stages.names import with_ancestors
from committer.stages.state.job_liveness import check_job_is_live, names_not_forced
from committer.stages.task.attempt_files import attempt_aborted
from committer.stores.abilities import SYNC
from committer.stores.paced import without_retries


class SetupTask(Stage[AttemptIdentity, StorePath]):
    """The stage that creates the task attempt directory.

    Preconditions: the job exists and is not decided.
    Postconditions: an empty directory that no other run of the attempt shares. Its parents are never created: a
    task of a cleaned-up job must fail, not bring the job's directory back. Nothing is synced: a power loss
    before the task commits costs the attempt anyway, and task commit syncs the directory's name.
    Failure modes: `JobNotFoundError`, `JobDecidedError`.
    Cost: 2 calls.
    Hadoop: ``SetupTaskStage``, which does not check the job.
    """

    name = statistic = names.TASK_STAGE_SETUP

    async def execute(self, value: AttemptIdentity) -> StorePath:
        """Checks the job and creates the directory."""
        layout, store = self.context.layout, self.context.store
        await check_job_is_live(self.context, operation=self.name)
        directory = layout.task_attempt_directory(*value)
        if self.context.spec.hadoop:
            # Hadoop leaves the parent to the first task.
            await store.make_directory(layout.tasks, parents=False)
        try:
            await store.make_directory(directory, parents=False)
        except StoreNotFoundError as error:
            # The job may have been decided and sealed meanwhile.
            await check_job_is_live(self.context, operation=self.name)
            raise JobNotFoundError(
                f"job {layout.job_id} was cleaned up while a task attempt started",
                operation=self.name,
                path=layout.tasks,
                next_step="stop this task: its job is over",
            ) from error
        return directory


async def destination_directories(context: StageContext, output: TaskOutput) -> list[DirectoryEntry]:
    """Returns every directory that the task's files need, parents first."""
    # A Python driver looks for itself, once for all tasks, so their status is unknown. With `hadoop_driver`
    # each directory whose parent exists is looked at, as ``TaskAttemptScanDirectoryStage`` does: one call
    # each, level by level.
    layout = context.layout
    wanted = {file.destination.rpartition("/")[0] for file in output.files} | set(output.directories)
    wanted = with_ancestors(wanted, layout.roots)
    statuses = dict.fromkeys(wanted, DIRECTORY_UNKNOWN)
    if context.config.hadoop_driver and context.forms.names_directories:
        await _probe(context, statuses)
    ordered = sorted(wanted, key=lambda name: (name.count("/"), name))
    return [DirectoryEntry(d=layout.target(name).uri, t=statuses[name], l=name.count("/") + 1) for name in ordered]


async def _probe(context: StageContext, statuses: dict[str, int]) -> None:
    async def look(name: str) -> None:
        try:
            status = await context.store.status(context.layout.target(name))
        except StoreNotFoundError:
            statuses[name] = DIRECTORY_NOT_FOUND
        else:
            statuses[name] = DIRECTORY_IS_DIRECTORY if status.is_directory else DIRECTORY_IS_FILE

    deepest = max((name.count("/") for name in statuses), default=-1)
    for level in range(deepest + 1):
        asked = []
        for name in statuses:
            if name.count("/") != level:
                continue
            parent = name.rpartition("/")[0]
            # A root is not in the list; it exists, as the destination does.
            if parent and statuses.get(parent, DIRECTORY_IS_DIRECTORY) != DIRECTORY_IS_DIRECTORY:
                statuses[name] = DIRECTORY_NOT_FOUND
            else:
                asked.append(name)
        await run_workers(asked, look, workers=context.config.io_concurrency, operation="probe_directories")


# Hadoop sleeps 1.0, 1.5, 2.0, 2.5 s between its five tries to save a record (``AbstractJobOrTaskStage``); full
# jitter below 2.5 s has the same reach and spreads a thundering herd.
_SAVE_BACKOFF_BASE_S = 0.5
_SAVE_BACKOFF_CAP_S = 2.5


class CommitTask(Stage[TaskOutput, TaskCommit]):
    """The stage that saves the task's record, and checks in the same round trip whether the job still exists.

    Preconditions: every file is closed; the job exists and is not decided.
    Postconditions: delivery by listing: the record has the task's name, by one atomic replace, so the last
    attempt that commits wins. Delivery by message: it has the attempt's name, and the message names it. Files
    stay where they are. With `durability="fsync"` files, directories and record survive a power loss.
    Failure modes: nothing of the attempt can be committed; or, with `outcome="unknown"`, its record may exist
    and be read by a job commit, so its files must stay: the next attempt's commit replaces it.
    Cost: 2 calls in one round trip, 3 by listing where directories are real; one more round trip on a store
    that writes first and renames then. With `hadoop_driver` one more per directory, as Hadoop does. With
    `durability="fsync"` one more per directory of the attempt, one for `tasks`, and one per file not written
    through the store; 5 more in a job that Hadoop set up, which synced nothing.
    Hadoop: ``CommitTaskStage``, ``SaveTaskManifestStage``.
    """

    name = statistic = names.TASK_STAGE_COMMIT

    async def execute(self, value: TaskOutput) -> TaskCommit:
        """Builds and saves the record."""
        statistics = self.context.statistics
        sizes = [file.size for file in value.files]
        directories = await destination_directories(self.context, value)
        statistics.sample(names.COMMITTER_TASK_DIRECTORY_COUNT, len(directories))
        statistics.sample(names.COMMITTER_TASK_DIRECTORY_DEPTH, 1 + max((entry.l for entry in directories), default=0))
        statistics.sample(names.COMMITTER_TASK_FILE_COUNT, len(sizes))
        statistics.sample(names.COMMITTER_TASK_FILE_SIZE, sum(sizes))
        if self.context.durable:
            await sync_output(self.context, value)
        with statistics.timed(names.TASK_STAGE_SAVE_MANIFEST):
            data, path = await self._save(value, directories)
        statistics.count(names.COMMITTER_TASKS_COMPLETED)
        return message_of(self.context, value.identity, path, data, sizes)

    async def _save(self, value: TaskOutput, directories: list[DirectoryEntry]) -> tuple[bytes, StorePath]:
        layout, identity = self.context.layout, value.identity
        path, temporary = layout.attempt_record(*identity), None
        if self.context.spec.delivery == "listing":
            path = layout.manifest(identity.task)
            temporary = layout.manifest_temporary(*identity)
        # Encoded once for all tries: a delayed request must not replace the record with other bytes.
        saved = self.context.forms.encode_task(self.context, value, directories)
        self._check_size(saved, path)
        may_stand = lost = False
        store = self.context.holding(path)
        once, durable = without_retries(store), self.context.durable_on(store)

        async def save() -> None:
            nonlocal may_stand, lost
            try:
                with self.context.statistics.timed(names.TASK_STAGE_SAVE_TASK_MANIFEST):
                    await once.put(path, saved, temporary=temporary, durable=durable)
            except (StoreError, InvalidPathError) as error:
                lost = lost or isinstance(error, StoreOutcomeUnknownError)
                may_stand = may_stand or lost
                raise
            except BaseException:
                may_stand = True
                raise
            may_stand = True

        policy = RetryPolicy(
            attempts=self.context.config.record_save_attempts, base_s=_SAVE_BACKOFF_BASE_S, cap_s=_SAVE_BACKOFF_CAP_S
        )
        try:
            # Replacing the same bytes under the same name is idempotent, so a lost response is simply retried.
            await together(*self._checks(value), retry(save, policy=policy, idempotent=True))
        except StoreNotFoundError as error:
            # The record's directory is gone: the job was cleaned up.
            failure = await self._why_gone()
            if lost:
                # A record whose response was lost may have counted before the retry.
                failure.outcome = "unknown"
            raise failure from error
        except CommitterError as error:
            # A check failed, or found the job gone, while the record was saved: a job commit may have read that.
            if may_stand:
                error.outcome = "unknown"
            if isinstance(error, DestinationNotFoundError):
                error.next_step = BUCKET_GONE
            raise
        return saved, path

    def _checks(self, value: TaskOutput) -> list[Coroutine[Any, Any, object]]:
        """Returns the checks that run beside the save."""
        # By listing, an aborted attempt's record would replace a good one of the same task. By message it
        # replaces nothing, and a job commit that is given it checks the files.
        checks: list[Coroutine[Any, Any, object]] = [check_job_is_live(self.context, operation=self.name)]
        if self.context.spec.delivery == "listing" and self.context.store.capabilities.directories:
            checks.append(self._check_not_aborted(value))
        return checks

    def _check_size(self, record: bytes, path: StorePath) -> None:
        limit = self.context.config.record_size_limit
        if len(record) > limit:
            raise TaskError(
                f"the task's record has {len(record)} bytes; no job commit reads more than record_size_limit={limit}",
                operation=self.name,
                path=path,
                next_step="write fewer files a task, or raise the limit for the job",
            )

    async def _why_gone(self) -> CommitterError:
        try:
            await check_job_is_live(self.context, operation=self.name)
        except CommitterError as reason:
            return reason
        return no_directory(self.context.layout, self.context.layout.manifests, self.name)

    async def _check_not_aborted(self, value: TaskOutput) -> None:
        """Refuses an attempt that a driver aborted while it ran: its record would name deleted files."""
        try:
            await self.context.store.status(value.directory)
        except StoreNotFoundError as error:
            await check_job_is_live(self.context, operation=self.name)
            raise attempt_aborted(self.name, value.directory) from error


def message_of(
    context: StageContext,
    identity: AttemptIdentity,
    path: StorePath,
    record: bytes,
    sizes: list[int],
    *,
    inline: bool = True,
) -> TaskCommit:
    """Builds an attempt's message from its record and its files' sizes; without the record unless `inline`."""
    return TaskCommit(
        job_id=context.layout.job_id,
        task=identity.task,
        attempt=identity.attempt,
        nonce=identity.nonce,
        record=path.uri,
        digest=digest_of(record),
        length=len(record),
        files=len(sizes),
        size=sum(sizes),
        inline=record.decode() if inline and len(record) <= INLINE_LIMIT else None,
    )


async def sync_output(context: StageContext, value: TaskOutput) -> None:
    """Syncs what a task attempt wrote to disk: the data of files, then all names up to its directory's own."""
    # Data of files written through the store was synced when each was closed; the other files' is synced here.
    store = SYNC.required(context.store, "sync", value.directory)

    async def sync(file: WrittenFile) -> None:
        await store.sync(value.directory / file.name, kind="file")

    foreign = [file for file in value.files if not file.synced]
    await run_workers(foreign, sync, workers=context.config.io_concurrency, operation=CommitTask.name)
    names_of = with_ancestors({file.name.rpartition("/")[0] for file in value.files} | set(value.directories))
    directories = {value.directory / name for name in names_of}
    directories |= {value.directory, value.directory.parent, *names_not_forced(context)}
    await sync_directories(context, directories)
