"""The committers that a run can drive: the engine's own, and models of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import committer
from committer import Job, JobReport, JobSpec, TaskAttempt, TaskCommit
from committer.testing.simulate.file_output import ModelJob, ModelName, ModelTask
from committer.testing.simulate.process import Process
from committer.testing.simulate.scenario import CommitterName, JobPlan

if TYPE_CHECKING:
    from committer.testing.simulate.job_run import JobRun
    from committer.testing.simulate.simulation import Simulation


_MODELS: Mapping[CommitterName, ModelName] = {"file-v1": "file-v1", "file-v2": "file-v2", "direct": "direct"}


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


class _EngineJob(DrivenJob):
    def __init__(self, job: Job) -> None:
        self.spec = job.spec
        self._job = job

    async def commit(self, messages: list[TaskCommit] | None, tasks: int | None) -> JobReport:
        return await self._job.commit(messages, tasks=tasks)

    async def abort_task(self, task: int, attempt: int) -> None:
        await self._job.abort_task(task, attempt)


class _EngineWriting(Writing):
    def __init__(self, task: TaskAttempt) -> None:
        self._task = task

    async def write(self, name: str, data: bytes) -> None:
        async with self._task.open(name) as file:
            await file.write(data)

    def message(self) -> TaskCommit:
        return self._task.task_commit


class _ModelJob(DrivenJob):
    def __init__(self, model: ModelJob, simulation: Simulation, plan: JobPlan) -> None:
        self.spec = None
        self._model = model
        self._watch = simulation.checker.jobs[plan.job_id]

    async def commit(self, messages: list[TaskCommit] | None, tasks: int | None) -> JobReport:
        self._watch.decide()
        report = await self._model.commit()
        self._watch.commit()
        await self._model.mark()
        return report

    async def abort_task(self, task: int, attempt: int) -> None:
        await self._model.abort_task(task, attempt)


class _ModelWriting(Writing):
    def __init__(self, task: ModelTask) -> None:
        self._task = task

    async def write(self, name: str, data: bytes) -> None:
        await self._task.write(name, data)

    def message(self) -> TaskCommit:
        return self._task.message


@asynccontextmanager
async def open_driven(simulation: Simulation, plan: JobPlan, process: Process) -> AsyncIterator[DrivenJob]:
    """Sets a job up; leaving the block with an error aborts it."""
    destination = simulation.world.destination
    model_name = _MODELS.get(plan.committer)
    if model_name is not None:
        async with ModelJob(process, destination, plan.job_id, model_name) as model:
            yield _ModelJob(model, simulation, plan)
        return
    async with committer.open_job(
        destination,
        job_id=plan.job_id,
        delivery=plan.delivery,
        config=plan.config,
        storage_options={"store": process},
    ) as job:
        yield _EngineJob(job)


@asynccontextmanager
async def open_writing(
    simulation: Simulation, job: JobRun, task: int, attempt: int, process: Process
) -> AsyncIterator[Writing]:
    """Opens a task attempt; leaving the block commits it, with an error aborts it."""
    plan = job.plan
    model_name = _MODELS.get(plan.committer)
    if model_name is not None:
        destination = simulation.world.destination
        async with ModelTask(process, destination, plan.job_id, model_name, task, attempt) as model:
            yield _ModelWriting(model)
        return
    if job.spec is None:
        raise RuntimeError("no attempt starts before its job is set up")
    async with committer.open_task(job.spec, task=task, attempt=attempt, storage_options={"store": process}) as opened:
        yield _EngineWriting(opened)
