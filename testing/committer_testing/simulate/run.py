"""What the jobs and processes of one run share: its world, its checker, its history."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from committer.errors import CommitterError
from committer.options.config import CommitterConfig
from committer.testing.faults import Call, FaultyStore, SimulatedCrash
from committer_testing.simulate.checker import Checker, GuaranteeBrokenError
from committer_testing.simulate.late import Caller, Setups
from committer_testing.simulate.ledger import Ledger
from committer_testing.simulate.result import Result, Violation
from committer_testing.simulate.rules import Names
from committer_testing.simulate.scenario import OTHERS_UPLOADS, JobPlan, Scenario, Trouble
from committer_testing.simulate.worlds import (
    ELSEWHERE,
    OUT,
    TEMPORARY,
    MemoryWorld,
    is_of_application_attempt,
    places_of,
    world_of,
)

MOST_CALLS = 20_000
MOST_SECONDS = 7_200.0

_CHANGING = frozenset(
    {"put", "close_writer", "open_writer", "make_directory", "rename_file", "rename_directory", "delete_file"}
    | {
        "delete_directory",
        "link_file",
        "abort_writer",
        "delete_file_if",
        "delete_files",
        "complete_upload",
        "put_block_list",
    }
)


class LivelockError(BaseException):
    """A run makes calls without end. No handler of `Exception` catches it."""


class Run:
    """One run of a scenario, as its jobs and processes see it.

    Args:
        scenario: What happens.

    Attributes:
        scenario: What happens.
        world: Where everything lies.
        ledgers: What task attempts did, by job id.
        checker: What holds the run to the guarantees.
        processes: The store connection of every process so far.
        result: What came of it.
        forgotten: Jobs that an operator cleaned up by name, after which no outcome is kept.
        healing: Whether no fault happens any more, and what is left is ended.
        by_the_rules: Whether each process is held to the protocol's table.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world: MemoryWorld = world_of(scenario.kind)
        for name, data in scenario.before.items():
            self.world.write(name, data)
        for name in OTHERS_UPLOADS:
            self.world.begin_upload(name)
        shared = {plan.under for plan in scenario.jobs}
        self.ledgers: Mapping[str, Ledger] = {
            plan.job_id: Ledger(plan.tasks, plan.config, shared_id=plan.id if plan.id in shared else "")
            for plan in scenario.jobs
        }
        self.checker: Checker = Checker(self.world, self.ledgers, self._note_broken)
        self.checker.late = True
        self.processes: list[FaultyStore] = []
        self.result: Result = Result(scenario, space=self.world.destination.authority)
        self.forgotten: set[str] = set()
        self.healing: bool = False
        self.by_the_rules: bool = False
        self._running: set[asyncio.Task[None]] = set()
        self._own = f"/{OUT}/{TEMPORARY}/"
        self._outside = {plan.id for plan in scenario.jobs if plan.elsewhere}
        self._setups = Setups(self.checker.jobs)
        self._names = Names(self.world, partial(self.find_broken_rule, "a name"))

    def id_of(self, job_id: str) -> str:
        """The id that a job of the run has at the destination."""
        return next(plan.id for plan in self.scenario.jobs if plan.job_id == job_id)

    def setups_of(self, job_id: str) -> list[str]:
        """All jobs of the run that have the id of this one."""
        there = self.id_of(job_id)
        return [plan.job_id for plan in self.scenario.jobs if plan.id == there]

    # -- what jobs are told ---------------------------------------------------------------------------------------

    def config_of(self, plan: JobPlan) -> CommitterConfig:
        """A job's choices, and where outside the destination it may write."""
        return plan.config.replace(absolute_roots=self._roots()) if plan.elsewhere else plan.config

    def vouched(self, *plans: JobPlan) -> CommitterConfig | None:
        """What a process must say that goes on with jobs of others: where outside the destination they may write."""
        return CommitterConfig(absolute_roots=self._roots()) if any(plan.elsewhere for plan in plans) else None

    def _roots(self) -> tuple[str, ...]:
        return (str(self.world.elsewhere),)

    # -- what runs ------------------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something beside everything else; it may die of a crash."""

        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                return
            except LivelockError:
                raise
            except BaseException as error:
                if not is_crash(error):
                    self.find("every run ends well", f"unexpected: {type(error).__name__}: {error}")

        task = asyncio.create_task(guarded())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def all_over(self) -> None:
        """Waits until nothing runs any more, and no late request is under way."""
        while True:
            pending = [*self._running, *(late for process in self.processes for late in process.under_way)]
            if not pending:
                return
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()

    # -- what processes tell --------------------------------------------------------------------------------------

    def count(self, who: str, call: Call) -> None:
        """A call set out."""
        self.result.calls += 1
        if not self.healing:
            self.result.order.append((who, call.number))
        if self.result.calls > MOST_CALLS or asyncio.get_running_loop().time() > MOST_SECONDS:
            raise LivelockError

    def arrive(self, who: str, call: Call) -> None:
        """A call reached the store, or what is in its way."""
        self.result.log.append((asyncio.get_running_loop().time(), who, call))

    def meet(self, who: str, call: Call, trouble: Trouble) -> None:
        """A call meets a fault."""
        self.result.faults[who, call.number] = trouble

    def look(self, caller: Caller, call: Call) -> None:
        """A call had its effect: a process that looks now sees this."""
        late = call.operation.endswith("(late)")
        if late:
            self.arrive(caller.name, call)
        if call.operation.removesuffix(" (late)") not in _CHANGING:
            return
        if caller.job_id is not None:
            self._check_place(caller.name, call, caller.job_id)
        self._setups.note(caller, call)
        if self.by_the_rules:
            self._names.note(call)
        if not self._is_private(call):
            self.checker.step()

    def _is_private(self, call: Call) -> bool:
        """Whether a call touches only what no reader and no record of a job's fate can be changed by."""
        paths = [call.path.path] if call.destination is None else [call.path.path, call.destination.path]
        return all(path.startswith(self._own) and path.count("/") > 4 for path in paths)

    def _check_place(self, who: str, call: Call, job_id: str) -> None:
        """No process ever touches another job's directory, or anything outside the destination."""
        own = places_of(job_id)
        for path in (call.path, call.destination):
            if path is None:
                continue
            text = path.path
            if text == f"{self._own}.committing" or f"{text[1:]}/".startswith(own):
                continue
            if text.startswith(f"{self._own}.committing/{job_id}~"):
                continue
            if is_of_application_attempt(text, job_id):
                continue
            if job_id in self._outside and f"{text}/".startswith(f"/{ELSEWHERE}/"):
                continue
            inside = f"{text}/".startswith(f"/{OUT}/")
            if not inside or text.startswith(self._own):
                self.find("G10, G11", f"{who} of {job_id} touched {text}: {call.operation}")

    def note(self, who: str, what: str) -> None:
        """Adds a line to the history."""
        self.result.log.append((asyncio.get_running_loop().time(), who, what))

    def find(self, guarantee: str, message: str) -> None:
        """Something is wrong; the first finding of each guarantee counts."""
        if all(violation.guarantee != guarantee for violation in self.result.violations):
            at_s = asyncio.get_running_loop().time()
            self.result.violations.append(Violation(guarantee, message.partition("\n")[0], at_s))
            self.note("CHECKER", f"{guarantee}: {message}" if not message.startswith(guarantee) else message)

    def find_broken_rule(self, who: str, what: str) -> None:
        """A process takes a step that the protocol's table does not allow."""
        self.find("protocol", f"{who}: {what}")

    def _note_broken(self, error: GuaranteeBrokenError) -> None:
        text = str(error)
        self.find(text.partition(":")[0], text)

    def claim(self, who: str, job_id: str, fate: str, *, any_setup: bool = False) -> None:
        """A driver or an operator says how a job ended; what is said must be so at once.

        Args:
            who: The process.
            job_id: The job, as the run names it.
            fate: What it says.
            any_setup: Whether it knows the id only: then it may speak of any job that was set up under it.
        """
        self.note(who, f"says that {job_id} is {fate}")
        spoken_of = [job_id]
        if any_setup:
            spoken_of = self.setups_of(job_id)
        fates = [self.checker.fate_of(one) for one in spoken_of]
        if fate not in fates:
            self.find("G8", f"{who} says that {job_id} is {fate}, and it is {' or '.join(fates)}")

    def judge(self, who: str, job_id: str, error: BaseException, *, any_setup: bool = False) -> None:
        """What an error says must be true; `any_setup` as in `claim`."""
        self.note(who, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        if not isinstance(error, CommitterError):
            return
        if error.outcome == "committed":
            self.claim(who, job_id, "committed", any_setup=any_setup)
        elif error.outcome == "unchanged" and self.is_alone(who) and self.checker.is_changed():
            self.find("G8", f"{who} says that nothing changed, and the destination did")

    def is_alone(self, who: str) -> bool:
        """Whether nothing but a driver and its attempts can have changed the destination, and no request comes late."""
        scenario = self.scenario
        if scenario.forced is None or {"late", "again"} & set(scenario.forced.values()):
            return False
        return who.endswith(".driver") and len(scenario.jobs) == 1 and not scenario.events


def is_crash(error: BaseException) -> bool:
    """Whether a process died of it."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_crash(inner) for inner in error.exceptions)
    return isinstance(error, SimulatedCrash)
