"""`stocator` under the simulator's eyes: who goes by what is decided has every guarantee, who lists has not.

The second half must stay: a page says that the committer is unsafe for readers who list, and this shows how.
"""

from __future__ import annotations

import pytest

from committer_testing.simulate.committers import EngineCommitter
from committer_testing.simulate.scenario import JobPlan, Scenario
from committer_testing.simulate.simulation import simulate
from tests.simulate.object_readers import DRAWN_AS, simulate_objects, wrong_with
from tests.simulate.test_mutants import found
from tests.sweeps import sampled


@pytest.mark.parametrize("kind", DRAWN_AS)
@pytest.mark.parametrize("start", sampled(range(0, 160, 20), 4, "stocator"))
def test_readers_of_what_is_decided_have_every_guarantee(kind: str, start: int) -> None:
    """Faults, deaths, partitions, other drivers and operators, ids that are set up anew."""
    committed = 0
    for seed in range(start, start + 20):
        result, world = simulate_objects(seed, kind)
        assert not wrong_with(result, world), (seed, wrong_with(result, world))
        committed += "committed" in result.fates.values()
    assert committed > 5


def test_who_lists_sees_output_before_the_job_commits() -> None:
    plan = JobPlan("j0", "magic", tasks=2, files=2)
    result = simulate(Scenario(0, "s3", (plan,), ()), {"magic": EngineCommitter("stocator")})
    assert ".csv appeared at the destination before its job was decided" in found(result)
