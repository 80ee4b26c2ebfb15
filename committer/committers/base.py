"""Base class of committers."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from committer.committers import job_commit
from committer.committers.actions import PublishAction
from committer.committers.preparing import plan_job
from committer.committers.results import CommitPlan, JobReport
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TaskError,
    UnsupportedError,
)
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX, JobLayout
from committer.logs import audit, job_logger
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.manifest import relative_names
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, RecordForms, StageContext, TaskOutput
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.load.winning_records import one_attempt_a_task
from committer.stages.setup.setup_job import set_up
from committer.stages.state.job_directory import JobDirectory, join_job
from committer.stages.state.own_records import read_job_attempt
from committer.stages.task.abort_task import AbortRequest, AbortTask
from committer.stages.task.attempt_files import AttemptFiles
from committer.stages.task.commit_task import CommitTask, SetupTask, message_of
from committer.stores.base import Store

_log = job_logger("committer.committers")


class Committer(ABC):
    """Base class of committers: where tasks write, what they record, and which action publishes the files.

    A subclass defines `name`, `needs`, `action` and `files_of` (docs/writing-a-committer.md). The job-commit core
    decides, publishes by the action and writes outcomes, so that any driver can continue after another one died.

    Hadoop: ``OutputCommitter``, whose methods have their counterparts here under Python names.

    Attributes:
        name: The committer's name in options and records.
        needs: Capabilities that the store must have, each with a description.
        listed_layout: The layout of jobs with delivery by listing; by message it is `JobLayout`.
        unsafe: The guarantee that this committer does not give, in a few words; empty for the others.
        no_hadoop: Why a job that Hadoop set up cannot be joined, a clause; empty if it can.
    """

    name: str
    needs: Mapping[str, str]
    action: PublishAction
    listed_layout: type[JobLayout] = JobLayout
    unsafe: str = ""
    no_hadoop: str = ""

    @abstractmethod
    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns the files of one run of a task attempt; `context` has the attempt's own statistics."""

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns the format of the job's records; by default task manifests."""
        return ManifestForms()

    def choices(self, config: CommitterConfig) -> CommitterConfig:
        """Returns the configuration of a new job, adapted or refused by the committer."""
        return config

    def settle(self, spec: JobSpec) -> JobSpec:
        """Returns the complete spec of a new job, as its setup record will hold it."""
        if spec.config.pending_set_directory:
            _log.warning("pending_set_directory has no effect on job %s: it is of staging committers", spec.job_id)
        return spec

    @asynccontextmanager
    async def opened(self, context: StageContext) -> AsyncIterator[StageContext]:
        """Yields the context for one call, with the job's files on another store opened; by default unchanged."""
        yield context

    def layout(self, spec: JobSpec) -> JobLayout:
        """Returns the paths of a job."""
        return spec.laid_out(self.listed_layout if spec.delivery == "listing" else JobLayout)

    async def newest_hadoop_attempt(self, store: Store, layout: JobLayout) -> int | None:
        """Returns the newest job attempt of a job of Hadoop's that keeps everything outside `_temporary`.

        Called only if `JobLayout.beside` exists and the job has no record. None if no task of Hadoop's
        committed to it: then tasks of this engine left it, of a job that is over.
        """
        return None

    async def last_task_commit(self, store: Store, layout: JobLayout) -> float:
        """Returns when a task last committed to such a job, in seconds since the epoch; 0 if unknown."""
        return 0.0

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Joins a job that Hadoop set up, in order to commit it; raises `JobNotFoundError`."""
        self.refuse_hadoop(context)
        store, layout = context.store, context.layout
        found = await join_job(store, layout)
        begun = await read_job_attempt(store, found) if found.decided else None
        attempts = {begun} if begun is not None else await self.hadoop_attempts(store, found)
        if attempts and layout.job_attempt not in attempts:
            # The job directory of a driver that commits another attempt is deleted with all attempts in it.
            told = " or ".join(map(str, sorted(attempts)))
            raise JobNotFoundError(
                f"job {layout.job_id} at {layout.destination} has no job attempt {layout.job_attempt} that can be "
                f"committed, but {told}",
                operation="attach_job",
                path=layout.job_directory,
                next_step=f"give job_attempt={told} to JobSpec.for_hadoop, or --job-attempt on the command line",
            )
        return context

    async def hadoop_attempts(self, store: Store, found: JobDirectory) -> set[int]:
        """Returns the numbers of the job attempts that Hadoop set up; no call."""
        return found.attempts

    def refuse_hadoop(self, context: StageContext) -> None:
        """Refuses a job that Hadoop set up, if it cannot be joined."""
        if self.no_hadoop:
            raise UnsupportedError(
                f"jobs that Hadoop set up cannot be joined: {self.no_hadoop}",
                operation="attach_job",
                path=context.layout.destination,
                next_step="let its own driver commit it",
            )

    def known_as(self, context: StageContext, spec: JobSpec) -> StageContext:
        """Returns the context of the same job with a more complete spec."""
        return replace(context, spec=spec, layout=self.layout(spec), forms=self.forms(spec))

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`; returns the new job."""
        with audit(ji=context.layout.job_id):
            return await set_up(context, self.needs, lambda job, spec: self.known_as(job, self.settle(spec)))

    async def setup_task(self, context: StageContext, identity: AttemptIdentity) -> StorePath:
        """Runs `SetupTask`."""
        if context.spec.hadoop:
            self.refuse_hadoop(context)
        async with self.opened(context) as opened:
            return await SetupTask(opened).run(identity)

    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Runs `CommitTask`."""
        async with self.opened(context) as opened:
            return await CommitTask(opened).run(output)

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortTask`."""
        with audit(ji=context.layout.job_id, ta=context.layout.task_attempt_id(request.task, request.attempt)):
            async with self.opened(context) as opened:
                await AbortTask(opened).run(request)

    async def recover_task(self, context: StageContext, task: int, attempt: int) -> TaskCommit:
        """Recreates the message of a committed attempt from its record, else raises `TaskError`: at most 2 calls."""
        layout, store = context.layout, context.store
        attempt_id = layout.task_attempt_id(task, attempt)
        candidates = [layout.manifest(task)]
        if context.spec.delivery == "message":
            candidates = [
                child.path
                async for child in store.list(layout.attempts)
                if child.path.name.startswith(f"{attempt_id}-")
            ]
        async with self.opened(context) as opened:
            for path in candidates:
                try:
                    data = await opened.holding(path).read(path, limit=context.config.record_size_limit)
                except (StoreNotFoundError, StoreNotADirectoryError):
                    continue
                message = _message_of(context, path, data, task, attempt)
                if message is not None:
                    return message
        raise TaskError(
            f"{attempt_id} did not commit, or its record was replaced: there is nothing to recover",
            operation="recover_task",
            path=layout.job_attempt_directory,
            next_step="run the task again",
        )

    async def recover_tasks(self, context: StageContext, tasks: int) -> list[TaskCommit]:
        """Recreates the message of each task's one committed attempt: one listing, one read a task.

        Raises:
            TaskCommitsRequiredError: Several attempts of a task committed.
            TaskMissingError: A task did not commit, or a task committed that the job does not have.
        """
        layout = context.layout
        messages: dict[int, TaskCommit] = {}

        async def read(run: AttemptIdentity) -> None:
            path = layout.attempt_record(*run)
            message = None
            with contextlib.suppress(StoreNotFoundError):
                data = await context.store.read(path, limit=context.config.record_size_limit)
                message = _message_of(context, path, data, run.task, run.attempt)
            if message is None:
                raise TaskError(
                    f"the record of task {run.task} was taken away, or is of another attempt than its name says",
                    operation="commit_job",
                    path=path,
                    next_step="run the task again; nothing was published",
                )
            messages[run.task] = message

        runs = await one_attempt_a_task(context, tasks)
        await run_workers(runs, read, workers=context.config.io_concurrency, operation="recover_tasks")
        return [messages[run.task] for run in runs]

    async def commit_job(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> JobReport:
        """Commits the job."""
        async with self.opened(context) as opened:
            report = await job_commit.commit(opened, self.action, task_commits, tasks)
        await self.forget(context)
        return report

    async def recover_job(self, context: StageContext, *, rollback: bool, force: bool) -> JobReport:
        """Finishes the job from its stored state, or rolls it back."""
        async with self.opened(context) as opened:
            report = await job_commit.recover(opened, self.action, rollback=rollback, force=force)
        await self.forget(context)
        return report

    async def check_recovery(self, context: StageContext, *, rollback: bool, force: bool) -> None:
        """Raises what `recover_job` would refuse; changes nothing."""
        async with self.opened(context) as opened:
            await job_commit.check_recover(opened, self.action, rollback=rollback, force=force)

    async def abort_job(self, context: StageContext) -> bool:
        """Aborts and removes the job."""
        try:
            async with self.opened(context) as opened:
                aborted = await job_commit.abort(opened, self.action)
        except CommitterError as error:
            error.next_step = error.next_step or "remove the cause, then abort the job again"
            raise
        await self.forget(context)
        return aborted

    async def forget(self, context: StageContext) -> None:
        """Removes files of a finished job on this machine, outside its store; by default none."""
        return

    async def plan(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> CommitPlan:
        """Loads and checks the job; changes nothing."""
        async with self.opened(context) as opened:
            return await plan_job(opened, task_commits, tasks)


def _message_of(context: StageContext, path: StorePath, data: bytes, task: int, attempt: int) -> TaskCommit | None:
    """Returns the attempt's message from a record; None if another attempt wrote the record."""
    layout = context.layout
    attempt_id = layout.task_attempt_id(task, attempt)
    manifest = context.forms.decode_task(context, path, data)
    if manifest.taskAttemptID != attempt_id:
        return None
    relative_names(
        manifest,
        destination=layout.destination,
        source_root=layout.recorded_tasks,
        source=str(path),
        roots=layout.roots,
    )
    nonce = path.name.removeprefix(f"{attempt_id}-").removesuffix(MANIFEST_SUFFIX)
    identity = AttemptIdentity(task, attempt, nonce if context.spec.delivery == "message" else "")
    return message_of(context, identity, path, data, [entry.z for entry in manifest.files])
