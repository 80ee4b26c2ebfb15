"""Every single fault at every call of small jobs; every pair of faults of the smallest one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from committer.config import CommitterConfig
from committer.spec import Delivery
from committer.testing.simulate.scenario import (
    EARLIER_SUCCESS,
    OLD,
    Event,
    JobPlan,
    Scenario,
    Trouble,
)
from committer.testing.simulate.simulation import simulate
from committer.testing.simulate.worlds import KINDS, OUT, RENAMING

TROUBLES: tuple[Trouble, ...] = (
    "unavailable",
    "throttled",
    "unanswered",
    "lost",
    "late",
    "again",
    "crash_before",
    "crash_after",
)
PAIRED: tuple[Trouble, ...] = ("lost", "unanswered", "late", "crash_before")
DELIVERIES: tuple[Delivery, ...] = ("listing", "message")

_BEFORE = {f"{OUT}/{name}": f"old {name}\n".encode() for name in OLD}
_BEFORE[f"{OUT}/_SUCCESS"] = EARLIER_SUCCESS

CONFIGS: dict[str, CommitterConfig] = {
    "append": CommitterConfig(),
    "replace": CommitterConfig(conflict_mode="replace", validate_output=True),
    "same-names": CommitterConfig(existing_target="replace"),
}


def small(kind: str, delivery: Delivery, situation: str, *, tasks: int = 2, files: int = 2) -> Scenario:
    """A job in which nothing goes wrong yet."""
    plan = JobPlan(
        "j0",
        committer_on(kind),
        delivery,
        CONFIGS[situation],
        tasks=tasks,
        files=files,
        shared_names=True,
    )
    before = dict(_BEFORE)
    if situation == "same-names":
        before.update({f"{OUT}/{name}": f"old {name}\n".encode() for name in plan.names(0, 0)})
    return Scenario(0, kind, (plan,), before=before, forced={})


def committer_on(kind: str) -> str:
    """The engine's committer for a store of `KINDS`."""
    return "manifest" if kind in RENAMING else "magic"


def singles(scenario: Scenario, troubles: tuple[Trouble, ...] = TROUBLES, *, stride: int = 1) -> Iterator[Scenario]:
    """One fault at every so many calls, each in a run of its own."""
    for place in simulate(scenario).order[::stride]:
        for trouble in troubles:
            yield replace(scenario, forced={place: trouble})


def pairs(scenario: Scenario, troubles: tuple[Trouble, ...] = PAIRED) -> Iterator[Scenario]:
    """Two faults at any two calls of an undisturbed run."""
    for first, second in combinations(simulate(scenario).order, 2):
        for one in troubles:
            for other in troubles:
                yield replace(scenario, forced={first: one, second: other})


def every_fault(committer: str | None = None, *, pairs: bool = False) -> Iterator[Scenario]:
    """All of it.

    Args:
        committer: Only its stores; None for all.
        pairs: Pairs of faults of the smallest job instead, on every store and by both deliveries.
    """
    for kind in KINDS:
        if committer not in (None, committer_on(kind)):
            continue
        for delivery in DELIVERIES:
            if pairs:
                yield from _pairs(small(kind, delivery, "append", tasks=1, files=1))
                continue
            for situation in CONFIGS:
                scenario = small(kind, delivery, situation)
                yield from singles(scenario)
                yield from singles(replace(scenario, calm=False), ("crash_before", "crash_after"))
                # An operator recovers while the driver is under way.
                beside = replace(scenario, events=(Event(0, "recover", "j0", True, 0.3),))
                yield from singles(beside, ("lost", "late", "crash_before"))


_pairs = pairs
