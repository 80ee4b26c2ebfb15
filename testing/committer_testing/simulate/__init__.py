"""A search for a counter-example to the guarantees: whole clusters in virtual time, every fault drawn from a seed.

Run it as ``python -m committer_testing.simulate``.
"""

from __future__ import annotations

from committer_testing.simulate.checker import Checker, GuaranteeBrokenError
from committer_testing.simulate.ledger import Attempt, Ledger
from committer_testing.simulate.result import Result, Violation
from committer_testing.simulate.scenario import Event, JobPlan, Scenario, draw_scenario
from committer_testing.simulate.simulation import Simulation, simulate
from committer_testing.simulate.worlds import DiskWorld, MemoryWorld, World

__all__ = [
    "Attempt",
    "Checker",
    "DiskWorld",
    "Event",
    "GuaranteeBrokenError",
    "JobPlan",
    "Ledger",
    "MemoryWorld",
    "Result",
    "Scenario",
    "Simulation",
    "Violation",
    "World",
    "draw_scenario",
    "simulate",
]
