"""Hypothesis in the place of the seed: it decides who does what when, and shrinks what fails."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from committer import CommitterConfig
from committer_testing.simulate.operators import happen
from committer_testing.simulate.scenario import Event, JobPlan, Scenario
from committer_testing.simulate.simulation import Simulation
from committer_testing.simulate.worlds import FENCING, OUT
from committer_testing.virtual_loop import virtual_loop
from tests.simulate.mutants import apply

CONFIGS = [
    CommitterConfig(),
    CommitterConfig(conflict_mode="replace"),
    CommitterConfig(existing_target="replace", validate_output=True),
]
PLANS = st.builds(
    JobPlan,
    job_id=st.just("j0"),
    delivery=st.sampled_from(["listing", "message"]),
    config=st.sampled_from(CONFIGS),
    tasks=st.integers(1, 2),
    files=st.integers(1, 2),
    says_tasks=st.booleans(),
    names_winners=st.booleans(),
    patience_s=st.sampled_from([0.05, 60.0]),
)
BEFORE = {f"{OUT}/day=0/old.csv": b"old", f"{OUT}/other/old.csv": b"old", "beside/x.csv": b"x"}


class Cluster(RuleBasedStateMachine):
    """A job in a cluster whose every turn is a choice."""

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self.loop = self._open.enter_context(virtual_loop(1))
        self.forced: dict[tuple[str, int], str] = {}
        self.happened = 0
        self.simulation: Simulation | None = None

    @initialize(kind=st.sampled_from(list(FENCING)), plan=PLANS)
    def begin(self, kind: str, plan: JobPlan) -> None:
        async def main() -> None:
            self.simulation = Simulation(Scenario(1, kind, (plan,), before=BEFORE, forced=self.forced))  # type: ignore[arg-type]
            self.simulation.begin()

        self.loop.run_until_complete(main())

    @rule(seconds=st.sampled_from([0.02, 0.1, 0.3]))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @precondition(lambda self: self.happened < 4)
    @rule(
        kind=st.sampled_from(["recover", "abort", "cleanup", "commit_too", "crash", "cancel", "freeze", "stranger"]),
        in_commit=st.booleans(),
        seconds=st.integers(0, 30).map(lambda steps: steps * 0.02),
    )
    def another_process_acts(self, kind: str, in_commit: bool, seconds: float) -> None:
        async def main() -> None:
            event = Event(self.happened, kind, "j0", in_commit, seconds, 1.0)
            self.simulation.start(happen(self.simulation, self.simulation.jobs["j0"], event))

        self.happened += 1
        self.loop.run_until_complete(main())

    @precondition(lambda self: len(self.forced) < 4)
    @rule(
        kind=st.sampled_from(["unavailable", "unanswered", "lost", "crash_before", "crash_after", "slow"]),
        which=st.integers(0, 5),
        ahead=st.integers(1, 12),
    )
    def a_call_will_fail(self, kind: str, which: int, ahead: int) -> None:
        processes = self.simulation.processes
        if processes:
            process = processes[which % len(processes)]
            self.forced[process.name, len(process.calls) + ahead] = kind

    @invariant()
    def nothing_is_broken(self) -> None:
        if self.simulation is not None:
            assert not self.simulation.result.violations, "\n".join(self.simulation.result.history())

    def teardown(self) -> None:
        try:
            if self.simulation is not None:
                self.loop.run_until_complete(self.simulation.finish())
                self.nothing_is_broken()
        finally:
            if self.simulation is not None:
                self.simulation.world.forget()
            self._open.close()


ALIKE = settings(
    max_examples=150,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)

TestCluster = Cluster.TestCase
TestCluster.settings = ALIKE


def test_a_planted_bug_is_found() -> None:
    with apply("decided-after-publishing"), pytest.raises(AssertionError):
        run_state_machine_as_test(Cluster, settings=settings(ALIKE, phases=[Phase.generate]))
