"""One run: a world, its processes, everything they did, and what was found wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from committer.errors import CommitterError
from committer.testing.faults import Call
from committer.testing.simulate.checker import Checker, GuaranteeBrokenError
from committer.testing.simulate.ending import end_all
from committer.testing.simulate.job_run import JobRun
from committer.testing.simulate.ledger import Ledger
from committer.testing.simulate.operators import happen
from committer.testing.simulate.process import Process, is_crash
from committer.testing.simulate.scenario import OTHERS_UPLOADS, Scenario, Trouble
from committer.testing.simulate.worlds import OUT, TEMPORARY, MemoryWorld, world_of
from committer.testing.virtual_loop import DeadlockError, run_virtually

MOST_CALLS = 20_000
MOST_SECONDS = 7_200.0

_CHANGING = frozenset(
    {"put", "close_writer", "open_writer", "make_directory", "rename_file", "rename_directory", "delete_file"}
    | {"delete_directory", "link_file", "abort_writer", "delete_file_if", "delete_files", "complete_upload"}
)


class LivelockError(BaseException):
    """A run makes calls without end. No handler of `Exception` catches it."""


@dataclass(frozen=True)
class Violation:
    """Something that must never be.

    Attributes:
        guarantee: Which guarantee is broken, as its message names it first.
        message: What was seen.
        at_s: When, in virtual seconds.
    """

    guarantee: str
    message: str
    at_s: float


@dataclass
class Result:
    """What came of one run.

    Attributes:
        scenario: What was run.
        violations: What was wrong, one a guarantee.
        faults: Faults that were met, by process and number of the call.
        events: Numbers of the events that happened.
        calls: Store calls.
        order: Every call but those of the end, by process and number, in the order they set out in.
        fates: How each job ended.
        seconds: Real seconds it took.
        space: The memory space it ran in, which no history mentions.
        log: What happened: virtual time, who, what.
    """

    scenario: Scenario
    violations: list[Violation] = field(default_factory=list)
    faults: dict[tuple[str, int], Trouble] = field(default_factory=dict)
    events: list[int] = field(default_factory=list)
    calls: int = 0
    order: list[tuple[str, int]] = field(default_factory=list)
    fates: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    space: str = ""
    log: list[tuple[float, str, Call | str]] = field(default_factory=list)

    def history(self) -> list[str]:
        """What happened, a line each: virtual seconds, process, call, fault, result."""
        space = f"memory://{self.space}/"
        return [f"{at_s:9.3f} {who:12} {str(what).replace(space, '')}" for at_s, who, what in self.log]


class Simulation:
    """One run of a scenario.

    Args:
        scenario: What happens.

    Attributes:
        scenario: What happens.
        world: Where everything lies.
        checker: What holds it to the guarantees.
        jobs: The jobs, by id.
        processes: Every process so far.
        result: What came of it.
        healing: Whether all trouble is over and what is left is ended.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world: MemoryWorld = world_of(scenario.kind)
        for name, data in scenario.before.items():
            self.world.write(name, data)
        for name in OTHERS_UPLOADS:
            self.world.begin_upload(name)
        ledgers = {plan.job_id: Ledger(plan.tasks, plan.config) for plan in scenario.jobs}
        self.checker: Checker = Checker(self.world, ledgers, self._note_broken)
        self.checker.late = True
        self.jobs: Mapping[str, JobRun] = {
            plan.job_id: JobRun(self, plan, ledgers[plan.job_id]) for plan in scenario.jobs
        }
        self.processes: list[Process] = []
        self.result: Result = Result(scenario, space=self.world.destination.authority)
        self.healing: bool = False
        self._running: set[asyncio.Task[None]] = set()
        self._own = f"/{OUT}/{TEMPORARY}/"

    # -- the run --------------------------------------------------------------------------------------------------

    async def run(self) -> Result:
        """Runs everything to its end."""
        self.begin()
        return await self.finish()

    def begin(self) -> None:
        """Starts the drivers, and the operators and other users that act on them."""
        for job in self.jobs.values():
            self.start(job.drive())
        for event in self.scenario.events:
            self.start(happen(self, event))

    async def finish(self) -> Result:
        """Waits until all is over, has fresh processes end what is left, and checks it."""
        await self._all_over()
        self.healing = True
        await end_all(self)
        await self._all_over()
        for process in self.processes:
            await process.inner.close()
        return self.result

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

    async def _all_over(self) -> None:
        while True:
            pending = [*self._running, *(late for process in self.processes for late in process.under_way)]
            if not pending:
                return
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()

    def process(self, name: str, *, job_id: str | None = None) -> Process:
        """Starts a process; once everything is over its calls meet no faults."""
        process = Process(name, self, self.world.store(), job_id=job_id, calm=self.healing)
        self.processes.append(process)
        return process

    # -- what processes tell --------------------------------------------------------------------------------------

    def count(self, process: Process, call: Call) -> None:
        """A call set out."""
        self.result.calls += 1
        if not self.healing:
            self.result.order.append((process.name, call.number))
        if self.result.calls > MOST_CALLS or asyncio.get_running_loop().time() > MOST_SECONDS:
            raise LivelockError

    def arrive(self, process: Process, call: Call) -> None:
        """A call reached the store, or what is in its way."""
        self.result.log.append((asyncio.get_running_loop().time(), process.name, call))

    def meet(self, process: Process, call: Call, trouble: Trouble) -> None:
        """A call meets a fault."""
        self.result.faults[process.name, call.number] = trouble

    def look(self, process: Process, call: Call) -> None:
        """A call had its effect: a process that looks now sees this."""
        late = call.operation.endswith("(late)")
        if late:
            self.arrive(process, call)
        if call.operation.removesuffix(" (late)") not in _CHANGING:
            return
        if process.job_id is not None:
            self._check_place(process, call)
        if not self._is_private(call):
            self.checker.step()

    def _is_private(self, call: Call) -> bool:
        """Whether a call touches only what no reader and no record of a job's fate can be changed by."""
        paths = [call.path.path] if call.destination is None else [call.path.path, call.destination.path]
        return all(path.startswith(self._own) and path.count("/") > 4 for path in paths)

    def _check_place(self, process: Process, call: Call) -> None:
        """No process ever touches another job's directory, or anything outside the destination."""
        own = f"{self._own}{process.job_id}"
        for path in (call.path, call.destination):
            if path is None:
                continue
            text = path.path
            if text.startswith(f"{self._own}.replace-lock") or f"{text}/".startswith(f"{own}/"):
                continue
            inside = f"{text}/".startswith(f"/{OUT}/")
            if not inside or text.startswith(self._own):
                self.find("G10, G11", f"{process.name} of {process.job_id} touched {text}: {call.operation}")

    def note(self, who: str, what: str) -> None:
        """Adds a line to the history."""
        self.result.log.append((asyncio.get_running_loop().time(), who, what))

    def find(self, guarantee: str, message: str) -> None:
        """Something is wrong; the first finding of each guarantee counts."""
        if all(violation.guarantee != guarantee for violation in self.result.violations):
            at_s = asyncio.get_running_loop().time()
            self.result.violations.append(Violation(guarantee, message.partition("\n")[0], at_s))
            self.note("CHECKER", f"{guarantee}: {message}" if not message.startswith(guarantee) else message)

    def _note_broken(self, error: GuaranteeBrokenError) -> None:
        text = str(error)
        self.find(text.partition(":")[0], text)

    def claim(self, who: str, job_id: str, fate: str) -> None:
        """A driver or an operator says how a job ended; what is said must be so at once."""
        self.note(who, f"says that {job_id} is {fate}")
        if fate != self.checker.fate_of(job_id):
            self.find("G8", f"{who} says that {job_id} is {fate}, and it is {self.checker.fate_of(job_id)}")

    def judge(self, who: str, job_id: str, error: BaseException) -> None:
        """What an error says must be true."""
        self.note(who, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
        if isinstance(error, CommitterError) and error.outcome == "committed":
            self.claim(who, job_id, "committed")


def simulate(scenario: Scenario) -> Result:
    """Runs a scenario from beginning to end."""
    began = time.perf_counter()
    simulations: list[Simulation] = []

    async def main() -> None:
        simulations.append(Simulation(scenario))
        await simulations[0].run()

    problem = ""
    try:
        run_virtually(main, seed=scenario.seed)
    except DeadlockError as error:
        problem = f"a deadlock: {error}"
    except LivelockError:
        problem = f"a livelock: more than {MOST_CALLS} calls, or {MOST_SECONDS:.0f} virtual seconds"
    (simulation,) = simulations
    result = simulation.result
    if problem:
        result.violations.append(Violation("every run ends", problem, 0.0))
    for job_id in simulation.jobs:
        result.fates[job_id] = simulation.checker.fate_of(job_id)
    simulation.world.forget()
    result.seconds = time.perf_counter() - began
    return result
