"""Every planted bug is found, and so is every committer that is unsafe by design; the safe one is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from committer.spec import Delivery
from committer_testing.simulate.exhaustive import DELIVERIES, small
from committer_testing.simulate.minimise import minimise
from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import Event, JobPlan, Scenario, draw_scenario
from committer_testing.simulate.simulation import simulate
from committer_testing.simulate.worlds import FENCING
from tests.simulate.hunt import hunt
from tests.simulate.models import simulate_any
from tests.simulate.mutants import IN_FINDINGS, MUTANTS, UNSAFE, apply
from tests.sweeps import sampled

# Where to begin, so that the test is over soon: close to a seed that finds the bug. Where the engine makes other calls, that
# seed tells another history, and the hunt goes on to the next one that finds it.
BEGIN = {
    "abort-ignores-decision": 45,
    "batch-deleted-without-conditions": 15,
    "blind-completion-retry": 40,
    "blocks-left-by-a-rollback": 690,
    "cancelled-commit-reported-done": 55,
    "cleanup-of-all-temporary": 10,
    "decision-not-exclusive": 25,
    "deleted-without-condition": 15,
    "listing-before-the-seal": 180,
    "loser-keeps-its-winners": 2200,
    "lost-answers-ignored": 540,
    "manifest-deleted-before-rename": 635,
    "no-fence": 40,
    "no-copies": 130,
    "opened-not-exclusive": 210,
    "outcome-not-exclusive": 10,
    "publish-errors-ignored": 40,
    "rollback-by-name": 670,
    "setup-record-not-looked-for": 375,
    "unopened-directories-passed-over": 430,
}


HUNTED = [mutant for mutant in (*MUTANTS, *UNSAFE) if mutant not in IN_FINDINGS]


@pytest.mark.parametrize("mutant", sampled(HUNTED, 12, "mutants"))
def test_mutant_is_found(mutant: str) -> None:
    find = hunt(mutant, start=BEGIN.get(mutant, 0), most=1500)
    assert find.seeds is not None, f"{mutant} survived"
    assert find.message


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kind", FENCING)
def test_every_fault_is_tried_where_the_disk_keeps_what_records_say(kind: str, delivery: Delivery) -> None:
    with apply("columns-kept-apart"):
        assert found(simulate(small(kind, delivery, "promoted-large"))) == ""
        assert "is of no attempt that may win" in found(simulate(small(kind, delivery, "promoted-kept")))


def test_planting_is_taken_back() -> None:
    before = simulate(draw_scenario(1)).history()
    for mutant in MUTANTS:
        with apply(mutant):
            pass
    assert simulate(draw_scenario(1)).history() == before


def test_minimising_keeps_the_guarantee_and_drops_the_rest() -> None:
    with apply("lost-answers-ignored"):
        for seed in range(697, 2000):
            result = simulate(draw_scenario(seed))
            if result.violations and len(result.faults) > 2:
                break
        smallest = minimise(result)
    assert smallest.violations[0].guarantee == result.violations[0].guarantee
    assert len(smallest.faults) < len(result.faults)
    assert len(smallest.history()) <= len(result.history())


# -- what the documents say of other committers ---------------------------------------------------------------------


def run(committer: str, *, crash: int = 0, event: Event | None = None) -> Result:
    """One job of two tasks; the first attempt of the first dies after its call `crash`."""
    plan = JobPlan("j0", committer, tasks=2, files=2, attempt_names=True, patience_s=0.5)
    forced = {("j0.t0.0", crash): "crash_after"} if crash else {}
    return simulate_any(Scenario(0, "hdfs", (plan,), (event,) if event else (), forced=forced))  # type: ignore[arg-type]


def found(result: Result) -> str:
    return "\n".join(violation.message for violation in result.violations)


def last_rename(committer: str) -> int:
    """The number of the first rename in the commit of the first attempt."""
    lines = [line for line in run(committer).history() if "j0.t0.0 " in line]
    return next(int(line.split()[2]) for line in lines if " rename_" in line)


def test_file_output_2_shows_output_before_the_job_commits() -> None:
    assert "-0-0.csv appeared at the destination before j0 was decided" in found(run("file-v2"))


def test_file_output_2_mixes_two_attempts_of_a_task() -> None:
    result = run("file-v2", crash=last_rename("file-v2"))
    assert result.fates == {"j0": "committed"}
    assert "extra ['day=0/part-j0-0-0-0.csv']" in found(result)


def test_file_output_2_leaves_files_when_a_job_is_aborted() -> None:
    result = run("file-v2", event=Event(0, "cancel", "j0", True, 0.0))
    assert result.fates == {"j0": "untouched"}
    assert "the jobs are over, and yet missing [], extra ['day=0/" in found(result)


def test_direct_writing_leaves_what_a_failed_attempt_wrote() -> None:
    result = run("direct", crash=2)
    assert "G6" in found(result)
    assert "extra ['day=0/part-j0-0-0-0.csv']" in found(result)


@pytest.mark.parametrize("committer", ["file-v1", "manifest"])
def test_control_is_clean_under_the_same_troubles(committer: str) -> None:
    assert found(run(committer)) == ""
    for crash in range(1, 9):
        result = run(committer, crash=crash)
        assert result.fates == {"j0": "committed"}
        assert found(result) == ""
    assert found(run(committer, event=Event(0, "cancel", "j0", True, 0.0))) == ""


def test_file_output_1_does_not_survive_the_death_of_its_driver() -> None:
    plan = JobPlan("j0", "file-v1", tasks=2, files=2)
    whole = simulate_any(Scenario(0, "hdfs", (plan,), forced={}))
    renames = [int(line.split()[2]) for line in whole.history() if "j0.driver " in line and " rename_file" in line]
    result = simulate_any(Scenario(0, "hdfs", (plan,), forced={("j0.driver", renames[1]): "crash_after"}))
    assert "extra ['day=0/part-j0-0-0.csv'" in found(result)


def test_unsafe_committers_are_drawn_alone() -> None:
    for seed in range(20):
        scenario = draw_scenario(seed, "file-v2")
        assert len(scenario.jobs) == 1
        assert scenario == replace(scenario, events=(), fault_rate=0.0)
