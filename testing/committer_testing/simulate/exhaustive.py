"""Every single fault at every call of small jobs; every pair of faults of the smallest one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from committer.committers.registry import committer_for, default_committer
from committer.options.config import CommitterConfig
from committer.spec import Delivery
from committer.stores.memory import PROFILES
from committer_testing.simulate.scenario import (
    EARLIER_SUCCESS,
    NAMED,
    OLD,
    ONLY_ON,
    OUTSIDE,
    Event,
    JobPlan,
    Scenario,
    Trouble,
)
from committer_testing.simulate.simulation import simulate
from committer_testing.simulate.worlds import FENCING, KINDS, OUT, RENAMING

TROUBLES: tuple[Trouble, ...] = (
    "unavailable",
    "throttled",
    "unanswered",
    "lost",
    "late",
    "again",
    "crash_before",
    "crash_after",
    "cancel",
    "forbidden",
)
PAIRED: tuple[Trouble, ...] = ("lost", "unanswered", "late", "crash_before")
DELIVERIES: tuple[Delivery, ...] = ("listing", "message")

_BEFORE = {f"{OUT}/{name}": f"old {name}\n".encode() for name in OLD}
_BEFORE[f"{OUT}/_SUCCESS"] = EARLIER_SUCCESS

# What is special about a job, as fields of its plan.
SITUATIONS: Mapping[str, Mapping[str, object]] = {
    "append": {},
    "replace": {"config": CommitterConfig(conflict_mode="replace", validate_output=True)},
    "same-names": {"config": CommitterConfig(existing_target="replace")},
    "fresh": {},
    "replace-same-names": {"config": CommitterConfig(conflict_mode="replace", validate_output=True)},
    "replace-all": {"config": CommitterConfig(conflict_mode="replace", superseded_scope="destination")},
    # One directory that is written to, and one that is not; into the others files are added.
    "replace-named": {
        "config": CommitterConfig(conflict_mode="replace", superseded_directories=NAMED, validate_output=True)
    },
    "unmarked": {"config": CommitterConfig(mark_successful_jobs=False, validate_output=True)},
    # Every second file goes to an absolute path outside the destination.
    "elsewhere": {"elsewhere": True},
    "replace-elsewhere": {
        "config": CommitterConfig(conflict_mode="replace", superseded_scope="destination", validate_output=True),
        "elsewhere": True,
    },
    # A file where a directory must go, a directory where a file goes.
    "in-the-way": {"config": CommitterConfig(existing_target="replace")},
    # One task alone writes directories that are not there, so that they are renamed as a whole.
    "promoted": {
        "config": CommitterConfig(promote_directories=True),
        "tasks": 1,
        "files": 6,
        "directories": 3,
        "strays": True,
    },
    # The same of several tasks, of whose files none is kept in memory.
    "promoted-large": {
        "config": CommitterConfig(promote_directories=True),
        "files": 4,
        "own_directories": True,
        "strays": True,
    },
    # The same, with what their records say on the driver's disk.
    "promoted-kept": {
        "config": CommitterConfig(promote_directories=True),
        "files": 4,
        "own_directories": True,
        "strays": True,
    },
}
# Jobs whose drivers keep no file in memory, by the seed that says what their disk keeps: nothing, or all of it.
LARGE: Mapping[str, int] = {"promoted-large": 0, "promoted-kept": 2}
PROMOTED = ("promoted", *LARGE)
COMMON = ("append", "replace", "same-names")
EXHAUSTIVE = ("common", "rarer", "pairs")
RARER = tuple(name for name in SITUATIONS if name not in COMMON)
_IN_THE_WAY = {f"{OUT}/day=0": b"a file", f"{OUT}/day=1/part-0-1.csv/inner": b"a directory"}


def rarer(kind: str) -> list[str]:
    """The rarer situations of a store of `KINDS`: where directories are not real nothing is in the way of one."""
    return [name for name in RARER if name != "in-the-way" or kind in FENCING]


def small(
    kind: str, delivery: Delivery, situation: str, *, committer: str | None = None, **changes: object
) -> Scenario:
    """A job of two tasks with two files each, in which nothing goes wrong yet.

    Args:
        kind: The store.
        delivery: How its driver learns of task commits.
        situation: One of `SITUATIONS`.
        committer: The job's committer; the one for the store when None.
        changes: Other fields of the job's plan.
    """
    fields: dict[str, object] = {"shared_names": True, **SITUATIONS[situation], **changes}
    named = committer or committer_on(kind)
    plan = JobPlan("j0", named, delivery, **fields)  # type: ignore[arg-type]
    plan = replace(plan, config=committer_for(named).choices(plan.config))
    before = dict(_BEFORE)
    if plan.elsewhere:
        before |= OUTSIDE
    if situation.endswith("same-names"):
        before |= {f"{OUT}/{name}": f"old {name}\n".encode() for name in plan.names(0, 0)}
    elif situation == "in-the-way":
        taken = (f"{OUT}/day=0/", f"{OUT}/day=1/")
        before = {name: data for name, data in before.items() if not name.startswith(taken)} | _IN_THE_WAY
    elif situation in {"fresh", *PROMOTED}:
        before = {}
    seed = LARGE.get(situation, 0)
    return Scenario(seed, kind, (plan,), before=before, forced={}, reads_again=situation in LARGE)


def committer_on(kind: str) -> str:
    """The engine's committer for a store of `KINDS`."""
    return "manifest" if kind in RENAMING else default_committer(PROFILES[KINDS[kind][0]])


def singles(scenario: Scenario, troubles: tuple[Trouble, ...] = TROUBLES, *, stride: int = 1) -> Iterator[Scenario]:
    """One fault at every so many calls, each in a run of its own; only drivers are cancelled."""
    for place in simulate(scenario).order[::stride]:
        for trouble in troubles:
            if trouble != "cancel" or place[0].endswith(".driver"):
                yield replace(scenario, forced={place: trouble})


def _pairs(scenario: Scenario, troubles: tuple[Trouble, ...] = PAIRED) -> Iterator[Scenario]:
    """Two faults at any two calls of an undisturbed run."""
    for first, second in combinations(simulate(scenario).order, 2):
        for one in troubles:
            for other in troubles:
                yield replace(scenario, forced={first: one, second: other})


def every_fault(of: str = "common", committer: str | None = None) -> Iterator[Scenario]:
    """Every fault of small jobs, on every store and by both deliveries.

    Args:
        of: One of `EXHAUSTIVE`: single faults of common situations, and where directories are renamed as a whole;
            single faults of rarer situations, and of a larger job; or pairs of faults of the smallest job.
        committer: Only its stores; None for all.
    """
    for kind in KINDS:
        if committer is not None and kind != ONLY_ON.get(committer, kind if kind in RENAMING else ""):
            continue
        for delivery in DELIVERIES:
            if of == "pairs":
                yield from _pairs(small(kind, delivery, "append", committer=committer, tasks=1, files=1))
            elif of == "rarer":
                for situation in rarer(kind):
                    yield from singles(small(kind, delivery, situation, committer=committer))
                yield from singles(small(kind, delivery, "append", committer=committer, files=12, directories=3))
            else:
                yield from _common(kind, delivery, committer)


def _common(kind: str, delivery: Delivery, committer: str | None) -> Iterator[Scenario]:
    sealing = kind in FENCING and committer in (None, "manifest")
    for situation in (*COMMON, *PROMOTED) if sealing else COMMON:
        scenario = small(kind, delivery, situation, committer=committer)
        yield from singles(scenario)
        yield from singles(replace(scenario, calm=False), ("crash_before", "crash_after"))
        # An operator recovers while the driver is under way.
        beside = replace(scenario, events=(Event(0, "recover", "j0", True, 0.3),))
        yield from singles(beside, ("lost", "late", "crash_before"))
