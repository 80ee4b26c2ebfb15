"""Runs in which several processes end one job: drivers with different winners, and operators that stand still."""

from __future__ import annotations

import random
from dataclasses import replace

from committer_testing.simulate.plans import Event, EventKind, JobPlan
from committer_testing.simulate.worlds import FENCING, SERVICES

# How many of a hundred runs there are several in.
_SEVERAL = 0.25

_KINDS: tuple[EventKind, ...] = (
    "commit_others", "commit_others", "commit_too", "recover", "recover", "abort", "cleanup", "cleanup_old",
)  # fmt: skip


def add_drivers(
    seed: int, jobs: tuple[JobPlan, ...], events: tuple[Event, ...], kind: str
) -> tuple[tuple[JobPlan, ...], tuple[Event, ...]]:
    """Adds them to a run, or nothing.

    They are drawn from numbers of their own, so that every other seed is what it was before there were any.
    """
    draw = random.Random(f"several drivers {seed}")
    if draw.random() >= _SEVERAL:
        return jobs, events
    kinds: tuple[EventKind, ...] = (*_KINDS, "roll_back") if kind in (*FENCING, "s3", *SERVICES) else _KINDS
    one = draw.choice(jobs)
    more = tuple(_draw_process(draw, len(events) + at, kinds, one.job_id) for at in range(draw.choice((2, 2, 3, 4))))
    dies = draw.random() < 0.3
    if one.under and dies:
        more = (*more, replace(more[0], number=len(events) + len(more), kind="crash", freezes_at=0))
    twice, keeps = draw.random() < 0.7, draw.random() < 0.5

    def changed(job: JobPlan) -> JobPlan:
        if job.under and keeps:
            job = replace(job, config=job.config.replace(outcome_kept=True))
        if job is one or job.job_id == one.job_id:
            # By listing all drivers find the same winners, unless they name them.
            job = replace(job, twice=twice, names_winners=job.names_winners or twice)
        return job

    return tuple(map(changed, jobs)), (*events, *more)


def _draw_process(draw: random.Random, number: int, kinds: tuple[EventKind, ...], job_id: str) -> Event:
    kind, stands_still = draw.choice(kinds), draw.random() < 0.7
    return Event(
        number,
        kind,
        job_id,
        in_commit=draw.random() < 0.85,
        at_s=draw.random() * draw.choice((0.2, 0.2, 1.0, 3.0 if stands_still else 8.0)),
        for_s=0.5 + draw.random() * 8.0,
        freezes_at=1 + int(draw.random() * 45) if stands_still else 0,
    )
