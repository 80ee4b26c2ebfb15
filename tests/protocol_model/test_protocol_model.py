"""The protocol holds in small scenarios, the search finds planted faults, and the table has a row for everything."""

from __future__ import annotations

import pytest

from tests.protocol_model.mutants import hunt
from tests.protocol_model.runs import QUICK, QUICK_MUTANTS, Run
from tests.protocol_model.table import ACTIONS, classify, combinations


@pytest.mark.parametrize("run", QUICK, ids=lambda run: f"{run.kind}-{run.scenario}-{run.faults}")
def test_no_interleaving_breaks_the_protocol(run: Run) -> None:
    result = run.search(trace=True)
    assert result.whole
    assert result.ends
    assert not result.violations


@pytest.mark.parametrize("name", QUICK_MUTANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    assert hunt(name).violations


def test_the_table_has_an_action_for_all_that_can_stand() -> None:
    for seen in combinations():
        actions = ACTIONS[classify(seen)]
        assert set(actions) == {"commit", "recover", "rollback", "abort", "force"}, seen
        live = seen.setup and seen.opened == "open"
        if {"decide", "publish", "finish", "undo", "abort"} & set(actions.values()):
            assert live, f"only a live job decides, publishes or is undone: {seen}"
        if seen.outcome == "committed" and live:
            assert not {"abort", "undo"} & set(actions.values()), seen
        if seen.kept and not seen.setup:
            assert {actions[wish] for wish in ("commit", "recover", "rollback", "abort")} == {"report"}, seen
