"""The blocking Job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from committer import job as engine
from committer import job_opening
from committer.advice import tell_blocking_caller
from committer.committers.results import CommitPlan, JobReport
from committer.config import ConfigLike
from committer.errors import JobStateError
from committer.events import Listener
from committer.flow.one_process import OneProcess
from committer.paths import Destination
from committer.records.publish_chunk import PublishPool
from committer.records.task_commit import TaskCommit, messages_in
from committer.spec import Delivery, JobSpec
from committer.sync.portal import free_at_exit, is_ending, wait_for
from committer.sync.tasks import TaskAttempt

T = TypeVar("T")


class Job(OneProcess):
    """A job in its driver. Leaving its block commits it; leaving with an exception aborts it.

    Made by `open_job` (sets it up) or `attach_job` (joins one that stands; leaving the block then only closes). Several
    threads may use one Job. A forked child may not: there every method raises, and leaving the block does nothing, so
    that a child that ends inside it decides nothing for its parent. It cannot be pickled or copied; other processes
    take part by `spec`.

    Attributes:
        spec: What other processes need to take part: picklable, JSON, no secrets.
    """

    _refused = JobStateError
    _instead = (
        "give job.spec to the other process: committer.sync.open_task(spec, task=...) opens a task attempt there, "
        "committer.sync.attach_job(spec) the job"
    )

    is_commit_repeatable: bool = engine.Job.is_commit_repeatable
    """MapReduce's question: a commit that died is finished by `recover`, or by calling `commit` again."""

    is_recovery_supported: bool = engine.Job.is_recovery_supported
    """MapReduce's question: a driver that lost the message of a task attempt gets it again from `recover_task`."""

    def __init__(self, job: engine.Job) -> None:
        super().__init__()
        self.spec: JobSpec = job.spec
        self._job = job
        free_at_exit(self)

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self._job.job_id

    @property
    def report(self) -> JobReport | None:
        """The report, once the job committed."""
        return self._job.report

    def listen(self, listener: Listener) -> None:
        """Adds a listener for progress; it is called on the thread of the loop, and must return at once.

        It cannot call `committer.sync` itself, which is busy with what it hears about.
        """
        self._job.listen(listener)

    def task_attempt(self, task: int, attempt: int = 0) -> TaskAttempt:
        """Opens a task attempt in this process: ``with job.task_attempt(task=0) as task: ...``.

        Raises:
            JobNotFoundError: The job was cleaned up.
            JobDecidedError: The job is decided.
        """

        async def make() -> TaskAttempt:
            return TaskAttempt(await self._job.task_attempt(task, attempt))

        return self._wait(make, "task_attempt", undo=TaskAttempt._undo)

    def abort_task(self, task: int, attempt: int) -> None:
        """Removes a task attempt, of any process or host, by its ids alone.

        Raises:
            CommitterError: Something could not be removed.
        """
        self._wait(lambda: self._job.abort_task(task, attempt), "abort_task")

    def recover_task(self, task: int, attempt: int) -> TaskCommit:
        """The message of a task attempt that committed, for a driver that lost it (MapReduce's ``recoverTask``).

        Raises:
            TaskError: The attempt did not commit.
        """
        return self._wait(lambda: self._job.recover_task(task, attempt), "recover_task")

    def commit(
        self,
        task_commits: Iterable[TaskCommit] | None = None,
        tasks: int | None = None,
        *,
        from_attempts: bool = False,
        publish_with: PublishPool | None = None,
    ) -> JobReport:
        """Makes the output of exactly the winners visible. A second call returns the same report.

        An interrupt while it runs takes nothing back that is decided: `next_step` of what comes then, and
        `committer.sync.recover`, say how to go on.

        Args:
            task_commits: The messages of the attempts that win, one a task; an empty list means zero tasks. None takes
                every record listed (`delivery="listing"`), or the messages of this Job's own attempts if no other
                attempt committed (`delivery="message"`).
            tasks: How many tasks the job has; the commit is refused when another number committed.
            from_attempts: With `tasks`, where the driver that had the messages is dead: the attempts that committed win
                if there is exactly one of each task, from 0 to `tasks` - 1; else the commit is refused, and names those
                tasks.
            publish_with: Workers that publish the files, once the job is decided: `ExecutorPool`, or any object with
                the two methods of `PublishPool`. None publishes them from this process.

        Raises:
            TaskCommitsRequiredError: Others committed too, and no messages say who wins; or with `from_attempts`
                several attempts of a task committed. The job stays undecided.
            TaskMissingError, PreflightError, TargetExistsError, DestinationBusyError: Nothing was published.
            JobDecidedError: The job was aborted.
            JobRolledBackError: It was decided, then rolled back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
            CommitterError: With `outcome` "partial" the job is decided: call commit or `recover` again.
        """
        messages = messages_in(task_commits)  # on the caller's thread: what it gives may block, or call this module
        return self._wait(
            lambda: self._job.commit(messages, tasks, from_attempts=from_attempts, publish_with=publish_with), "commit"
        )

    def abort(self) -> None:
        """Decides that the job never becomes visible, and removes it. Does nothing for a job that ended.

        Raises:
            JobDecidedError: The job is decided to be committed; nothing was deleted.
            CommitterError: Something could not be removed; the decision stands.
        """
        self._wait(self._job.abort, "abort")

    def plan(
        self,
        task_commits: Iterable[TaskCommit] | None = None,
        tasks: int | None = None,
        *,
        from_attempts: bool = False,
    ) -> CommitPlan:
        """What `commit` would do now; changes nothing.

        Args:
            task_commits: As for `commit`; None with `delivery="message"` takes this Job's own messages.
            tasks: As for `commit`: another number is refused.
            from_attempts: As for `commit`.

        Raises:
            TaskCommitsRequiredError, TaskMissingError: As `commit` would.
        """
        messages = messages_in(task_commits)  # on the caller's thread: what it gives may block, or call this module
        return self._wait(lambda: self._job.plan(messages, tasks, from_attempts=from_attempts), "plan")

    def close(self) -> None:
        """Frees what this process opened; decides nothing. Interpreter exit does it too."""
        if not is_ending():
            self._wait(self._job.close, "close")

    if not TYPE_CHECKING:  # a type checker must go on refusing what this refuses

        async def __aenter__(self) -> None:
            raise TypeError(
                "use plain `with` for what committer.sync opens; `async with` goes with committer.open_job and "
                f"committer.attach_job. Job {self.job_id} stays as it is: "
                f"`committer.sync.cleanup({self.spec.destination!r}, job_id={self.job_id!r})` removes an undecided one"
            )

        async def __aexit__(self, *of: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited or (error is not None and is_ending()):
            return
        try:
            self._wait(lambda: self._job.__aexit__(kind, error, trace), "open_job")
        finally:
            tell_blocking_caller(error)

    def _told_as(self) -> str:
        return f"job {self.job_id}"

    async def _free(self) -> None:
        try:
            self._job._warn_if_left()
        finally:
            # Where warnings are errors, too.
            await self._job.close()

    async def _undo(self, interrupt: BaseException) -> None:
        await self._job.close()

    def _wait(
        self,
        function: Callable[[], Awaitable[T]],
        operation: str,
        *,
        undo: Callable[[T, BaseException], Awaitable[object]] | None = None,
    ) -> T:
        self._check_process(operation)
        return wait_for(function, operation, undo=undo)


def open_job(
    dest: Destination,
    *,
    job_id: str | None = None,
    committer: str | None = None,
    delivery: Delivery = "listing",
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> Job:
    """Sets a job up, and returns it open: ``with sync.open_job(dest) as job: ...`` commits it on a clean exit, else
    aborts it. Without ``with``, call `commit` or `abort`, then `close`.

    Args:
        dest: The directory to write to: a URI, or a path of this machine (``~`` is the home directory). Made
            when missing.
        job_id: 1 to 128 of ``A-Z a-z 0-9 . _ -``; a UUID when None.
        committer: The committer's name; the store's default when None: ``magic`` on S3, else ``manifest``.
        delivery: How the driver learns of task commits: ``listing``, or ``message`` for engines whose tasks return
            values, whose commit then names the winners.
        config: The job's choices: a `CommitterConfig`, or a mapping by field, as every function takes them.
        storage_options: How to reach the store. A live store or session given here is used on the loop of this module,
            and must not belong to another one.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable is told each event, on the thread of this module's loop.
        listeners: Called with each event of the job's progress, on the thread of that loop. With these or
            `progress`, one listing every five seconds counts the committed tasks until the job ends or is closed.

    Raises:
        JobExistsError: The id is in use at this destination.
        UnsupportedError: The store cannot do what the committer needs.
        ConfigurationError: An argument cannot be honoured.
    """
    opening = job_opening.open_job(
        dest,
        job_id=job_id,
        committer=committer,
        delivery=delivery,
        config=config,
        storage_options=storage_options,
        progress=progress,
        listeners=listeners,
    )

    async def make() -> Job:
        return Job(await opening)

    try:
        return wait_for(make, "open_job", undo=Job._undo)
    finally:
        opening.drop()


def attach_job(
    job: JobSpec | Destination,
    *,
    job_id: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> Job:
    """Joins a job that was set up before, by this engine or by Hadoop. Leaving its block only closes it.

    Args:
        job: Its spec, or its destination together with `job_id`.
        job_id: Its id, with a destination.
        config: Where reports and kept records go, `absolute_roots`, and the rate of calls from this process; all else
            is as the job was set up. For a job that Hadoop set up, all choices.
        storage_options: How to reach the store.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable is told each event, on the thread of this module's loop.
        listeners: Called with each event of the job's progress, on the thread of this module's loop. With these or
            `progress`, one listing every five seconds counts the committed tasks until the job ends or is closed.

    Raises:
        JobNotFoundError: There is no such job.
    """
    opening = job_opening.attach_job(
        job, job_id=job_id, config=config, storage_options=storage_options, progress=progress, listeners=listeners
    )

    async def make() -> Job:
        return Job(await opening)

    try:
        return wait_for(make, "attach_job", undo=Job._undo)
    finally:
        opening.drop()
