"""Committers that a run can drive beside the engine's own: models of FileOutputCommitter, and writing in place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from committer import JobReport, JobSpec, TaskCommit
from committer_testing.simulate.committers import ENGINE_COMMITTERS, DrivenCommitter, DrivenJob, Writing
from committer_testing.simulate.process import Process
from committer_testing.simulate.result import Result
from committer_testing.simulate.run import Run
from committer_testing.simulate.scenario import JobPlan, Scenario
from committer_testing.simulate.simulation import simulate
from committer_testing.simulate.watch import JobWatch
from tests.simulate.file_output import ModelJob, ModelName, ModelTask


class _ModelJob(DrivenJob):
    def __init__(self, model: ModelJob, watch: JobWatch) -> None:
        self.spec = None
        self._model = model
        self._watch = watch

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


class ModelCommitter(DrivenCommitter):
    """A model, by its name."""

    def __init__(self, name: ModelName) -> None:
        self._name = name

    @asynccontextmanager
    async def open_job(self, run: Run, plan: JobPlan, process: Process) -> AsyncIterator[DrivenJob]:
        async with ModelJob(process, run.world.destination, plan.job_id, self._name) as model:
            yield _ModelJob(model, run.checker.jobs[plan.job_id])

    @asynccontextmanager
    async def open_task(
        self, run: Run, plan: JobPlan, spec: JobSpec | None, task: int, attempt: int, process: Process
    ) -> AsyncIterator[Writing]:
        async with ModelTask(process, run.world.destination, plan.job_id, self._name, task, attempt) as model:
            yield _ModelWriting(model)


MODELS: tuple[ModelName, ...] = ("file-v1", "file-v2", "direct")
COMMITTERS: Mapping[str, DrivenCommitter] = {
    **ENGINE_COMMITTERS,
    **{name: ModelCommitter(name) for name in MODELS},
}


def simulate_any(scenario: Scenario) -> Result:
    """Runs a scenario whose jobs may name a model."""
    return simulate(scenario, COMMITTERS)
