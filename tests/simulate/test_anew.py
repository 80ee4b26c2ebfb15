"""Runs in which an id is set up anew while what acted on the earlier job is late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from committer import CommitterConfig
from committer.testing.simulate.result import Result
from committer.testing.simulate.scenario import Event, JobPlan, Scenario, draw_scenario
from committer.testing.simulate.simulation import simulate
from tests.simulate.mutants import apply

EARLIER = JobPlan("j0", delivery="message", tasks=1, files=1)
LATER = JobPlan("k0", delivery="message", tasks=1, files=2, under="j0")
KINDS = ["local", "hdfs", "adls", "gcs"]


MOMENTS = [0.0, 0.03, 0.06, 0.09, 0.14]


def run(kind: str, at_s: float, for_s: float = 6.0, *, same_names: bool = False) -> Result:
    """The earlier driver stands still for a while in its commit, and its id is set up anew."""
    events = (Event(0, "freeze", "j0", True, at_s, for_s),)
    jobs = (EARLIER, replace(LATER, same_names=same_names, starts_s=at_s + 0.01))
    return simulate(Scenario(1, kind, jobs, events, forced={}))


@pytest.mark.parametrize("same_names", [False, True], ids=["other names", "same names"])
@pytest.mark.parametrize("kind", KINDS)
def test_driver_that_is_late_for_its_id(kind: str, same_names: bool) -> None:
    fates = set()
    for at_s in MOMENTS:
        result = run(kind, at_s, same_names=same_names)
        assert not result.violations, "\n".join(result.history())
        fates.add((result.fates["j0"], result.fates["k0"]))
    assert ("untouched", "committed") in fates


def wakes(kind: str) -> list[Result]:
    """It goes on while the later job is under way."""
    return [run(kind, at_s, for_s) for at_s in MOMENTS[:3] for for_s in (0.5, 0.6, 0.7, 0.8)]


def test_late_driver_learns_that_its_id_was_set_up_anew() -> None:
    told = [line for result in wakes("gcs") for line in result.history() if "set up anew" in line]
    assert any("j0.driver" in line for line in told)
    assert not any("k0.driver" in line for line in told)


def test_driver_that_goes_by_another_setups_records_is_found() -> None:
    with apply("setup-name-ignored"):
        assert any(result.violations for result in wakes("gcs"))


@pytest.mark.parametrize("kind", ["adls", "gcs"])
def test_success_file_is_withdrawn_whose_files_a_job_without_one_replaced(kind: str) -> None:
    """The driver that wrote it stood still since: it cannot tell that its request came before the files went."""
    config = CommitterConfig(conflict_mode="replace", mark_successful_jobs=False)
    earlier = JobPlan("j0", tasks=1, files=1)
    withdrawn = 0
    for at_s in (0.25, 0.26, 0.27, 0.28, 0.29, 0.3, 0.31, 0.32):
        later = replace(LATER, delivery="listing", config=config, starts_s=at_s + 0.01)
        events = (Event(0, "freeze", "j0", True, at_s, 6.0),)
        result = simulate(Scenario(1, kind, (earlier, later), events, forced={}))
        assert not result.violations, "\n".join(result.history())
        withdrawn += any("_SUCCESS -> " in line or "delete_file_if out/_SUCCESS" in line for line in result.history())
    assert withdrawn


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
