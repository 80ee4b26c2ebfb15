"""How a run drives a committer: the engine's own here, models of others where they are tested."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import committer
from committer import Job, JobReport, JobSpec, TaskAttempt, TaskCommit
from committer_testing.simulate.process import Process
from committer_testing.simulate.run import Run
from committer_testing.simulate.scenario import ENGINE, STAGING, JobPlan
from committer_testing.simulate.workers import WorkerPool


class DrivenJob(ABC):
    """What a driver does with a job, whatever its committer."""

    spec: JobSpec | None

    @abstractmethod
    async def commit(self, messages: list[TaskCommit] | None, tasks: int | None) -> JobReport:
        """Commits the job."""

    @abstractmethod
    async def abort_task(self, task: int, attempt: int) -> None:
        """Aborts an attempt of any executor."""


class Writing(ABC):
    """What an executor does with a task attempt."""

    @abstractmethod
    async def write(self, name: str, data: bytes) -> None:
        """Writes one file."""

    @abstractmethod
    def message(self) -> TaskCommit:
        """What tells the driver that it committed."""


class DrivenCommitter(ABC):
    """A committer that the jobs of a run can name."""

    @abstractmethod
    def open_job(self, run: Run, plan: JobPlan, process: Process) -> AbstractAsyncContextManager[DrivenJob]:
        """Sets a job up; leaving the block with an error aborts it."""

    @abstractmethod
    def open_task(
        self, run: Run, plan: JobPlan, spec: JobSpec | None, task: int, attempt: int, process: Process
    ) -> AbstractAsyncContextManager[Writing]:
        """Opens a task attempt; leaving the block commits it, with an error aborts it."""


class _EngineJob(DrivenJob):
    def __init__(self, job: Job, run: Run, plan: JobPlan, driver: str) -> None:
        self.spec = job.spec
        self._job = job
        self._run = run
        self._plan = plan
        self._driver = driver
        self._tries = 0

    async def commit(self, messages: list[TaskCommit] | None, tasks: int | None) -> JobReport:
        self._tries += 1
        pool = WorkerPool(self._run, self._plan, f"{self._driver}.{self._tries}") if self._plan.workers else None
        return await self._job.commit(messages, tasks=tasks, publish_with=pool)

    async def abort_task(self, task: int, attempt: int) -> None:
        await self._job.abort_task(task, attempt)


class _EngineWriting(Writing):
    def __init__(self, task: TaskAttempt) -> None:
        self._task = task

    async def write(self, name: str, data: bytes) -> None:
        async with (self._task.open_absolute if name.startswith("/") else self._task.open)(name) as file:
            await file.write(data)

    def message(self) -> TaskCommit:
        return self._task.task_commit


class EngineCommitter(DrivenCommitter):
    """One of the engine's committers.

    Args:
        name: Which; that for the store of the run when None.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @asynccontextmanager
    async def open_job(self, run: Run, plan: JobPlan, process: Process) -> AsyncIterator[DrivenJob]:
        """See `DrivenCommitter.open_job`."""
        async with committer.open_job(
            run.world.destination,
            job_id=plan.id,
            committer=self._name,
            delivery=plan.delivery,
            config=run.config_of(plan),
            storage_options={"store": process},
        ) as job:
            yield _EngineJob(job, run, plan, process.name)

    @asynccontextmanager
    async def open_task(
        self, run: Run, plan: JobPlan, spec: JobSpec | None, task: int, attempt: int, process: Process
    ) -> AsyncIterator[Writing]:
        """See `DrivenCommitter.open_task`."""
        if spec is None:
            raise RuntimeError("no attempt starts before its job is set up")
        async with committer.open_task(spec, task=task, attempt=attempt, storage_options={"store": process}) as opened:
            yield _EngineWriting(opened)


ENGINE_COMMITTERS: Mapping[str, DrivenCommitter] = {
    name: EngineCommitter(name if name in STAGING else None) for name in sorted(ENGINE)
}
"""The engine's own committers, by name."""
