"""Every planted bug is found."""

from __future__ import annotations

import pytest

from committer.spec import Delivery
from committer_testing.simulate.exhaustive import DELIVERIES, small
from committer_testing.simulate.minimise import minimise
from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import draw_scenario
from committer_testing.simulate.simulation import simulate
from committer_testing.simulate.worlds import FENCING
from tests.simulate.hunt import hunt
from tests.simulate.mutants import IN_FINDINGS, MUTANTS, apply
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
    "earlier-commit-deleted": 110,
    "listing-before-the-seal": 180,
    "loser-keeps-its-winners": 2200,
    "lists-put-blindly": 130,
    "lost-answers-ignored": 540,
    "lost-lists-put-again": 130,
    "manifest-deleted-before-rename": 740,
    "moved-aside-passed-over": 110,
    "no-fence": 40,
    "no-copies": 130,
    "opened-not-exclusive": 210,
    "outcome-not-exclusive": 10,
    "publish-errors-ignored": 40,
    "rollback-by-name": 670,
    "setup-record-not-looked-for": 680,
    "unfinished-neighbours-ignored": 180,
    "unopened-directories-passed-over": 430,
}


HUNTED = [mutant for mutant in MUTANTS if mutant not in IN_FINDINGS]


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
        for seed in range(1273, 2000):
            result = simulate(draw_scenario(seed))
            if result.violations and len(result.faults) > 2:
                break
        smallest = minimise(result)
    assert smallest.violations[0].guarantee == result.violations[0].guarantee
    assert len(smallest.faults) < len(result.faults)
    assert len(smallest.history()) <= len(result.history())


def found(result: Result) -> str:
    return "\n".join(violation.message for violation in result.violations)
