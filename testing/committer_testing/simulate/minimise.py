"""A failing run with as little in it as still fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from committer_testing.simulate.result import Result
from committer_testing.simulate.scenario import JobPlan, Scenario
from committer_testing.simulate.simulation import simulate

_MOST_RUNS = 400


def minimise(result: Result) -> Result:
    """Leaves out one thing after the other while the run still breaks the same guarantee.

    Events, faults and whole jobs are left out, then what the jobs are is made simpler. What is left in meets the same
    chances as before, but may meet them at another moment, since less happens beside it.

    Args:
        result: A run that broke a guarantee.

    Returns:
        The smallest run found; at most 400 are tried.
    """
    guarantee = result.violations[0].guarantee
    smallest, tried, shrinking = result, 0, True
    while shrinking and tried < _MOST_RUNS:
        shrinking = False
        for smaller in _smaller(smallest):
            tried += 1
            found = simulate(smaller)
            if any(violation.guarantee == guarantee for violation in found.violations):
                smallest, shrinking = found, True
                break
            if tried >= _MOST_RUNS:
                break
    return smallest


def _smaller(result: Result) -> Iterator[Scenario]:
    """Runs that have one thing less, the largest things first."""
    scenario = result.scenario
    for job in scenario.jobs:
        if len(scenario.jobs) > 1:
            yield replace(
                scenario,
                jobs=tuple(one for one in scenario.jobs if one is not job),
                events=tuple(event for event in scenario.events if event.job_id != job.job_id),
            )
    if scenario.fault_rate:
        yield replace(scenario, fault_rate=0.0)
    for event in scenario.events:
        yield replace(scenario, events=tuple(one for one in scenario.events if one is not event))
    for fault in result.faults:
        yield replace(scenario, without=scenario.without | {fault})
    for number, job in enumerate(scenario.jobs):
        for simpler in _simpler(job):
            yield replace(scenario, jobs=(*scenario.jobs[:number], simpler, *scenario.jobs[number + 1 :]))
    if scenario.reads_again:
        yield replace(scenario, reads_again=False)
    if scenario.before:
        yield replace(scenario, before={})


def _simpler(job: JobPlan) -> Iterator[JobPlan]:
    if job.mischief:
        yield replace(job, mischief=0.0)
    if job.tasks > 1:
        yield replace(job, tasks=1)
    if job.files > 1:
        yield replace(job, files=1)
    if job.directories > 1:
        yield replace(job, directories=1)
