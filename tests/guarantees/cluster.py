"""An engine in miniature: a driver and executors, each a process of its own, and what can go wrong in them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import committer
from committer import CommitterConfig, JobReport, TaskCommit
from committer.errors import CommitterError
from committer.spec import Delivery, JobSpec
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.guarantees.checker import OUT, Attempt, Checker, Ledger, World

JOB_ID = "j1"

Trouble: TypeAlias = FaultKind | Literal["permanent", "cancel"]
Intruder: TypeAlias = Callable[["Cluster"], Awaitable[None]]


class TaskFailedError(Exception):
    """The user's own code failed."""


class Died(Exception):
    """A process died."""


@dataclass(frozen=True)
class Plan:
    """One job: what it is told and what its tasks write."""

    delivery: Delivery = "listing"
    config: CommitterConfig = field(default_factory=CommitterConfig)
    tasks: int = 3
    files: int = 4
    directories: int = 3
    retried: int | None = 1
    before: dict[str, bytes] = field(default_factory=dict)

    def names(self, task: int) -> list[str]:
        return [
            f"day={number % self.directories}/part-{task}-{number}.csv" for number in range(self.files)
        ]


def content(task: int, attempt: int, name: str) -> bytes:
    """What an attempt writes: other bytes than any other attempt, the same number of them."""
    return f"task {task} attempt {attempt} writes {name}\n".encode()


@dataclass
class Cluster:
    """Processes that share a world, with trouble at one of their calls.

    Attributes:
        world: Where everything lies.
        plan: The job.
        at: Number of the call that trouble hits, counted over all processes; 0 for none.
        trouble: What happens there: a fault, a cancellation of the driver, or something that somebody else does.
        calls: Calls so far.
    """

    world: World
    plan: Plan
    at: int = 0
    trouble: Trouble | Intruder | None = None
    steps: bool = True
    calls: int = 0
    hit: Call | None = None
    commit_began: int = 0

    def __post_init__(self) -> None:
        for name, data in self.plan.before.items():
            self.world.write(name, data)
        self.ledger = Ledger(self.plan.tasks, self.plan.config)
        self.checker = Checker(self.world, self.ledger, JOB_ID)
        self.processes: list[FaultyStore] = []
        self.driver: asyncio.Task[object] | None = None
        self.messages: list[TaskCommit] = []
        self.broken: Exception | None = None

    def process(self, faults: list[Fault] | None = None) -> FaultyStore:
        """Starts a process."""
        store = FaultyStore(self.world.store(), faults or (), before_call=None)

        async def before(call: Call) -> None:
            await self._before(store, call)

        store.before_call = before
        self.processes.append(store)
        return store

    async def _before(self, store: FaultyStore, call: Call) -> None:
        self.calls += 1
        if self.calls == self.at and self.hit is None:
            self.hit = call
            trouble = self.trouble
            if callable(trouble):
                try:
                    await trouble(self)
                except Exception as error:
                    self.broken = self.broken or error
            elif trouble == "permanent":
                path = call.path
                store.faults.append(
                    Fault(kind="forbidden", operation=call.operation, path=lambda other: other == path, times=None)
                )
            elif trouble == "cancel":
                assert self.driver is not None
                self.driver.cancel()
            elif trouble is not None:
                store.faults.append(Fault(kind=trouble, call=call.number))
        if self.steps:
            self.check_step()

    def check_step(self) -> None:
        # Raised inside the engine it might be swallowed; it is kept for the end.
        if self.broken is None:
            try:
                self.checker.step()
            except AssertionError as error:
                self.broken = error

    # -- the engine -------------------------------------------------------------------------------------------------

    async def run(self, *, abort_on_error: bool = True) -> JobReport:
        """Runs the job as an engine would: a task that fails is run again, a driver that fails aborts."""
        options = {"store": self.process()}
        job = await committer.open_job(
            self.world.destination, job_id=JOB_ID, delivery=self.plan.delivery, config=self.plan.config,
            storage_options=options,
        )
        if not abort_on_error:
            await self.run_tasks(job.spec)
            self.commit_began = self.commit_began or self.calls + 1
            return await job.commit(self.named(), tasks=self.plan.tasks)
        self.spec = job.spec
        async with job:
            await self.run_tasks(job.spec)
            self.commit_began = self.commit_began or self.calls + 1
            return await job.commit(self.named(), tasks=self.plan.tasks)

    def named(self) -> list[TaskCommit] | None:
        """What the driver names as winners."""
        if self.plan.delivery == "listing":
            return None
        self.ledger.named = {message.task: message.attempt for message in self.messages}
        return self.messages

    async def run_tasks(self, spec: JobSpec) -> None:
        for task in range(self.plan.tasks):
            for attempt in range(4):
                message = await self.run_attempt(spec, task, attempt)
                if message is not None:
                    self.messages.append(message)
                    break
            else:
                raise TaskFailedError(f"task {task} failed four times")

    async def run_attempt(self, spec: JobSpec, task: int, attempt: int) -> TaskCommit | None:
        noted = Attempt(task, attempt, {name: content(task, attempt, name) for name in self.plan.names(task)})
        written = 0
        store = self.process()
        try:
            async with committer.open_task(
                spec, task=task, attempt=attempt, storage_options={"store": store}
            ) as writer:
                for name, data in noted.files.items():
                    if attempt == 0 and task == self.plan.retried and written == 2:
                        raise TaskFailedError
                    async with writer.open(name) as file:
                        await file.write(data)
                    written += 1
            noted.state = "committed"
            return writer.task_commit
        except TaskFailedError:
            return None
        except CommitterError as error:
            noted.state = "unknown" if error.outcome == "unknown" and written == len(noted.files) else "failed"
            return None
        except BaseException:
            if not store.crashed:
                raise
            noted.state = "unknown" if written == len(noted.files) else "failed"
            return None
        finally:
            self.ledger.note(noted)
