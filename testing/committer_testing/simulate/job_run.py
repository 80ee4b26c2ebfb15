"""A job as an engine runs it: a driver, executors, attempts that fail, come late or are given up too early."""

from __future__ import annotations

import asyncio

import committer
from committer import CommitterError, Job, JobReport, JobSpec, TaskCommit
from committer.errors import DestinationBusyError, TaskMissingError
from committer.file_names import unique_name
from committer.flow.misuse import Opening
from committer_testing.simulate.committers import DrivenCommitter, DrivenJob
from committer_testing.simulate.ledger import Attempt, Ledger
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run, is_crash
from committer_testing.simulate.scenario import ENGINE, AttemptPlan, JobPlan
from committer_testing.simulate.strays import go_on_writing

MOST_ATTEMPTS = 4
_GIVEN_UP_AFTER_S = 40.0
_BUSY_TRIES = 4


class TaskFailedError(Exception):
    """The user's own code failed."""


class JobRun:
    """One job of a run.

    Args:
        run: The run.
        plan: The job.
        committer: What runs the job's committer.

    Attributes:
        plan: The job.
        ledger: What its attempts did.
        messages: The message of each task's winner, as far as the driver heard.
        heard: The messages of all attempts that it heard of, by task.
        spec: What attempts need; there once the job is set up.
        process: The driver's process.
        driver: The driver itself.
        commit_begins: Set when the driver begins to commit.
        aborting: Whether the driver aborted a task attempt by its ids, whose record may then be missing.
    """

    def __init__(self, run: Run, plan: JobPlan, committer: DrivenCommitter) -> None:
        self.plan = plan
        self.ledger: Ledger = run.ledgers[plan.job_id]
        self.messages: dict[int, TaskCommit] = {}
        self.heard: dict[int, list[TaskCommit]] = {}
        self.spec: JobSpec | None = None
        self.process: Process | None = None
        self.driver: asyncio.Task[object] | None = None
        self.commit_begins: asyncio.Event = asyncio.Event()
        self.aborting: bool = False
        self._run = run
        self._committer = committer

    @property
    def is_heard(self) -> bool:
        """Whether the driver has a message of every task."""
        return len(self.messages) == self.plan.tasks

    def named(self) -> list[TaskCommit] | None:
        """The messages that a driver gives when it commits."""
        if self.plan.delivery == "listing" and not self.plan.names_winners:
            return None
        self.ledger.named = {message.task: message.attempt for message in self.messages.values()}
        return [self.messages[task] for task in sorted(self.messages)]

    def other_winners(self) -> list[TaskCommit]:
        """The messages of another driver: of each task that of the attempt that was heard of last."""
        chosen = [self.heard[task][-1] for task in sorted(self.messages)]
        self.ledger.others.append({message.task: message.attempt for message in chosen})
        return chosen

    def told_tasks(self) -> int | None:
        """How many tasks a driver says there are."""
        return self.plan.tasks if self.plan.says_tasks else None

    def attach(self, process: Process) -> Opening[Job]:
        """Has another process go on with what stands under the job's id."""
        return committer.attach_job(
            self._run.world.destination,
            job_id=self.plan.id,
            config=self._run.vouched(self.plan),
            storage_options={"store": process},
        )

    def attach_as_set_up(self, process: Process) -> Opening[Job]:
        """Has another process go on with the job, by its spec where its id alone may mean another job."""
        if not self.ledger.shared_id or self.spec is None:
            return self.attach(process)
        return committer.attach_job(self.spec, storage_options={"store": process})

    # -- the driver -----------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Waits for its time, then sets the job up, runs its tasks, commits; a failure aborts it."""
        await asyncio.sleep(self.plan.starts_s)
        await self.drive_as(f"{self.plan.job_id}.driver")

    async def drive_as(self, name: str) -> None:
        """Sets the job up, runs its tasks, commits; a failure aborts it."""
        self.process = Process(name, self._run, job_id=self.plan.id, setup=self.plan.job_id)
        self.driver = asyncio.current_task()
        self.process.cancel = None if self.driver is None else self.driver.cancel
        try:
            async with self._committer.open_job(self._run, self.plan, self.process) as job:
                self.spec = job.spec
                await self._run_tasks(job)
                report = await self._commit(job)
                if report.success:
                    self._run.claim(name, self.plan.job_id, "committed")
                    self._check_count(name, report)
        except (CommitterError, TaskFailedError) as error:
            self._run.judge(name, self.plan.job_id, error)
            self._judge_missing(error)
        finally:
            self.commit_begins.set()

    async def _commit(self, job: DrivenJob) -> JobReport:
        self.begin_commit()
        for tries_left in reversed(range(_BUSY_TRIES)):
            try:
                return await job.commit(self.named(), self.told_tasks())
            except DestinationBusyError as error:
                self._run.judge(f"{self.plan.job_id}.driver", self.plan.job_id, error)
                if not tries_left:
                    raise
                await asyncio.sleep(2.0)
        raise AssertionError("not reached")

    def begin_commit(self) -> None:
        """A driver commits from now on."""
        if self.ledger.commit_began is None:
            self.ledger.commit_began = asyncio.get_running_loop().time()
        self.commit_begins.set()

    def _check_count(self, who: str, report: JobReport) -> None:
        expected = self.plan.tasks * self.plan.files
        told = self.plan.committer in ENGINE and self._run.is_alone(who)
        if told and report.files_committed != expected:
            self._run.find("G9", f"{who} reports {report.files_committed} of {expected} files")

    def _judge_missing(self, error: BaseException) -> None:
        """A task that told its driver that it committed must not be missing, unless another driver may have decided."""
        if isinstance(error, TaskMissingError) and error.outcome != "unknown" and self.is_heard and not self.aborting:
            self._run.find("G1, G3", f"every task of {self.plan.job_id} committed, and yet: {error.message}")

    # -- tasks ----------------------------------------------------------------------------------------------------

    async def _run_tasks(self, job: DrivenJob) -> None:
        running = [asyncio.ensure_future(self._run_task(job, task)) for task in range(self.plan.tasks)]
        try:
            await asyncio.gather(*running)
        finally:
            for one in running:
                one.cancel()

    async def _run_task(self, job: DrivenJob, task: int) -> None:
        """Starts attempts until one is heard of: after a failure at once, beside a slow one when patience is over."""
        loop = asyncio.get_running_loop()
        live: dict[asyncio.Future[TaskCommit | None], int] = {}
        for attempt in range(MOST_ATTEMPTS):
            heard: asyncio.Future[TaskCommit | None] = loop.create_future()
            live[heard] = attempt
            self._run.start(self._executor(task, attempt, heard))
            if self.plan.twice and attempt == 0:
                # The driver does not wait for it, and goes by the other one.
                self._run.start(self._executor(task, MOST_ATTEMPTS, loop.create_future()))
            last = attempt == MOST_ATTEMPTS - 1
            if await self._hear(task, live, _GIVEN_UP_AFTER_S if last else self.plan.patience_s):
                return
            if self.plan.aborts_lost:
                # Whatever it says from now on is not listened to.
                live.pop(heard, None)
                await self._abort_attempt(job, task, attempt)
        raise TaskFailedError(f"task {task} failed {MOST_ATTEMPTS} times")

    async def _hear(self, task: int, live: dict[asyncio.Future[TaskCommit | None], int], patience_s: float) -> bool:
        """Waits for the first message; False when all failed, or patience is over."""
        while live:
            done, _ = await asyncio.wait(live, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return False
            for heard in sorted(done, key=live.__getitem__):
                message = heard.result()
                del live[heard]
                if message is not None:
                    self.messages[task] = message
                    return True
        return False

    async def _abort_attempt(self, job: DrivenJob, task: int, attempt: int) -> None:
        self.aborting = True
        try:
            await job.abort_task(task, attempt)
        except CommitterError as error:
            self._run.judge(f"{self.plan.job_id}.driver", self.plan.job_id, error)

    async def _executor(self, task: int, attempt: int, heard: asyncio.Future[TaskCommit | None]) -> None:
        """Runs an attempt and tells the driver, unless the message is lost on the way or the executor dies."""
        plan = self._run.scenario.attempt(self.plan, task, attempt)
        message = None
        try:
            message = await self.run_attempt(task, attempt, plan)
        except BaseException as error:
            if not is_crash(error):
                raise
        if message is not None and self.plan.strays and self.spec is not None:
            self._run.start(self._go_on(self.spec, message, self.plan.names(task, attempt)))
        if message is not None and plan.heard_after_s:
            await asyncio.sleep(plan.heard_after_s)
        if message is not None:
            self.heard.setdefault(task, []).append(message)
        if not (heard.done() or (plan.unheard and message is not None)):
            heard.set_result(message)

    async def _go_on(self, spec: JobSpec, message: TaskCommit, names: list[str]) -> None:
        """Has an attempt write on that committed."""
        own = spec.layout.task_attempt_directory(message.task, message.attempt, message.nonce)
        directories = sorted({own / name.rpartition("/")[0] for name in names if not name.startswith("/")})
        name = f"{self.plan.job_id}.t{message.task}.{message.attempt}.on"
        await go_on_writing(self._run, name, self.plan.id, self.plan.job_id, directories)

    def _named(self, name: str) -> str:
        """The name that a file gets: where the store deletes by name it holds the setup's nonce."""
        by_name = self._run.world.store().capabilities.deletes_by_name
        return unique_name(name, self.spec.layout.name_token) if by_name and self.spec is not None else name

    async def run_attempt(self, task: int, attempt: int, plan: AttemptPlan) -> TaskCommit | None:
        """Runs one attempt in a process of its own; None when it did not commit."""
        files = self.plan.files_of(task, attempt)
        noted = Attempt(task, attempt, {self._named(name): data for name, data in files.items()}, "writing")
        self.ledger.note(noted)
        name = f"{self.plan.job_id}.t{task}.{attempt}"
        process = Process(name, self._run, job_id=self.plan.id, setup=self.plan.job_id)
        process.attempt, process.freezes_at, process.freezes_s = noted, plan.freezes_at, plan.freezes_s
        loop = asyncio.get_running_loop()
        try:
            async with self._committer.open_task(self._run, self.plan, self.spec, task, attempt, process) as writing:
                process.partitioned_until = loop.time() + plan.partitioned_s
                for number, (path, data) in enumerate(files.items()):
                    await asyncio.sleep(plan.works_s)
                    if plan.fails and number == len(files) // 2:
                        raise TaskFailedError(f"attempt {attempt} of task {task} fails")
                    await writing.write(path, data)
                noted.began, noted.state = loop.time(), "unknown"
            noted.state = "committed"
            return writing.message()
        except (CommitterError, TaskFailedError) as error:
            self._run.judge(name, self.plan.job_id, error)
            definite = isinstance(error, TaskFailedError) or error.outcome != "unknown"
            if noted.state != "unknown" or definite:
                noted.state = "failed"
            return None
        except BaseException:
            if noted.state != "unknown":
                noted.state = "failed"
            raise
        finally:
            noted.ended = loop.time()
