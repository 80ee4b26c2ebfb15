"""An engine in miniature: a driver and executors, each a process of its own, and what can go wrong in them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import committer
from committer import CommitterConfig, JobReport, JobSpec, TaskCommit
from committer.errors import CommitterError
from committer.flow.runtime import Runtime
from committer.spec import Delivery
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore
from committer_testing.simulate.checker import Checker
from committer_testing.simulate.ledger import Attempt, Ledger
from committer_testing.simulate.worlds import World

JOB_ID = "j1"
MOST_ATTEMPTS = 4


class TaskFailedError(Exception):
    """The user's own code failed."""


@dataclass(frozen=True)
class Plan:
    """A job: its configuration, the files of its tasks, the files that exist before.

    Attributes:
        delivery: How the driver learns of task commits.
        config: The job's choices.
        tasks: How many there are.
        files: Files that each task writes into the directories, in turn.
        directories: Directories that each task writes to.
        retried: A task whose first attempt fails half way.
        inline: Whether tasks run in the driver's own process.
        before: What stands in the world beforehand.
        elsewhere: Whether every second file goes to an absolute path outside the destination.
    """

    delivery: Delivery = "listing"
    config: CommitterConfig = field(default_factory=CommitterConfig)
    tasks: int = 3
    files: int = 4
    directories: int = 3
    retried: int | None = 1
    inline: bool = False
    before: dict[str, bytes] = field(default_factory=dict)
    elsewhere: bool = False

    def names(self, task: int) -> list[str]:
        """What a task writes; every attempt of it writes the same names."""
        return [f"day={number % self.directories}/part-{task}-{number}.csv" for number in range(self.files)]


def content(task: int, attempt: int, name: str) -> bytes:
    """What an attempt writes: other bytes than any other attempt, but as many, so that no length gives it away."""
    return f"task {task} attempt {attempt} writes {name}\n".encode()


class Impatient(Runtime):
    """The machine's clock, but nothing sleeps, and names come from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def nonce(self, nbytes: int = 6) -> str:
        return self._random.randbytes(nbytes).hex()

    def random(self) -> float:
        return self._random.random()


Intruder: TypeAlias = Callable[["Cluster"], Awaitable[None]]
Trouble: TypeAlias = FaultKind | Literal["permanent", "cancel"] | Intruder


class Cluster:
    """Processes that share a world, with a fault at one of their calls.

    Args:
        world: Where everything lies.
        plan: The job.
        at: Number of the call that trouble hits, counted over all processes from 1; 0 for none.
        trouble: What happens there: a fault, a right that is missing from then on, a cancellation of the driver, or
            something that another process does from beginning to end.
        delays: From a seed: every call waits a few turns of the loop, so that processes interleave in another order.

    Attributes:
        calls: Calls so far, of all processes.
        hit: The call that trouble hit.
        more: More trouble, by the number of the call.
        commit_began: Number of the first call of the driver's commit.
        claims: What processes other than the driver said came of the job.
        over: Whether the driver's call returned, or it died.
    """

    def __init__(
        self, world: World, plan: Plan, at: int = 0, trouble: Trouble | None = None, delays: int | None = None
    ) -> None:
        if plan.elsewhere:
            plan = replace(plan, config=plan.config.replace(absolute_roots=(str(world.elsewhere),)))
        self.world = world
        self.plan = plan
        self.at = at
        self.trouble = trouble
        for name, data in plan.before.items():
            world.write(name, data)
        self.ledger = Ledger(plan.tasks, plan.config)
        self.checker = Checker(world, {JOB_ID: self.ledger})
        self.calls = 0
        self.hit: Call | None = None
        self.more: dict[int, Trouble] = {}
        self.commit_began = 0
        self.claims: list[str] = []
        self.over = False
        self.processes: list[FaultyStore] = []
        self.messages: list[TaskCommit] = []
        self.driver: asyncio.Task[object] | None = None
        self.spec: JobSpec | None = None
        self._delays = random.Random(delays) if delays is not None else None
        self._broken: BaseException | None = None
        self._looked = False

    def process(self, *faults: Fault) -> FaultyStore:
        """Starts a process: its own connection to the world, and calls that all count."""
        store = FaultyStore(self.world.store(), faults)

        async def before(call: Call) -> None:
            await self._before(store, call)

        store.before_call = before
        self.processes.append(store)
        return store

    @property
    def vouched(self) -> CommitterConfig:
        """What others who go on with the job must say: where outside it may write."""
        return CommitterConfig(absolute_roots=self.plan.config.absolute_roots)

    def names(self, task: int) -> list[str]:
        """What a task writes, by name or absolute path."""
        names = self.plan.names(task)
        if self.plan.elsewhere:
            names[1::2] = [f"{self.world.elsewhere.path}/{name}" for name in names[1::2]]
        return names

    def delay(self, seed: int) -> None:
        """Has every call from now on wait a few turns of the loop."""
        self._delays = random.Random(seed)

    def raise_broken(self) -> None:
        """Raises what was found on the way, which the engine may have swallowed."""
        if self._broken is not None:
            raise self._broken

    async def close(self) -> None:
        """Frees what processes that died left open."""
        for process in self.processes:
            await process.inner.close()
        self.world.forget()

    async def _before(self, store: FaultyStore, call: Call) -> None:
        self.calls += 1
        trouble = self.trouble if self.calls == self.at and self.hit is None else self.more.get(self.calls)
        if trouble is not None:
            self.hit = call
            await self._strike(store, call, trouble)
        # Whatever is done below the job's own `tasks` is seen with the next call that goes anywhere else.
        inside = self.spec is not None and call.path.is_under(self.spec.layout.tasks) and call.destination is None
        if not (inside and self._looked):
            self._look()
        self._looked = inside
        if self._delays is not None:
            for _turn in range(self._delays.randrange(6)):
                await asyncio.sleep(0)

    async def _strike(self, store: FaultyStore, call: Call, trouble: Trouble) -> None:
        if trouble == "permanent":
            path = call.path
            store.faults.append(
                Fault(kind="forbidden", operation=call.operation, path=lambda other: other == path, times=None)
            )
        elif trouble == "cancel":
            assert self.driver is not None
            self.driver.cancel()
        elif isinstance(trouble, str):
            store.faults.append(Fault(kind=trouble, call=call.number))
        else:
            try:
                await trouble(self)
            except Exception as error:
                self._broken = self._broken or error

    def _look(self) -> None:
        if self._broken is None:
            try:
                self.checker.step()
            except AssertionError as error:
                self._broken = error

    # -- the engine -----------------------------------------------------------------------------------------------

    async def run(self) -> JobReport:
        """Runs the job as an engine does: a task that fails is run again, a driver that fails aborts."""
        async with committer.open_job(
            self.world.destination,
            job_id=JOB_ID,
            delivery=self.plan.delivery,
            config=self.plan.config,
            storage_options={"store": self.process()},
        ) as job:
            self.spec = job.spec
            for task in range(self.plan.tasks):
                await self._run_task(job, task)
            self.commit_began = self.calls + 1
            self.ledger.commit_began = self.calls
            return await job.commit(self.named(), tasks=self.plan.tasks)

    def named(self) -> list[TaskCommit] | None:
        """The messages that a driver names winners with."""
        if self.plan.delivery == "listing":
            return None
        self.ledger.named = {message.task: message.attempt for message in self.messages}
        return self.messages

    async def _run_task(self, job: committer.Job, task: int) -> None:
        for attempt in range(MOST_ATTEMPTS):
            fails = attempt == 0 and task == self.plan.retried
            message = await self.run_attempt(task, attempt, fails=fails, job=job if self.plan.inline else None)
            if message is not None:
                self.messages.append(message)
                return
        raise TaskFailedError(f"task {task} failed {MOST_ATTEMPTS} times")

    async def run_attempt(
        self, task: int, attempt: int, *, fails: bool = False, job: committer.Job | None = None
    ) -> TaskCommit | None:
        """Runs one attempt in a process of its own, or in the driver's; None when it did not commit."""
        noted = Attempt(task, attempt, {name: content(task, attempt, name) for name in self.names(task)})
        assert self.spec is not None
        if job is None:
            store = self.process()
            opening = committer.open_task(self.spec, task=task, attempt=attempt, storage_options={"store": store})
        else:
            store = self.processes[0]
            opening = job.task_attempt(task, attempt)
        self.ledger.note(noted)
        noted.state = "writing"
        written = 0
        try:
            async with opening as writer:
                for name, data in noted.files.items():
                    if fails and written == len(noted.files) // 2:
                        raise TaskFailedError
                    async with (writer.open_absolute if name.startswith("/") else writer.open)(name) as file:
                        await file.write(data)
                    written += 1
                noted.began, noted.state = self.calls, "unknown"
            noted.state = "committed"
            return writer.task_commit
        except TaskFailedError:
            noted.state = "failed"
            return None
        except CommitterError as error:
            if error.outcome != "unknown" or noted.state != "unknown":
                noted.state = "failed"
            return None
        except BaseException:
            if noted.state != "unknown":
                noted.state = "failed"
            if job is not None or not store.crashed:
                raise
            return None
        finally:
            noted.ended = self.calls
