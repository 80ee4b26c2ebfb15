"""Job: what a driver holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Self

import anyio
import msgspec

from committer.advice import call
from committer.committers.advising import advising, shown_options
from committer.committers.context import fresh_statistics, of_spec, open_context
from committer.committers.find_job import find_job
from committer.committers.listing import refuse_unwritable_list
from committer.committers.opened_store import closed_on_failure, is_owned
from committer.committers.registry import committer_for, default_committer
from committer.committers.results import CommitPlan, JobReport
from committer.config import CommitterConfig, ConfigLike, config_of
from committer.errors import (
    COMMIT_AGAIN,
    CommitterError,
    ConfigurationError,
    JobDecidedError,
    JobStateError,
    StoreNotFoundError,
    TaskCommitsRequiredError,
    TaskError,
)
from committer.events import Listener, names
from committer.events.display import Display, watched
from committer.flow.awaited import Calls, noted
from committer.flow.runtime import current_runtime
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.layout import MANIFEST_SUFFIX, check_job_id, check_number
from committer.logs import job_logger
from committer.opening import Opening
from committer.paths import Destination, StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import Delivery, JobSpec
from committer.stages.abort_task import AbortRequest
from committer.stages.base import StageContext
from committer.stages.job_directory import join_job, look_at_job
from committer.stages.own_records import read_setup
from committer.stores.registry import find_store
from committer.task import TaskAttempt, make_attempt

_log = job_logger("committer.job")


RUN_ANEW = "run it again as a new job (this one was aborted when the error left its block)"


class Job:
    """A job in its driver. Leaving its block commits it; leaving with an exception aborts it.

    Made by `open_job` (sets it up) or `attach_job` (joins one that stands; leaving the block then only closes).

    Attributes:
        spec: What other processes need to take part: picklable, JSON, no secrets.
    """

    is_commit_repeatable = True
    """MapReduce's question: a commit that died is finished by `recover`, or by calling `commit` again."""

    is_recovery_supported = True
    """MapReduce's question: a driver that lost the message of a task attempt gets it again from `recover_task`."""

    def __init__(
        self, context: StageContext, *, attached: bool, display: Display | None = None, reached: str = ""
    ) -> None:
        self.spec: JobSpec = context.spec
        self._context = context
        # As in Hadoop's reports, which are written by the committer that set the job up.
        self._setup_statistics = context.statistics.snapshot().only(names.JOB_STAGE_SETUP)
        self._committer = committer_for(context.spec.committer)
        self._attached = attached
        self._display = display
        # As `shown_options` says it: the calls that errors advise need it.
        self._reached: str = reached
        self._own: dict[int, TaskCommit] = {}
        self._own_records: set[str] = set()
        self._open_attempts = 0
        self._report: JobReport | None = None
        self._aborted = False
        self._abort_called = False
        self._committing = asyncio.Lock()
        self._calls = Calls()

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
        """The report, once the job committed."""
        return self._report

    def _advising(self) -> AbstractContextManager[None]:
        return advising(lambda: self._reached)

    def listen(self, listener: Listener) -> None:
        """Adds a listener for progress; it is called on the event loop and must return at once."""
        self._context.progress.listen(listener)

    # -- tasks --------------------------------------------------------------------------------------------------

    def task_attempt(self, task: int, attempt: int = 0) -> Opening[TaskAttempt]:
        """Opens a task attempt in this process: ``async with job.task_attempt(task=0) as task: ...``.

        Raises:
            TaskError: This attempt of the task committed in this Job already: the second would replace its files.
            JobNotFoundError: The job was cleaned up.
            JobDecidedError: The job is decided.
        """
        check_number(task, "task")
        check_number(attempt, "attempt")

        async def make() -> TaskAttempt:
            self._refuse_committed(task, attempt)
            with self._advising():
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

        return Opening(make, "job.task_attempt")

    def _refuse_committed(self, task: int, attempt: int) -> None:
        """Refuses a loop that does not count its tasks: of several commits of one task the last alone would win."""
        message = self._own.get(task)
        if message is not None and message.attempt == attempt:
            raise TaskError(
                f"task {task} attempt {attempt} of job {self.job_id} committed already, with {message.files} files",
                operation="task_attempt",
                path=self.spec.destination,
                next_step="give each task a number of its own; to replace what this one wrote, give another attempt",
            )

    def _note(self, message: TaskCommit) -> None:
        self._own[message.task] = message
        self._own_records.add(StorePath.from_uri(message.record).name)

    def _note_left(self) -> None:
        self._open_attempts -= 1

    @noted
    async def abort_task(self, task: int, attempt: int) -> None:
        """Removes a task attempt, of any process or host, by its ids alone.

        Raises:
            JobDecidedError, JobStateError: The job is decided or being committed, perhaps with this attempt: it stays.
            CommitterError: Something could not be removed.
        """
        request = AbortRequest(check_number(task, "task"), check_number(attempt, "attempt"))
        message = self._own.get(task)
        with self._advising():
            await self._committer.abort_task(fresh_statistics(self._context), request)
        if message is not None and message.attempt == attempt:
            del self._own[task]

    async def recover_task(self, task: int, attempt: int) -> TaskCommit:
        """The message of a task attempt that committed, for a driver that lost it (MapReduce's ``recoverTask``).

        Raises:
            TaskError: The attempt did not commit.
        """
        context = fresh_statistics(self._context)
        with self._advising():
            message = await self._committer.recover_task(
                context, check_number(task, "task"), check_number(attempt, "attempt")
            )
        self._note(message)
        return message

    # -- the job's end ------------------------------------------------------------------------------------------

    @noted
    async def commit(
        self,
        task_commits: Iterable[TaskCommit] | None = None,
        tasks: int | None = None,
        *,
        from_attempts: bool = False,
    ) -> JobReport:
        """Makes the output of exactly the winners visible. A second call returns the same report.

        Args:
            task_commits: The messages of the attempts that win, one a task; an empty list means zero tasks. None takes
                every record listed (`delivery="listing"`), or the messages of this Job's own attempts if no other
                attempt committed (`delivery="message"`).
            tasks: How many tasks the job has; the commit is refused when another number committed.
            from_attempts: With `tasks`, where the driver that had the messages is dead: the attempts that committed win
                if there is exactly one of each task, from 0 to `tasks` - 1; else the commit is refused, and names those
                tasks.

        Raises:
            TaskCommitsRequiredError: Others committed too, and no messages say who wins; or with `from_attempts`
                several attempts of a task committed. The job stays undecided.
            TaskMissingError, PreflightError, TargetExistsError, DestinationBusyError: Nothing was published.
            JobDecidedError: The job was aborted.
            JobRolledBackError: It was decided, then rolled back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
            CommitterError: With `outcome` "partial" the job is decided: call commit or `recover` again.
        """
        async with self._committing:
            with self._advising():
                return await self._commit(task_commits, tasks, from_attempts=from_attempts)

    async def _commit(
        self, task_commits: Iterable[TaskCommit] | None, tasks: int | None, *, from_attempts: bool
    ) -> JobReport:
        if self._report is not None:
            return self._report
        if self._aborted:
            raise JobDecidedError(
                f"job {self.job_id} was aborted", operation="commit_job", next_step="run it again as a new job"
            )
        if self._calls.first(self) is not None:
            # A call in the same gather as this one is about to begin.
            await asyncio.sleep(0)
        self._check_awaited("abort()", "abort_task(...)")
        if self._open_attempts:
            raise JobStateError(
                f"{self._open_attempts} task attempts of job {self.job_id} are still open in this process",
                operation="commit_job",
                next_step="leave their blocks before the job is committed",
            )
        if tasks is not None:
            check_number(tasks, "tasks")
        if from_attempts:
            task_commits = await self._messages_of_attempts(task_commits, tasks)
        elif task_commits is None and self.spec.delivery == "message":
            task_commits = await self._own_messages()
        # Each try is a driver of its own: what an earlier one wrote and never heard of must not be overwritten.
        driver = current_runtime().nonce()
        context = self._context = replace(fresh_statistics(self._context), driver=driver)
        context.statistics.merge(self._setup_statistics)
        self._report = await self._committer.commit_job(context, task_commits, tasks)
        return self._report

    def _check_awaited(self, *calls: str) -> None:
        """Refuses to go on as if these calls had not been made, where one was made and never awaited."""
        forgotten = [call for call in self._calls.of(self) if call in calls]
        if forgotten:
            raise JobStateError(
                f"{forgotten[0]} of job {self.job_id} was called without await, so it did nothing",
                operation=forgotten[0].partition("(")[0],
                path=self.spec.destination,
                next_step=f"write `await job.{forgotten[0]}`; on a job that is still open, "
                "call it in `async with committer.attach_job(job.spec) as job`; else run the job again as a new one",
            )

    async def _messages_of_attempts(
        self, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> list[TaskCommit] | None:
        """The messages of the one committed attempt of each task; None for a job that is decided."""
        if task_commits is not None or tasks is None:
            raise ConfigurationError(
                "from_attempts takes the number of the job's tasks, and no messages",
                operation="commit_job",
                next_step="commit(from_attempts=True, tasks=...), or commit(task_commits=[...])",
            )
        if self.spec.delivery == "listing":
            # There a task has one record, whatever number of its attempts committed.
            return None
        found = await look_at_job(self._context.store, self._context.layout)
        if found.decided or found.ended:
            return None
        return await self._committer.recover_tasks(fresh_statistics(self._context), check_number(tasks, "tasks"))

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
                next_step="`await job.commit(task_commits=[...])` with the message of the winner of each task; or, if "
                "each of its N tasks committed once, `await job.commit(from_attempts=True, tasks=N)`; or abort it, and "
                'run it as a new job with delivery="listing", whose commit() takes what a listing finds. Until then '
                "the job stays open",
            )
        return list(self._own.values())

    @noted
    async def abort(self) -> None:
        """Decides that the job never becomes visible, and removes it. Does nothing for a job that ended.

        Raises:
            JobDecidedError: The job is decided to be committed; nothing was deleted.
            CommitterError: Something could not be removed; the decision stands.
        """
        if self._report is not None or self._aborted:
            return
        with self._advising():
            self._aborted = await self._committer.abort_job(fresh_statistics(self._context))
        self._abort_called = True

    async def plan(
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
        with self._advising():
            if from_attempts:
                task_commits = await self._messages_of_attempts(task_commits, tasks)
            elif task_commits is None and self.spec.delivery == "message":
                task_commits = list(self._own.values())
            return await self._committer.plan(fresh_statistics(self._context), task_commits, tasks)

    async def close(self) -> None:
        """Frees what this process opened; decides nothing."""
        try:
            await self._context.store.close()
        finally:
            if self._display is not None:
                await self._display.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            # What happened cannot be told, so nothing may be deleted (G8).
            error.add_note(f"job {self.job_id} was not aborted: it may be decided")
            return
        in_time = True
        was_aborted = self._aborted
        try:
            in_time = await run_shielded(self.abort, bound_s=UNDO_BOUND_S)
        except CommitterError as failure:
            _log.warning("job %s was not aborted: %s", self.job_id, failure)
            error.add_note(f"job {self.job_id} was not aborted: {failure}")
        if not in_time:
            error.add_note(f"aborting job {self.job_id} took over {UNDO_BOUND_S:.0f} s and was given up")
        if self._aborted and not was_aborted and isinstance(error, CommitterError):
            error.next_step = error.next_step.replace(COMMIT_AGAIN, RUN_ANEW)


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
) -> Opening[Job]:
    """Sets a job up; ``async with committer.open_job(dest) as job: ...`` commits it on a clean exit, else aborts it.

    ``job = await committer.open_job(dest)`` only sets it up; then ``await job.close()`` frees resources and decides
    nothing.

    Args:
        dest: The directory to write to: a URI, or a path of this machine. Made when missing.
        job_id: 1 to 128 of ``A-Z a-z 0-9 . _ -``; a UUID when None.
        committer: The committer's name; the store's default when None: ``magic`` on S3, else ``manifest``.
        delivery: How the driver learns of task commits: ``listing``, or ``message`` for engines whose tasks return
            values, whose commit then names the winners.
        config: The job's choices: a `CommitterConfig`, or a mapping by field, as every function takes them.
        storage_options: How to reach the store.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable is told each event, on the event loop, and must return at once.
        listeners: Called with each event of the job's progress.

    Raises:
        JobExistsError: The id is in use at this destination.
        UnsupportedError: The store cannot do what the committer needs.
        ConfigurationError: An argument cannot be honoured.
    """
    if delivery not in ("listing", "message"):
        raise ConfigurationError(
            f"delivery is 'listing' or 'message', not {delivery!r}",
            operation="open_job",
            next_step="leave it out: then the driver lists what its tasks committed",
        )
    told, display = watched(progress, listeners)
    destination, choices = StorePath.of(dest), config_of(config)
    if committer is not None:
        committer_for(committer)

    async def make() -> Job:
        store, owned = await find_store(destination, storage_options), is_owned(storage_options)
        async with closed_on_failure(store, owned=owned):
            chosen = committer_for(committer or default_committer(store.capabilities))
            spec = JobSpec(
                destination=destination.uri,
                job_id=check_job_id(job_id if job_id is not None else current_runtime().uuid()),
                committer=chosen.name,
                delivery=delivery,
                config=choices or CommitterConfig(),
            )
            refuse_unwritable_list(spec.config)
            context = await open_context(spec, store, owned=owned, listeners=told)
        spec = msgspec.structs.replace(spec, setup=context.driver)
        context = replace(context, spec=spec, layout=spec.layout)
        reached = shown_options(destination, storage_options)
        try:
            with advising(lambda: reached):
                identity = await chosen.setup_job(context)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await context.store.close()
                if display is not None:
                    await display.close()
            raise
        _log.info(
            "job %s is open at %s: committer %s, task commits by %s",
            spec.job_id,
            spec.destination,
            spec.committer,
            spec.delivery,
            extra={"job": spec.job_id},
        )
        context = replace(context, setup_identity=identity, proved=True)
        return Job(context, attached=False, display=display, reached=reached)

    return Opening(make, "open_job")


def attach_job(
    job: JobSpec | Destination,
    *,
    job_id: str | None = None,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> Opening[Job]:
    """Joins a job that was set up before, by this engine or by Hadoop. Leaving its block only closes it.

    Args:
        job: Its spec, or its destination together with `job_id`.
        job_id: Its id, with a destination.
        config: Where reports and kept records go, `absolute_roots`, and the rate of calls from this process; all else
            is as the job was set up. For a job that Hadoop set up, all choices.
        storage_options: How to reach the store.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable is told each event, on the event loop, and must return at once.
        listeners: Called with each event of the job's progress.

    Raises:
        JobNotFoundError: There is no such job.
    """
    choices = config_of(config)
    told, display = watched(progress, listeners)
    if isinstance(job, JobSpec):
        known, destination, wanted = job, StorePath.from_uri(job.destination), job.job_id
    else:
        if job_id is None:
            raise ConfigurationError(
                "attach_job needs a JobSpec, or a destination and job_id",
                operation="attach_job",
                path=job,
                next_step=f"{call('attach_job', str(job), job_id='ID')}, or attach_job(spec); "
                f"{call('list_jobs', str(job))} shows the ids that are there",
            )
        known, destination, wanted = None, StorePath.of(job), job_id

    async def make() -> Job:
        identity: str | None = None
        context: StageContext | None = None
        store, owned = await find_store(destination, storage_options), is_owned(storage_options)
        reached = shown_options(destination, storage_options)
        try:
            with advising(lambda: reached):
                if known is not None and known.hadoop:
                    spec = known if choices is None else msgspec.structs.replace(known, config=choices)
                else:
                    given = choices if choices is not None or known is None else known.config
                    spec, identity = await find_job(store, destination, wanted, config=given)
                context = await open_context(spec, store, owned=owned, listeners=told)
                context = replace(context, setup_identity=identity)
                if spec.hadoop:
                    # Of every other its setup record was just read.
                    found = await join_job(context.store, context.layout)
                    if found.set_up:
                        # This engine set it up: what it moves aside must lie where a recoverer looks.
                        setup = (await read_setup(context.store, context.layout)).spec.setup
                        context = of_spec(context, msgspec.structs.replace(spec, setup=setup))
        except BaseException:
            with anyio.CancelScope(shield=True):
                if context is not None:
                    await context.store.close()
                elif owned:
                    await store.close()
                if display is not None:
                    await display.close()
            raise
        _log.debug("job %s at %s is joined", spec.job_id, spec.destination, extra={"job": spec.job_id})
        return Job(context, attached=True, display=display, reached=reached)

    return Opening(make, "attach_job")
