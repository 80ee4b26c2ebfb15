"""One run from its beginning to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping

from committer_testing.simulate.anew import set_up_anew
from committer_testing.simulate.committers import ENGINE_COMMITTERS, DrivenCommitter
from committer_testing.simulate.disk import own_disk
from committer_testing.simulate.ending import end_all
from committer_testing.simulate.job_run import JobRun
from committer_testing.simulate.large import records_read_again
from committer_testing.simulate.operators import happen
from committer_testing.simulate.result import Result, Violation
from committer_testing.simulate.run import MOST_CALLS, MOST_SECONDS, LivelockError, Run
from committer_testing.simulate.scenario import Scenario
from committer_testing.virtual_loop import DeadlockError, run_virtually


class Simulation(Run):
    """A run with its jobs.

    Args:
        scenario: What happens.
        committers: What runs each committer that the jobs name.

    Attributes:
        jobs: The jobs, by id.
    """

    def __init__(self, scenario: Scenario, committers: Mapping[str, DrivenCommitter] = ENGINE_COMMITTERS) -> None:
        super().__init__(scenario)
        # A committer whose tasks write at the destination has other rules.
        self.by_the_rules: bool = all(
            committers[plan.committer] is ENGINE_COMMITTERS.get(plan.committer) for plan in scenario.jobs
        )
        self.jobs: Mapping[str, JobRun] = {
            plan.job_id: JobRun(self, plan, committers[plan.committer]) for plan in scenario.jobs
        }

    async def run(self) -> Result:
        """Runs everything to its end."""
        self.begin()
        return await self.finish()

    def begin(self) -> None:
        """Starts the drivers, and the operators and other users that act on them."""
        for job in self.jobs.values():
            earlier = self.jobs.get(job.plan.under)
            self.start(job.drive() if earlier is None else set_up_anew(self, earlier, job))
        for event in self.scenario.events:
            self.start(happen(self, self.jobs[event.job_id], event))

    async def finish(self) -> Result:
        """Waits until all is over, has fresh processes end what is left, and checks it."""
        await self.all_over()
        self.healing = True
        await end_all(self, self.jobs)
        await self.all_over()
        for process in self.processes:
            await process.inner.close()
        return self.result


def simulate(scenario: Scenario, committers: Mapping[str, DrivenCommitter] = ENGINE_COMMITTERS) -> Result:
    """Runs a scenario from beginning to end.

    Args:
        scenario: What happens.
        committers: What runs each committer that its jobs name.
    """
    began = time.perf_counter()
    simulations: list[Simulation] = []

    async def main() -> None:
        simulations.append(Simulation(scenario, committers))
        await simulations[0].run()

    problem = ""
    try:
        with own_disk(scenario) as left, records_read_again(scenario):
            run_virtually(main, seed=scenario.seed)
    except DeadlockError as error:
        problem = f"a deadlock: {error}"
    except LivelockError:
        problem = f"a livelock: more than {MOST_CALLS} calls, or {MOST_SECONDS:.0f} virtual seconds"
    (simulation,) = simulations
    result = simulation.result
    if left:
        result.violations.append(Violation("local files go with their job", f"left on the machine: {left}", 0.0))
    if problem:
        result.violations.append(Violation("every run ends", problem, 0.0))
    for job_id in simulation.jobs:
        result.fates[job_id] = simulation.checker.fate_of(job_id)
    simulation.world.forget()
    result.seconds = time.perf_counter() - began
    return result
