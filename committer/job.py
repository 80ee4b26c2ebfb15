"""Job: what a driver holds."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

import anyio
import msgspec

from committer.committers.base import committer_for
from committer.committers.context import default_committer_of, find_job, fresh_statistics, open_context
from committer.committers.results import CommitPlan, JobReport
from committer.config import CommitterConfig
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobDecidedError,
    JobStateError,
    StoreNotFoundError,
    TaskCommitsRequiredError,
)
from committer.events import Listener
from committer.flow.outlast import UNDO_BOUND_S, outlast
from committer.flow.runtime import current_runtime
from committer.layout import MANIFEST_SUFFIX, check_job_id, check_number
from committer.opening import Opening
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import Delivery, JobSpec
from committer.stages.abort_task import AbortRequest
from committer.stages.base import StageContext
from committer.stages.job_directory import join_job, look_at_job
from committer.task import TaskAttempt, make_attempt

_log = logging.getLogger("committer.job")


Destination = str | os.PathLike[str] | StorePath


class Job:
    """A job in its driver. Leaving its block commits it; leaving with an exception aborts it.

    Made by `open_job` (sets it up) or `attach_job` (joins one that stands; leaving the block then only closes).

    Attributes:
        spec: What other processes need to take part: picklable, JSON, no secrets.
    """

    is_commit_repeatable = True
    """MapReduce's question: a commit that died is finished by `recover`, or by calling `commit` again."""

    def __init__(self, context: StageContext, *, attached: bool) -> None:
        self.spec: JobSpec = context.spec
        self._context = context
        self._committer = committer_for(context.spec.committer)
        self._attached = attached
        self._own: dict[int, TaskCommit] = {}
        self._own_records: set[str] = set()
        self._open_attempts = 0
        self._report: JobReport | None = None
        self._aborted = False
        self._abort_called = False
        self._committing = asyncio.Lock()

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.spec.job_id

    @property
    def report(self) -> JobReport | None:
        """The report, once the job committed."""
        return self._report

    def listen(self, listener: Listener) -> None:
        """Adds a listener for progress; it is called on the event loop and must return at once."""
        self._context.progress.listen(listener)

    # -- tasks --------------------------------------------------------------------------------------------------

    def task_attempt(self, task: int, attempt: int = 0) -> Opening[TaskAttempt]:
        """Opens a task attempt in this process: ``async with job.task_attempt(task=0) as task: ...``.

        Raises:
            JobNotFoundError: The job was cleaned up.
            JobDecidedError: The job is decided.
        """
        check_number(task, "task")
        check_number(attempt, "attempt")

        async def make() -> TaskAttempt:
            made = await make_attempt(
                self._context,
                task=task,
                attempt=attempt,
                owns_store=False,
                committed=self._note,
                left=self._note_left,
            )
            self._open_attempts += 1
            return made

        return Opening(make)

    def _note(self, message: TaskCommit) -> None:
        self._own[message.task] = message
        self._own_records.add(StorePath.from_uri(message.record).name)

    def _note_left(self) -> None:
        self._open_attempts -= 1

    async def abort_task(self, task: int, attempt: int) -> None:
        """Removes a task attempt, of any process or host, by its ids alone.

        Raises:
            JobDecidedError, JobStateError: The job is decided or being committed, perhaps with this attempt: it stays.
            CommitterError: Something could not be removed.
        """
        request = AbortRequest(check_number(task, "task"), check_number(attempt, "attempt"))
        message = self._own.get(task)
        await self._committer.abort_task(fresh_statistics(self._context), request)
        if message is not None and message.attempt == attempt:
            del self._own[task]

    async def recover_task(self, task: int, attempt: int) -> TaskCommit:
        """The message of a task attempt that committed, for a driver that lost it (MapReduce's ``recoverTask``).

        Raises:
            TaskError: The attempt did not commit.
        """
        context = fresh_statistics(self._context)
        message = await self._committer.recover_task(
            context, check_number(task, "task"), check_number(attempt, "attempt")
        )
        self._note(message)
        return message

    # -- the job's end ------------------------------------------------------------------------------------------

    async def commit(self, task_commits: Iterable[TaskCommit] | None = None, tasks: int | None = None) -> JobReport:
        """Makes the output of exactly the winners visible. A second call returns the same report.

        Args:
            task_commits: The messages of the attempts that win, one a task; an empty list means zero tasks. None takes
                every record listed (`delivery="listing"`), or the messages of this Job's own attempts if no other
                attempt committed (`delivery="message"`).
            tasks: How many tasks the job has; the commit is refused when another number committed.

        Raises:
            TaskCommitsRequiredError: Others committed too, and no messages say who wins. The job stays undecided.
            TaskMissingError, PreflightError, TargetExistsError, DestinationBusyError: Nothing was published.
            JobDecidedError: The job was aborted.
            JobRolledBackError: It was decided, then rolled back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
            CommitterError: With `outcome` "partial" the job is decided: call commit or `recover` again.
        """
        async with self._committing:
            return await self._commit(task_commits, tasks)

    async def _commit(self, task_commits: Iterable[TaskCommit] | None, tasks: int | None) -> JobReport:
        if self._report is not None:
            return self._report
        if self._aborted:
            raise JobDecidedError(
                f"job {self.job_id} was aborted", operation="commit_job", next_step="run it again as a new job"
            )
        if self._open_attempts:
            raise JobStateError(
                f"{self._open_attempts} task attempts of job {self.job_id} are still open in this process",
                operation="commit_job",
                next_step="leave their blocks before the job is committed",
            )
        if tasks is not None:
            check_number(tasks, "tasks")
        if task_commits is None and self.spec.delivery == "message":
            task_commits = await self._own_messages()
        # Each try is a driver of its own: what an earlier one wrote and never heard of must not be overwritten.
        driver = current_runtime().nonce()
        context = self._context = replace(fresh_statistics(self._context), driver=driver)
        self._report = await self._committer.commit_job(context, task_commits, tasks)
        return self._report

    async def _own_messages(self) -> list[TaskCommit] | None:
        layout, store = self._context.layout, self._context.store
        found = await look_at_job(store, layout)
        if found.decided or found.ended:
            return None
        try:
            records = {child.path.name async for child in store.list(layout.attempts)}
        except StoreNotFoundError:
            records = set()
        others = {name for name in records - self._own_records if name.endswith(MANIFEST_SUFFIX)}
        if others:
            raise TaskCommitsRequiredError(
                f"{len(others)} task attempts of job {self.job_id} committed elsewhere, the first: {min(others)}",
                operation="commit_job",
                path=layout.attempts,
                next_step="commit(task_commits=[...]) with the message of the winner of each task; "
                "the job stays open until then",
            )
        return list(self._own.values())

    async def abort(self) -> None:
        """Decides that the job never becomes visible, and removes it. Does nothing for a job that ended.

        Raises:
            JobDecidedError: The job is decided to be committed; nothing was deleted.
            CommitterError: Something could not be removed; the decision stands.
        """
        if self._report is not None or self._aborted:
            return
        self._aborted = await self._committer.abort_job(fresh_statistics(self._context))
        self._abort_called = True

    async def plan(self, task_commits: Iterable[TaskCommit] | None = None) -> CommitPlan:
        """What `commit` would do now; changes nothing.

        Args:
            task_commits: As for `commit`; None with `delivery="message"` takes this Job's own messages.
        """
        if task_commits is None and self.spec.delivery == "message":
            task_commits = list(self._own.values())
        return await self._committer.plan(fresh_statistics(self._context), task_commits)

    async def close(self) -> None:
        """Frees what this process opened; decides nothing."""
        await self._context.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._attached:
                return
            if error is not None:
                await self._abort_after(error)
                return
            if self._report is None and not self._abort_called:
                try:
                    await self.commit()
                except BaseException as failure:
                    await self._abort_after(failure)
                    raise
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()

    async def _abort_after(self, error: BaseException) -> None:
        """Aborts because of `error`, which a failure to abort must not hide."""
        if isinstance(error, TaskCommitsRequiredError):
            return
        if isinstance(error, CommitterError) and error.outcome == "unknown":
            # What happened cannot be told, so nothing may be deleted (G8).
            error.add_note(f"job {self.job_id} was not aborted: it may be decided")
            return
        in_time = True
        try:
            in_time = await outlast(self.abort, bound_s=UNDO_BOUND_S)
        except CommitterError as failure:
            _log.warning("job %s was not aborted: %s", self.job_id, failure)
            error.add_note(f"job {self.job_id} was not aborted: {failure}")
        if not in_time:
            error.add_note(f"aborting job {self.job_id} took over {UNDO_BOUND_S:.0f} s and was given up")


def open_job(
    dest: Destination,
    *,
    job_id: str | None = None,
    committer: str | None = None,
    delivery: Delivery | None = None,
    config: CommitterConfig | None = None,
    storage_options: Mapping[str, object] | None = None,
    listeners: Iterable[Listener] = (),
) -> Opening[Job]:
    """Sets a job up; ``async with committer.open_job(dest) as job: ...`` commits it on a clean exit, else aborts it.

    ``job = await committer.open_job(dest)`` only sets it up; then ``await job.close()`` frees resources and decides
    nothing.

    Args:
        dest: The directory to write to: a URI, or a path of this machine. Made when missing.
        job_id: 1 to 128 of ``A-Z a-z 0-9 . _ -``; a UUID when None.
        committer: The committer's name; the store's default when None: ``magic`` on S3, else ``manifest``.
        delivery: How the driver learns of task commits: ``listing``, or ``message`` for engines whose tasks return
            values; the committer's default when None: ``message`` with ``magic``, else ``listing``.
        config: The job's choices.
        storage_options: How to reach the store.
        listeners: Called with each event of the job's progress.

    Raises:
        JobExistsError: The id is in use at this destination.
        UnsupportedError: The store cannot do what the committer needs.
        ConfigurationError: An argument cannot be honoured.
    """
    if delivery not in ("listing", "message", None):
        raise ConfigurationError(f"delivery is 'listing' or 'message', not {delivery!r}", operation="open_job")
    listeners = tuple(listeners)
    destination = StorePath.of(dest)
    if committer is not None:
        committer_for(committer)

    async def make() -> Job:
        chosen = committer_for(committer or await default_committer_of(destination, storage_options))
        spec = JobSpec(
            destination=destination.uri,
            job_id=check_job_id(job_id if job_id is not None else current_runtime().uuid()),
            committer=chosen.name,
            delivery=delivery or chosen.default_delivery,
            config=config or CommitterConfig(),
        )
        context = await open_context(spec, storage_options, listeners)
        try:
            identity = await chosen.setup_job(context)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await context.store.close()
            raise
        return Job(replace(context, setup_identity=identity), attached=False)

    return Opening(make)


def attach_job(
    job: JobSpec | Destination,
    *,
    job_id: str | None = None,
    config: CommitterConfig | None = None,
    storage_options: Mapping[str, object] | None = None,
    listeners: Iterable[Listener] = (),
) -> Opening[Job]:
    """Joins a job that was set up before, by this engine or by Hadoop. Leaving its block only closes it.

    Args:
        job: Its spec, or its destination together with `job_id`.
        job_id: Its id, with a destination.
        config: Where reports and kept records go, and `absolute_roots`; all else is as the job was set up. For a job
            that Hadoop set up, all choices.
        storage_options: How to reach the store.
        listeners: Called with each event of the job's progress.

    Raises:
        JobNotFoundError: There is no such job.
    """
    listeners = tuple(listeners)
    if isinstance(job, JobSpec):
        known, destination, wanted = job, StorePath.from_uri(job.destination), job.job_id
    else:
        if job_id is None:
            raise ConfigurationError("attach_job needs a JobSpec, or a destination and job_id", operation="attach_job")
        known, destination, wanted = None, StorePath.of(job), job_id

    async def make() -> Job:
        identity: str | None = None
        if known is not None and known.hadoop:
            spec = known if config is None else msgspec.structs.replace(known, config=config)
        else:
            given = config if config is not None or known is None else known.config
            spec, identity = await find_job(destination, wanted, config=given, storage_options=storage_options)
        context = replace(await open_context(spec, storage_options, listeners), setup_identity=identity)
        if spec.hadoop:
            # Of every other its setup record was just read.
            try:
                await join_job(context.store, context.layout)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await context.store.close()
                raise
        return Job(context, attached=True)

    return Opening(make)
