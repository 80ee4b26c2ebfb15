"""Runs in which an id is set up anew while what acted on the earlier job is late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import Event, JobPlan, Scenario, draw_scenario
from committer_testing.simulate.simulation import simulate

EARLIER = JobPlan("j0", delivery="message", tasks=1, files=1)
LATER = JobPlan("k0", delivery="message", tasks=1, files=2, under="j0")
KINDS = ["local", "hdfs", "adls", "gcs"]


MOMENTS = [0.0, 0.03, 0.06, 0.09, 0.14]


def run(kind: str, at_s: float, *, for_s: float, same_names: bool) -> Result:
    """The earlier driver stands still for a while in its commit, and its id is set up anew."""
    events = (Event(0, "freeze", "j0", True, at_s, for_s),)
    jobs = (EARLIER, replace(LATER, same_names=same_names, starts_s=at_s + 0.01))
    return simulate(Scenario(1, kind, jobs, events, forced={}))


@pytest.mark.parametrize("for_s", [0.6, 6.0], ids=["beside it", "after it"])
@pytest.mark.parametrize("same_names", [False, True], ids=["other names", "same names"])
@pytest.mark.parametrize("kind", KINDS)
def test_driver_that_is_late_for_its_id(kind: str, same_names: bool, for_s: float) -> None:
    """The driver wakes while the later job of the id runs, or after that job ended."""
    fates = set()
    for at_s in MOMENTS:
        result = run(kind, at_s, for_s=for_s, same_names=same_names)
        assert not result.violations, "\n".join(result.history())
        fates.add((result.fates["j0"], result.fates["k0"]))
    assert ("untouched", "committed") in fates


def test_later_job_without_the_earlier_one_is_a_job_like_any_other() -> None:
    """As minimising may leave it."""
    result = simulate(Scenario(1, "local", (LATER,), forced={}))
    assert not result.violations
    assert result.fates == {"k0": "committed"}


def test_every_fifth_seed_sets_an_id_up_anew() -> None:
    drawn = [draw_scenario(seed) for seed in range(300)]
    anew = [scenario for scenario in drawn if any(job.under for job in scenario.jobs)]
    assert 40 < len(anew) < 80
    for scenario in anew:
        (later,) = [job for job in scenario.jobs if job.under]
        assert later.under in {job.job_id for job in scenario.jobs}
