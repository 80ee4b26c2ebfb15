"""`file-v1` and `file-v2` themselves, under the simulator's eyes: one keeps what it promises, the other does not.

The second half must stay: a page says that `file-v2` is unsafe, and this shows how.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest

from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import Event, JobPlan, Scenario, draw_scenario
from tests.simulate.file_jobs import file_v1_scenario, file_v1_schedules, simulate_file, wrong_with_file_v1
from tests.simulate.test_mutants import found
from tests.sweeps import Share


@pytest.mark.parametrize("start", range(0, 160, 20))
def test_file_v1_keeps_every_guarantee(start: int) -> None:
    """Faults, deaths, partitions, other drivers and operators, on stores that rename directories."""
    runs = 0
    for scenario in filter(None, map(file_v1_scenario, range(start, start + 20))):
        assert not wrong_with_file_v1(scenario), (scenario.seed, wrong_with_file_v1(scenario))
        runs += 1
    assert runs > 10


def test_file_v1_keeps_what_committed_where_an_attempt_dies_that_commits_again(share: Share) -> None:
    """After every call of each process, where two attempts of each task commit."""
    deaths = [*takewhile(lambda scenario: scenario.forced, file_v1_schedules())]
    assert len(deaths) > 100
    for scenario in share.of(deaths):
        assert not wrong_with_file_v1(scenario), (scenario.forced, wrong_with_file_v1(scenario))


def test_file_v1_takes_the_last_commit_where_a_late_call_moved_it_aside() -> None:
    scenario = draw_scenario(3228)
    jobs = tuple(replace(job, delivery="listing", elsewhere=False) for job in scenario.jobs)
    assert not simulate_file("file-v1", replace(scenario, jobs=jobs)).violations


def _run(committer: str, *, crash: int = 0, event: Event | None = None) -> Result:
    """One job of two tasks; the first attempt of the first dies after its call `crash`."""
    plan = JobPlan("j0", tasks=2, files=2, attempt_names=True, patience_s=0.5)
    forced = {("j0.t0.0", crash): "crash_after"} if crash else {}
    events = (event,) if event else ()
    return simulate_file(committer, Scenario(0, "hdfs", (plan,), events, forced=forced))  # type: ignore[arg-type]


def _first_rename() -> int:
    """The number of the first rename in the commit of the first attempt."""
    lines = [line for line in _run("file-v2").history() if "j0.t0.0 " in line]
    return next(int(line.split()[2]) for line in lines if " rename_file" in line)


def test_file_v2_shows_output_before_the_job_commits() -> None:
    assert ".csv appeared at the destination before j0 was decided" in found(_run("file-v2"))


def test_file_v2_mixes_two_attempts_of_a_task() -> None:
    result = _run("file-v2", crash=_first_rename())
    assert result.fates == {"j0": "committed"}
    assert "G2" in found(result)
    assert "missing [], extra ['day=0/part-j0-0-0-0.csv'" in found(result)


def test_file_v2_leaves_files_when_a_job_is_aborted() -> None:
    result = _run("file-v2", event=Event(0, "cancel", "j0", True, 0.0))
    assert result.fates == {"j0": "untouched"}
    assert "the jobs are over, and yet missing [], extra ['day=0/" in found(result)


@pytest.mark.parametrize("committer", ["file-v1", "manifest"])
def test_others_are_clean_under_the_same_troubles(committer: str) -> None:
    assert found(_run(committer)) == ""
    for crash in range(1, 16):
        result = _run(committer, crash=crash)
        assert result.fates == {"j0": "committed"}
        assert found(result) == ""
    assert found(_run(committer, event=Event(0, "cancel", "j0", True, 0.0))) == ""
