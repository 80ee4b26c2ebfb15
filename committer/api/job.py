"""The class Job: a job in its driver's process."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self

import anyio

from committer.advice import COMMIT_AGAIN
from committer.api.task import TaskAttempt, make_attempt
from committer.committers.advising import advising, with_options
from committer.committers.base import Committer
from committer.committers.failures import say_it_is_left, with_abort_advice, without_the_end
from committer.committers.opened_store import as_new_driver, fresh_statistics
from committer.committers.registry import committer_for
from committer.committers.results import CommitPlan, JobReport, refuse_other_tasks
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobDecidedError,
    JobStateError,
    StoreNotFoundError,
    TaskCommitsRequiredError,
    TaskError,
    TaskMissingError,
)
from committer.events import Listener
from committer.events.display import Display
from committer.flow.misuse import Calls, OneProcess, Opening, noted
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.layout import MANIFEST_SUFFIX, JobLayout, check_number
from committer.logs import audit, job_logger
from committer.paths import StorePath
from committer.readable import count
from committer.records.publish_chunk import PublishPool, checked_pool
from committer.records.task_commit import TaskCommit, messages_in
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.state.job_directory import look_at_job
from committer.stages.task.abort_task import AbortRequest


class OwnAttempts:
    """The task attempts that one Job opened in its process; `open` holds those that have not ended."""

    def __init__(self, layout: JobLayout) -> None:
        self.open: list[tuple[int, int]] = []
        self._layout = layout
        self._messages: dict[int, TaskCommit] = {}
        self._records: set[str] = set()
        self._begun: set[int] = set()

    @property
    def messages(self) -> list[TaskCommit]:
        """The message of each task's attempt that committed last."""
        return list(self._messages.values())

    def begin(self, task: int, attempt: int) -> Callable[[], None]:
        """Registers an attempt that is about to be opened; returns the function to call when the attempt ended.

        Refuses a second run: of several commits of one task only the last wins, and files would be lost.
        """
        message = self._messages.get(task)
        state = "is open already" if (task, attempt) in self.open else ""
        if message is not None and message.attempt == attempt:
            state = f"committed already, with {count(message.files, 'file')}"
        if state:
            raise TaskError(
                f"task {task} attempt {attempt} of job {self._layout.job_id} {state}",
                operation="task_attempt",
                path=self._layout.destination.uri,
                next_step="give each task a number of its own; to run this task again, use another attempt number: "
                f"job.task_attempt(task={task}, attempt={attempt + 1})",
            )
        self.open.append((task, attempt))
        self._begun.add(task)
        return partial(self.open.remove, (task, attempt))

    def check_named(self, task_commits: list[TaskCommit]) -> None:
        """Refuses messages that leave out a task which committed in this Job; later steps refuse other types."""
        if not all(isinstance(message, TaskCommit) for message in task_commits):
            return
        named = {message.task for message in task_commits}
        missing = next((message for task, message in self._messages.items() if task not in named), None)
        if missing is not None:
            raise TaskMissingError(
                f"task {missing.task} of job {self._layout.job_id} committed in this process, and "
                "task_commits has no message of it",
                operation="commit_job",
                path=self._layout.destination,
                next_step="pass the message of each task (`task.task_commit`), or no task_commits: the Job knows its "
                f"own attempts; to leave this one out, `await job.abort_task({missing.task}, {missing.attempt})` first",
            )

    @property
    def committed(self) -> frozenset[int]:
        """Numbers of tasks of which an attempt committed."""
        return frozenset(self._messages)

    @property
    def uncommitted(self) -> set[int]:
        """Numbers of tasks that ran in this Job without a committed attempt."""
        return self._begun - self._messages.keys()

    def note(self, message: TaskCommit) -> None:
        """Registers the message of a committed attempt."""
        self._messages[message.task] = message
        self._records.add(StorePath.from_uri(message.record).name)

    def forget(self, task: int, attempt: int) -> None:
        """Removes the message of a committed attempt that was aborted."""
        message = self._messages.get(task)
        if message is not None and message.attempt == attempt:
            del self._messages[task]

    async def only_ones(self, context: StageContext) -> list[TaskCommit] | None:
        """Returns the messages, None for a decided job; refuses if other attempts committed too. One or two calls."""
        layout, store = self._layout, context.store
        found = await look_at_job(store, layout)
        if found.decided or found.ended:
            return None
        try:
            records = {child.path.name async for child in store.list(layout.attempts)}
        except StoreNotFoundError:
            records = set()
        others = {name for name in records - self._records if name.endswith(MANIFEST_SUFFIX)}
        if others:
            raise TaskCommitsRequiredError(
                f"{len(others)} task attempts of job {layout.job_id} committed elsewhere, the first: {min(others)}",
                operation="commit_job",
                path=layout.attempts,
                next_step="`await job.commit(task_commits=[...])` with the message of the winner of each task; or, if "
                "each of its N tasks committed once, `await job.commit(from_attempts=True, tasks=N)`; or abort it, and "
                'run it as a new job with delivery="listing", whose commit() takes what a listing finds. Until then '
                "the job stays open",
            )
        return self.messages


async def messages_of_all_attempts(
    committer: Committer, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
) -> list[TaskCommit] | None:
    """Returns the message of each task's one committed attempt, for a driver that lost them; None for a decided job."""
    if task_commits is not None or tasks is None:
        raise ConfigurationError(
            "from_attempts takes the number of the job's tasks, and no messages",
            operation="commit_job",
            next_step="commit(from_attempts=True, tasks=...), or commit(task_commits=[...])",
        )
    if context.spec.delivery == "listing":
        # By listing a task has one record, however many of its attempts committed.
        return None
    found = await look_at_job(context.store, context.layout)
    if found.decided or found.ended:
        return None
    return await committer.recover_tasks(fresh_statistics(context), check_number(tasks, "tasks", "commit_job"))


_log = job_logger("committer.job")

LISTING_INTERVAL_S: Final = 5.0

# A listing of a hundred thousand records takes seconds: at most a twentieth of the time is spent on listings.
_PAUSE_A_LISTING: Final = 20


async def report_committed_tasks(context: StageContext, is_open: Callable[[], bool]) -> None:
    """Reports the number of committed tasks every few seconds, by one listing each, while the job is open and heard."""
    context = fresh_statistics(context)
    runtime, pause = context.runtime, LISTING_INTERVAL_S
    while True:
        await runtime.sleep(pause)
        if not (context.progress.is_heard and is_open()):
            return
        began = runtime.monotonic()
        try:
            context.progress.report_committed_tasks(await _count_committed_tasks(context))
        except Exception as error:
            _log.debug("the committed tasks of job %s were not counted: %s", context.layout.job_id, error)
        pause = max(LISTING_INTERVAL_S, _PAUSE_A_LISTING * (runtime.monotonic() - began))


async def _count_committed_tasks(context: StageContext) -> int:
    layout, by_message = context.layout, context.spec.delivery == "message"
    tasks: set[str | int | None] = set()
    with audit(ji=layout.job_id, st="count_tasks"):
        async with committer_for(context.spec.committer).opened(context) as opened:
            directory = layout.attempts if by_message else layout.manifests
            async for child in opened.holding(directory).list(directory):
                name = child.path.name
                if by_message:
                    tasks.add(layout.task_of_record(name))
                elif layout.is_record(name):
                    tasks.add(name)
    tasks.discard(None)
    return len(tasks)


RUN_ANEW = "run the job again, under any id (this one was aborted when the error left its block)"


class Job(OneProcess):
    """A job in its driver's process. Leaving its block commits it; leaving with an exception aborts it.

    Created by `open_job` (sets it up) or `attach_job` (joins an existing one; leaving the block then only
    closes). It cannot be pickled or copied; in a forked child every method raises, and leaving the block does
    nothing. Other processes take part by `spec`.

    Attributes:
        spec: What other processes need to take part: picklable, JSON, no secrets.
    """

    _refused = JobStateError
    _instead = (
        "give job.spec to the other process: committer.open_task(spec, task=...) opens a task attempt there, "
        "committer.attach_job(spec) the job"
    )

    is_commit_repeatable = True
    """MapReduce's question. Yes: `recover`, or another `commit`, finishes a commit that died."""

    is_recovery_supported = True
    """MapReduce's question. Yes: `recover_task` recreates a task attempt's message that the driver lost."""

    _is_left = False

    def __init__(
        self, context: StageContext, *, attached: bool, display: Display | None = None, reached: str = ""
    ) -> None:
        super().__init__()
        self.spec: JobSpec = context.spec
        self._context = context
        self._committer = committer_for(context.spec.committer)
        self._attached = attached
        self._is_left = not attached
        self._display = display
        # Rendered by `shown_options`, for the calls that errors advise.
        self._reached: str = reached
        self._attempts = OwnAttempts(context.layout)
        self._report: JobReport | None = None
        self._winners: set[tuple[int, int, str]] | None = None
        self._aborted = False
        self._abort_called = False
        self._committing = asyncio.Lock()
        self._calls = Calls()
        self._counting: asyncio.Task[None] | None = None
        if context.progress.is_heard:
            # A weak reference: a Job that its owner dropped must warn, and not be counted any more.
            this = weakref.ref(self)
            counting = report_committed_tasks(context, lambda: this() is not None)
            self._counting = asyncio.create_task(counting, name="committer-count-tasks")

    def __repr__(self) -> str:
        spec = self.spec
        hadoop = ", set up by Hadoop" if spec.hadoop else ""
        return (
            f"<Job {spec.job_id} at {spec.destination}: committer {spec.committer}, delivery by {spec.delivery}{hadoop}"
            f", {self._state} in this process>"
        )

    @property
    def _state(self) -> str:
        if self._report is not None:
            return "committed"
        if self._aborted:
            return "aborted"
        if self._committing.locked():
            return "being committed"
        return "attached" if self._attached else "open"

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.spec.job_id

    @property
    def report(self) -> JobReport | None:
        """The report of the committed job; None before."""
        return self._report

    def _told_as(self) -> str:
        return f"job {self.job_id}"

    def _advising(self) -> AbstractContextManager[None]:
        return advising(lambda: self._reached)

    def _with_abort_advice(self) -> AbstractAsyncContextManager[None]:
        # The process that set the job up runs its tasks again, or leaves its block, which aborts the job.
        return with_abort_advice(self._context) if self._attached else nullcontext()

    def _warn_if_left(self) -> None:
        if self._is_left and not self._is_inherited:
            self._is_left = False
            warnings.warn(
                f"job {self.job_id} at {self.spec.destination} was never committed, aborted or closed: nothing of it "
                f"is visible, and it stays below _temporary until cleanup with job_id={self.job_id!r} removes it",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __del__(self) -> None:
        self._warn_if_left()

    def listen(self, listener: Listener) -> None:
        """Adds a listener for progress: called on the event loop, so no async function, and must return at once."""
        self._context.progress.listen(listener)

    # -- tasks --------------------------------------------------------------------------------------------------

    def task_attempt(self, task: int, attempt: int = 0) -> Opening[TaskAttempt]:
        """Opens a task attempt in this process: ``async with job.task_attempt(task=0) as task: ...``.

        Raises:
            TaskError: This attempt of the task is open or committed in this Job. A retry needs another attempt number.
            JobNotFoundError: The job was cleaned up.
            JobDecidedError: The job is decided.
            JobStateError: This Job is being committed, or committed.
        """
        check_number(task, "task", "task_attempt")
        check_number(attempt, "attempt", "task_attempt")

        async def make() -> TaskAttempt:
            self._check_process("task_attempt")
            self._refuse_late(task)
            # Registered first: a commit that begins while the attempt is being opened must see it.
            left = self._attempts.begin(task, attempt)
            try:
                with self._advising():
                    return await make_attempt(
                        self._context,
                        task=task,
                        attempt=attempt,
                        owns_store=False,
                        committed=self._attempts.note,
                        left=left,
                    )
            except BaseException:
                left()
                raise

        return Opening(make, "job.task_attempt")

    def _refuse_late(self, task: int) -> None:
        """Refuses an attempt that this driver's own commit cannot wait for any more."""
        if self._state in ("being committed", "committed"):
            raise JobStateError(
                f"task {task} of job {self.job_id} came too late: in this process the job is {self._state}",
                operation="task_attempt",
                path=self.spec.destination,
                next_step="await all tasks before the job is committed, for example in an asyncio.TaskGroup inside the "
                "job's block; then run them again as a new job",
            )

    @noted
    async def abort_task(self, task: int, attempt: int) -> None:
        """Aborts and removes a task attempt of any process or host, by its ids alone.

        Raises:
            JobDecidedError, JobStateError: The job is decided or being committed, perhaps with this attempt.
            JobNotFoundError: The job is over, and its id was set up anew since; nothing was changed.
            CommitterError: Something could not be removed.
        """
        self._check_process("abort_task")
        request = AbortRequest(check_number(task, "task", "abort_task"), check_number(attempt, "attempt", "abort_task"))
        with self._advising():
            await self._committer.abort_task(fresh_statistics(self._context), request)
        self._attempts.forget(task, attempt)

    async def recover_task(self, task: int, attempt: int) -> TaskCommit:
        """Returns the message of a committed attempt that the driver lost (MapReduce's ``recoverTask``)."""
        self._check_process("recover_task")
        context = fresh_statistics(self._context)
        with self._advising():
            message = await self._committer.recover_task(
                context, check_number(task, "task", "recover_task"), check_number(attempt, "attempt", "recover_task")
            )
        self._attempts.note(message)
        return message

    # -- the job's end ------------------------------------------------------------------------------------------

    @noted
    async def commit(
        self,
        task_commits: Iterable[TaskCommit] | None = None,
        tasks: int | None = None,
        *,
        from_attempts: bool = False,
        publish_with: PublishPool | None = None,
    ) -> JobReport:
        """Makes the output of exactly the winners visible. A second call for the same tasks returns the same report.

        Args:
            task_commits: The messages of the winning attempts, one a task; an empty list means zero tasks. None
                takes every record listed (`delivery="listing"`), or the messages of this Job's own attempts if
                no other attempt committed (`delivery="message"`).
            tasks: The number of the job's tasks; the commit is refused if another number committed.
            from_attempts: With `tasks`, if the driver that had the messages is dead: the committed attempts win
                if there is exactly one of each task, from 0 to `tasks` - 1; else the commit is refused, and
                names those tasks.
            publish_with: Workers that publish the files of the decided job: `ExecutorPool`, or any object with
                the two methods of `PublishPool`. None publishes them from this process.

        Raises:
            TaskCommitsRequiredError: Other attempts committed too, and no messages name the winners; or with
                `from_attempts` several attempts of a task committed. The job stays undecided.
            TaskMissingError: The tasks that committed differ from those asked for, `task_commits` leaves out a task
                that committed in this Job, or an earlier commit decided the job with other tasks (see `outcome`).
            PreflightError, TargetExistsError, DestinationBusyError: Nothing was published.
            JobDecidedError: The job was aborted.
            JobRolledBackError: It was decided, then rolled back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
            CommitterError: With `outcome` "partial" the job is decided: call commit or `recover` again.
        """
        self._check_process("commit_job")
        self._is_left = False
        # Lets coroutines of the same gather or create_task start, so that they are seen below.
        await asyncio.sleep(0)
        async with self._committing:
            await self._stop_counting()
            with self._advising():
                async with self._with_abort_advice():
                    return await self._commit(task_commits, tasks, from_attempts=from_attempts, pool=publish_with)

    async def _commit(
        self,
        task_commits: Iterable[TaskCommit] | None,
        tasks: int | None,
        *,
        from_attempts: bool,
        pool: PublishPool | None,
    ) -> JobReport:
        messages = messages_in(task_commits)
        if self._report is not None:
            self._check_repeated(self._report, messages, tasks)
            return self._report
        if self._aborted:
            raise JobDecidedError(
                f"job {self.job_id} was aborted", operation="commit_job", next_step="run it again as a new job"
            )
        self._check_awaited("abort()", "abort_task(...)")
        if self._attempts.open:
            task, attempt = self._attempts.open[0]
            raise JobStateError(
                f"task attempts of job {self.job_id} are still open in this process: {len(self._attempts.open):,}, the "
                f"first: task {task}, attempt {attempt}",
                operation="commit_job",
                path=self.spec.destination,
                next_step="await every task, and leave every attempt's block before the job is committed; an attempt "
                "without a block ends with `await task.commit()` or `await task.abort()`",
            )
        if tasks is not None:
            check_number(tasks, "tasks", "commit_job")
        if from_attempts:
            messages = await messages_of_all_attempts(self._committer, self._context, messages, tasks)
        elif messages is None and self.spec.delivery == "message":
            messages = await self._attempts.only_ones(self._context)
        elif messages is not None:
            self._attempts.check_named(messages)
        if tasks is None and self._attempts.uncommitted:
            _log.warning(
                "job %s is committed without %s (the first: task %d), whose attempts in this process all failed or "
                "were aborted. commit(tasks=N) refuses such a commit",
                self.job_id,
                count(len(self._attempts.uncommitted), "task"),
                min(self._attempts.uncommitted),
            )
        context = self._context = as_new_driver(self._context)
        context.known.committed = self._attempts.committed
        context = replace(context, pool=checked_pool(pool))
        self._report = await self._committer.commit_job(context, messages, tasks)
        self._winners = None if messages is None else _attempts_of(messages)
        return self._report

    def _check_repeated(self, report: JobReport, messages: list[TaskCommit] | None, tasks: int | None) -> None:
        named = None if messages is None else _attempts_of(messages)
        asked = tasks if named is None or tasks is not None else len(named)
        other_attempts = None not in (named, self._winners) and named != self._winners
        refuse_other_tasks(report, self.spec.destination, asked, other_attempts=other_attempts)

    def _check_awaited(self, *calls: str) -> None:
        """Refuses to continue if one of these calls was made and never awaited."""
        forgotten = [call for call in self._calls.of(self) if call in calls]
        if forgotten:
            raise JobStateError(
                f"{forgotten[0]} of job {self.job_id} was called without await, so it did nothing",
                operation=forgotten[0].partition("(")[0],
                path=self.spec.destination,
                next_step=f"write `await job.{forgotten[0]}`; on a job that is still open, "
                "call it in `async with committer.attach_job(job.spec) as job`; else run the job again as a new one",
            )

    @noted
    async def abort(self) -> None:
        """Decides that the job never becomes visible, and removes it. Does nothing for a job that ended.

        Raises:
            JobDecidedError: The job is decided to be committed; nothing was deleted.
            CommitterError: Something could not be removed; the decision stands.
        """
        self._check_process("abort_job")
        self._is_left = False
        if self._report is not None or self._aborted:
            return
        await self._stop_counting()
        with self._advising():
            self._aborted = await self._committer.abort_job(fresh_statistics(self._context))
        self._abort_called = True

    async def plan(
        self, task_commits: Iterable[TaskCommit] | None = None, tasks: int | None = None, *, from_attempts: bool = False
    ) -> CommitPlan:
        """Returns what `commit` would do now, with the same arguments; changes nothing.

        With `delivery="message"` and no `task_commits` it takes this Job's own messages.

        Raises:
            TaskCommitsRequiredError, TaskMissingError: As `commit`.
        """
        self._check_process("plan")
        with self._advising():
            if from_attempts:
                task_commits = await messages_of_all_attempts(self._committer, self._context, task_commits, tasks)
            elif task_commits is None and self.spec.delivery == "message":
                task_commits = self._attempts.messages
            async with self._with_abort_advice():
                self._context.known.committed = self._attempts.committed
                return await self._committer.plan(fresh_statistics(self._context), task_commits, tasks)

    async def close(self) -> None:
        """Frees what this process opened; decides nothing."""
        self._check_process("close")
        self._is_left = False
        try:
            try:
                await self._stop_counting()
            finally:
                await self._context.store.close()
        finally:
            if self._display is not None:
                await self._display.close()

    async def _stop_counting(self) -> None:
        counting, self._counting = self._counting, None
        if counting is None or counting.done():
            return
        loop = counting.get_loop()
        if loop is asyncio.get_running_loop():
            counting.cancel()
            await asyncio.wait({counting})
            return
        # The job was opened on another loop, which may run in another thread, not at all, or be closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(counting.cancel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited:
            return
        try:
            if self._attached:
                if error is None and self._report is None and not self._abort_called:
                    self._check_awaited("commit()", "commit(...)", "abort()", "abort_task(...)")
                return
            if error is not None:
                await self._abort_after(error)
                return
            if self._report is None and not self._abort_called:
                try:
                    self._check_awaited("commit(...)")
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
            # The job's state is unknown, so nothing may be deleted (G8).
            error.add_note(f"job {self.job_id} was not aborted: it may be decided")
            return
        in_time = True
        was_aborted, begun = self._aborted, not (self._is_left or self._abort_called)

        async def end() -> None:
            await self.abort()
            if begun and self._report is None and not self._aborted:
                with suppress(CommitterError):
                    # This driver or another one ended the job; no note if the job no longer exists.
                    await self._committer.check_recovery(fresh_statistics(self._context), rollback=False, force=False)
                    how = with_options(self._context.recover_call(), self._reached)
                    error.add_note(
                        f"job {self.job_id} is committed: {how} finishes what is left, and returns its report"
                    )

        try:
            in_time = await run_shielded(end, bound_s=UNDO_BOUND_S)
        except CommitterError as failure:
            _log.warning("job %s was not aborted: %s", self.job_id, failure)
            say_it_is_left(self._context, failure, self._reached)
            say_it_is_left(self._context, error, self._reached)
            error.add_note(f"job {self.job_id} was not aborted: {failure}")
        if not in_time:
            error.add_note(f"aborting job {self.job_id} took over {UNDO_BOUND_S:.0f} s and was given up")
            say_it_is_left(self._context, error, self._reached)
        if self._aborted and not was_aborted and isinstance(error, CommitterError):
            error.next_step = without_the_end(error.next_step).replace(COMMIT_AGAIN, RUN_ANEW)


def _attempts_of(messages: list[TaskCommit]) -> set[tuple[int, int, str]]:
    return {(message.task, message.attempt, message.digest) for message in messages}
