"""A search for a counter-example to the guarantees: whole clusters in virtual time, every fault drawn from a seed.

Run it as ``python -m committer.testing.simulate``.
"""

from __future__ import annotations

from committer.testing.simulate.checker import Checker, GuaranteeBrokenError
from committer.testing.simulate.ledger import Attempt, Ledger
from committer.testing.simulate.result import Result, Violation
from committer.testing.simulate.scenario import Event, JobPlan, Scenario, draw_scenario
from committer.testing.simulate.simulation import Simulation, simulate
from committer.testing.simulate.worlds import DiskWorld, MemoryWorld, World

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
