"""Each process takes only steps that the protocol's table allows, and the rules notice one that does not."""

from __future__ import annotations

import pytest

from committer_testing.simulate.scenario import draw_scenario
from committer_testing.simulate.simulation import simulate
from tests.simulate.bugs_of_rules import SAYS
from tests.simulate.mutants import apply

SEEDS = 250


@pytest.mark.parametrize("mutant", SAYS)
def test_a_step_that_the_table_does_not_allow_is_noticed(mutant: str) -> None:
    for seed in range(SEEDS):
        scenario = draw_scenario(seed)
        with apply(mutant):
            found = [one.message for one in simulate(scenario).violations if one.guarantee == "protocol"]
        if any(SAYS[mutant] in message for message in found):
            assert all(one.guarantee != "protocol" for one in simulate(scenario).violations)
            return
    pytest.fail(f"nothing said {SAYS[mutant]!r}")


def test_a_directory_that_a_write_made_again_after_the_job_was_gone_may_be_removed() -> None:
    """On ADLS a recoverer's temporary `_SUCCESS` creates its parents, just after the driver removed the job."""
    result = simulate(draw_scenario(70110664))
    assert not result.violations


def test_a_recoverer_moves_the_marker_of_the_job_itself_aside_where_files_have_no_identity() -> None:
    """docs/guarantees.md, the second exception for `_SUCCESS`."""
    result = simulate(draw_scenario(70115401))
    assert not result.violations


def test_a_recoverer_that_looks_while_the_driver_keeps_the_outcome_may_go_on() -> None:
    result = simulate(draw_scenario(70116324))
    assert not result.violations


def test_a_decision_created_after_the_removal_of_an_aborted_job_changes_nothing_for_who_removes_it() -> None:
    result = simulate(draw_scenario(73100621, "directory"))
    assert not result.violations


@pytest.mark.parametrize(
    ("seed", "committer"),
    [
        (80000577, "manifest"),
        (80083427, "manifest"),
        (81022306, "magic"),
        (81029996, "magic"),
        (82011571, "block-list"),
        (82039243, "block-list"),
        (82044661, "block-list"),
        (83003489, "directory"),
        (83022493, "directory"),
        (84015634, "partitioned"),
    ],
    ids=[
        "a write makes `work` again after the fence, and its driver looks for the setup record",
        "an abort takes another attempt's record away, and a job commit puts it back",
        "a setup record comes again, and a driver deletes its entry",
        "a setup record comes again while the job's removal stands still",
        "a setup record comes again, and an abort decides once more",
        "an outcome whose answer was lost is sent again after others removed the job",
        "an entry of an earlier run of the id stays until a cleanup by age",
        "a setup record comes again, and late tasks begin uploads",
        "a driver puts the marker back that it moved, while others roll the job back",
        "a late record in one of two directories that keep an outcome",
    ],
)
def test_what_a_late_request_leaves_is_no_violation(seed: int, committer: str) -> None:
    assert not simulate(draw_scenario(seed, committer)).violations
