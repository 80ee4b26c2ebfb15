"""One seed is one history, byte for byte: in one process, in another, and whatever its hashes are salted with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from committer_testing.simulate.scenario import draw_scenario
from committer_testing.simulate.simulation import simulate

_TELL = """
import logging, sys
from committer_testing.simulate.scenario import draw_scenario
from committer_testing.simulate.simulation import simulate
logging.disable(logging.WARNING)
for seed in range(int(sys.argv[1])):
    print("seed", seed)
    print("\\n".join(simulate(draw_scenario(seed)).history()))
"""


def tell(seeds: int, salt: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-c", _TELL, str(seeds)],
        env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(["", *sys.path])},
        check=True,
        capture_output=True,
    ).stdout


@pytest.mark.parametrize("seed", range(40))
def test_a_seed_is_one_history(seed: int) -> None:
    first, second = simulate(draw_scenario(seed)), simulate(draw_scenario(seed))
    assert first.history() == second.history()
    assert len(first.history()) > 20
    assert first.faults == second.faults
    assert first.fates == second.fates


def test_hashes_do_not_matter() -> None:
    assert tell(25, "1") == tell(25, "2")


def test_seeds_differ() -> None:
    histories = {tuple(simulate(draw_scenario(seed)).history()) for seed in range(10)}
    assert len(histories) == 10


def test_leaving_a_fault_out_leaves_the_others_in() -> None:
    for seed in range(200):
        scenario = draw_scenario(seed)
        whole = simulate(scenario)
        if len(whole.faults) >= 3:
            break
    *_, last = whole.faults
    without = simulate(replace(scenario, without=frozenset({last})))
    assert last not in without.faults
    assert list(without.faults)[: len(whole.faults) - 1] == list(whole.faults)[:-1]
