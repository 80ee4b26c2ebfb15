"""Runs whose jobs are of the engine's own `file-v1` and `file-v2`, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import count

from committer_testing.simulate.committers import EngineCommitter
from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import JobPlan, Scenario, draw_scenario
from committer_testing.simulate.simulation import simulate
from tests.simulate.object_readers import ObjectWorld, seen_by_readers_of_decisions

RENAMING_DIRECTORIES = ("local", "hdfs", "adls")
"""Stores that `file-v1` has."""

_OF_TASKS = re.compile(r"/part(?:-[jk]\d+)?-\d+-\d+(?:-\d+)?\.csv$")


def simulate_file(committer: str, scenario: Scenario) -> Result:
    """Runs a scenario whose jobs are of a committer of the engine's that only its name asks for."""
    return simulate(scenario, {"manifest": EngineCommitter(committer)})


def file_v1_scenario(seed: int) -> Scenario | None:
    """The run of a seed by listing, as Hadoop's tasks and drivers take part; None on a store that is not for it."""
    scenario = draw_scenario(seed)
    if scenario.kind not in RENAMING_DIRECTORIES:
        return None
    return replace(scenario, jobs=tuple(replace(job, delivery="listing", elsewhere=False) for job in scenario.jobs))


class MergedWorld(ObjectWorld):
    """What `visible` shows is what existed there before, what other programs wrote, and of jobs what decisions name."""

    def _counts(self, name: str) -> bool:
        return name in self.counting or not _OF_TASKS.search(name)


def file_v2_scenario(seed: int) -> Scenario | None:
    """The run of a seed, with choices that the committer takes, of jobs that write no name which another one writes."""
    scenario = draw_scenario(seed)
    if scenario.kind not in (*RENAMING_DIRECTORIES, "gcs"):
        return None
    jobs = tuple(
        replace(
            job,
            config=job.config.replace(conflict_mode="append", superseded_scope=None, superseded_directories=()),
            clash=False,
            shared_names=False,
            same_names=False,
            elsewhere=False,
        )
        for job in scenario.jobs
    )
    before = {name: data for name, data in scenario.before.items() if not _OF_TASKS.search(name)}
    before = {name: data for name, data in before.items() if not _OF_TASKS.search(name.rpartition("/")[0])}
    events = tuple(event for event in scenario.events if event.kind != "squatter")
    return replace(scenario, jobs=jobs, before=before, events=events)


@cache
def _attempts_that_die() -> list[Scenario]:
    """Each task is run by two attempts at once, and a process dies after one of its calls."""
    plan = JobPlan("j0", tasks=2, files=2, twice=True, attempt_names=True, patience_s=0.5)
    whole = Scenario(0, "hdfs", (plan,), forced={})
    places = simulate_file("file-v1", whole).order
    return [replace(whole, forced={place: "crash_after"}) for place in places]


def file_v1_schedules() -> Iterator[Scenario]:
    """Deaths at every call where two attempts of a task commit; then seeds."""
    yield from _attempts_that_die()
    for seed in count():
        scenario = file_v1_scenario(seed)
        if scenario is not None:
            yield scenario


def file_v2_schedules() -> Iterator[Scenario]:
    """Seeds."""
    for seed in count():
        scenario = file_v2_scenario(seed)
        if scenario is not None:
            yield scenario


def wrong_with_file_v1(scenario: Scenario) -> list[tuple[str, str]]:
    """Guarantees that a run of `file-v1` breaks, and how."""
    return [(one.guarantee, one.message) for one in simulate_file("file-v1", scenario).violations]


def wrong_with_file_v2(scenario: Scenario) -> list[tuple[str, str]]:
    """What a reader who goes by what is decided sees wrong of a run of `file-v2`.

    What stays of attempts that do not count is its design, and so is what an abort leaves, or a task attempt that a
    job commit overtakes.
    """
    with seen_by_readers_of_decisions(MergedWorld):
        result = simulate_file("file-v2", scenario)
    return [(one.guarantee, one.message) for one in result.violations]
