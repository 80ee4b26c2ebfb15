"""What happens in one run, drawn from its seed: the store, the jobs, who does what when, and how much goes wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from committer.committers.registry import committer_for
from committer.file_names import unique_name
from committer.options.config import CommitterConfig
from committer.spec import Delivery
from committer_testing.simulate.plans import (
    EARLIER_SUCCESS,
    ENGINE,
    FAULTS,
    NAMED,
    OLD,
    ONLY_ON,
    OTHERS_UPLOADS,
    OUTSIDE,
    STAGING,
    AttemptPlan,
    Ending,
    Event,
    EventKind,
    JobPlan,
    Scenario,
    Trouble,
)
from committer_testing.simulate.several_drivers import add_drivers
from committer_testing.simulate.worlds import FENCING, OUT, PROVING, RENAMING, SERVICES, UPLOADING

__all__ = [
    "EARLIER_SUCCESS",
    "ENGINE",
    "FAULTS",
    "NAMED",
    "OLD",
    "ONLY_ON",
    "OTHERS_UPLOADS",
    "OUTSIDE",
    "STAGING",
    "AttemptPlan",
    "Ending",
    "Event",
    "EventKind",
    "JobPlan",
    "Scenario",
    "Trouble",
    "draw_scenario",
]

# How many of a hundred runs set an id up anew.
_SET_UP_ANEW = 0.2
# In how many of a hundred jobs attempts write on after they committed; of those that promote directories in most.
_STRAYS = (0.1, 0.7)
# In how many of a hundred runs in which directories are promoted drivers treat their jobs as large ones.
_READS_AGAIN = 0.4
# How many of a hundred runs of `magic` are on a service without conditional deletes.
_SERVICE = 0.25
# In how many of a hundred runs in which old files are taken away another user writes some anew.
_REWRITES = 0.5
_BESIDE = 0.3
# Ends the name of a file whose writer does not use that name again.
_USED_ONCE = "0" * 20

_CONFLICTS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"conflict_mode": "replace"},
    {"conflict_mode": "replace", "superseded_scope": "destination"},
    {"existing_target": "replace"},
)


def draw_scenario(seed: int, committer: str = "manifest", *, workers: bool = False) -> Scenario:
    """The run of a seed.

    Args:
        seed: Any number.
        committer: The committer of all jobs. Models of unsafe ones run alone, where nothing but tasks goes wrong.
        workers: Whether workers publish for all drivers that set a job up; all else is as without.
    """
    draw = random.Random(f"scenario {seed}")
    kind = draw.choice(PROVING) if draw.random() < 0.9 else draw.choice(sorted(RENAMING))
    kind = _service(seed) if committer == "magic" else ONLY_ON.get(committer, kind)
    alone = committer not in ENGINE or kind not in (*PROVING, *UPLOADING)
    shared = draw.random() < 0.2
    jobs = tuple(
        _draw_job(draw, f"j{number}", committer, shared=shared)
        for number in range(1 if alone else draw.choice((1, 1, 2, 2, 3)))
    )
    before: dict[str, bytes] = {}
    if draw.random() < 0.7:
        before = {f"{OUT}/{name}": f"old {name}\n".encode() for name in OLD}
        before["beside/x.csv"] = b"x"
        before[f"{OUT}/_metadata/m"] = b"m"
    if draw.random() < 0.4 and before:
        for name in jobs[0].names(0, 0):
            before[f"{OUT}/{name}"] = f"old {name}\n".encode()
    if draw.random() < 0.5:
        before[f"{OUT}/_SUCCESS"] = EARLIER_SUCCESS
    if len(jobs) == 1 and jobs[0].config.existing_target == "replace" and seed % 2:
        before = _in_the_way(before)
    events: tuple[Event, ...] = ()
    fault_rate = 0.0
    if committer in ENGINE:
        events = tuple(_draw_event(draw, number, jobs, kind) for number in range(draw.choice((0, 1, 1, 2, 3, 5))))
        fault_rate = draw.choice((0.0, 0.003, 0.01, 0.03))
    calm = draw.random() < 0.5
    if committer in ENGINE:
        # Drawn last, so that all else of a seed is what it was before there was this choice.
        jobs = tuple(replace(job, config=job.config.replace(outcome_kept=draw.random() < 0.25)) for job in jobs)
        jobs = tuple(replace(job, elsewhere=draw.random() < 0.15) for job in jobs)
        if before and any(job.elsewhere for job in jobs):
            before = {**before, **OUTSIDE}
        if not alone and draw.random() < _SET_UP_ANEW:
            jobs, events = _draw_anew(draw, jobs, events, kind, shared=shared)
            jobs = _set_up_beside(seed, jobs)
        named = [job.config.replace(superseded_directories=NAMED * (draw.random() < 0.3)) for job in jobs]
        named = list(map(committer_for(committer).choices, named))
        jobs = tuple(replace(job, config=config) for job, config in zip(jobs, named, strict=True))
    if workers:
        number = random.Random(f"workers {seed}")
        jobs = tuple(replace(job, workers=number.choice((1, 2, 3))) for job in jobs)
    if committer in ENGINE:
        jobs, events = add_drivers(seed, jobs, events, kind)
        events = _add_rewrites(seed, jobs, events, where=kind in UPLOADING and kind not in SERVICES and bool(before))
    reads_again = False
    if kind in FENCING and committer == "manifest":
        # By numbers of their own, too.
        number = random.Random(f"strays {seed}")
        jobs = tuple(
            replace(job, strays=number.random() < _STRAYS[bool(job.config.promote_directories)]) for job in jobs
        )
        if any(job.config.promote_directories for job in jobs):
            reads_again = random.Random(f"reads again {seed}").random() < _READS_AGAIN
    return Scenario(
        seed, kind, jobs, events, before=_names(before, kind), fault_rate=fault_rate, calm=calm, reads_again=reads_again
    )


def _names(before: Mapping[str, bytes], kind: str) -> Mapping[str, bytes]:
    """The same; where a service deletes by name old files have names that are not used again: else none is replaced."""
    if kind not in SERVICES:
        return before
    success = f"{OUT}/_SUCCESS"
    return {name if name == success else unique_name(name, _USED_ONCE): data for name, data in before.items()}


def _service(seed: int) -> str:
    """S3 itself, or a service whose deletes hear no condition. By numbers of its own."""
    draw = random.Random(f"service {seed}")
    return draw.choice(sorted(SERVICES)) if draw.random() < _SERVICE else "s3"


def _add_rewrites(seed: int, jobs: tuple[JobPlan, ...], events: tuple[Event, ...], *, where: bool) -> tuple[Event, ...]:
    """Other users write old files anew while a job takes them away, where those stand until its outcome.

    By numbers of their own, so that all else of a seed is what it was before there were any.
    """
    draw = random.Random(f"rewrites {seed}")
    replacing = [job for job in jobs if job.config.conflict_mode == "replace"]
    if not (where and replacing) or draw.random() >= _REWRITES:
        return events
    job_id = draw.choice(replacing).job_id
    more = (Event(len(events) + at, "rewrite", job_id, True, draw.random() * 0.5, 60.0) for at in range(2))
    return (*events, *more)


def _in_the_way(before: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same, but with a file where a directory must go, and a directory where a file must."""
    left = {name: data for name, data in before.items() if not name.startswith((f"{OUT}/day=0/", f"{OUT}/day=1/"))}
    return left | {f"{OUT}/day=0": b"a file", f"{OUT}/day=1/part-j0-0-1.csv/inner": b"a directory"}


def _draw_anew(
    draw: random.Random, jobs: tuple[JobPlan, ...], events: tuple[Event, ...], kind: str, *, shared: bool
) -> tuple[tuple[JobPlan, ...], tuple[Event, ...]]:
    """Another driver sets one of the jobs' ids up anew, while what acts on the earlier job may stand still."""
    earlier = draw.choice(jobs)
    ways: tuple[Ending, ...] = ("abort", "abort", "cleanup", "roll_back")
    later = replace(
        _draw_job(draw, f"k{earlier.job_id[1:]}", earlier.committer, shared=shared),
        under=earlier.job_id,
        starts_s=draw.random() * 0.8,
        ends_by=draw.choice(ways if kind in (*FENCING, *UPLOADING) else ways[:3]),
        same_names=draw.random() < 0.5,
        elsewhere=earlier.elsewhere,
        clash=False,
    )
    stands = _Stands(draw, earlier.job_id, len(events))
    return (*jobs, later), (*events, stands.driver(), *(stands.operator() for _ in range(draw.choice((0, 0, 1, 2)))))


def _set_up_beside(seed: int, jobs: tuple[JobPlan, ...]) -> tuple[JobPlan, ...]:
    """Makes two drivers of some runs set up one id at about the same time. Draws from a generator of its own."""
    draw = random.Random(f"beside {seed}")
    if draw.random() >= _BESIDE:
        return jobs
    *others, later = jobs
    (earlier,) = [job for job in others if job.job_id == later.under]
    return (*others, replace(later, ends_by="nothing", starts_s=earlier.starts_s + draw.random() * 0.2))


class _Stands:
    """Draws what stands still while an id is set up anew."""

    def __init__(self, draw: random.Random, job_id: str, number: int) -> None:
        self._draw = draw
        self._job_id = job_id
        self._number = number

    def driver(self) -> Event:
        """The earlier driver."""
        draw = self._draw
        in_commit = draw.random() < 0.8
        return self._event("freeze", in_commit, draw.random() * 0.8)

    def operator(self) -> Event:
        """An operator, at some call."""
        draw = self._draw
        kinds: tuple[EventKind, ...] = ("recover", "abort", "cleanup", "cleanup_old")
        return self._event(draw.choice(kinds), draw.random() < 0.8, draw.random() * 0.8, 1 + int(draw.random() * 25))

    def _event(self, kind: EventKind, in_commit: bool, at_s: float, freezes_at: int = 0) -> Event:
        self._number += 1
        for_s = 1.0 + self._draw.random() * 6.0
        return Event(self._number - 1, kind, self._job_id, in_commit, at_s, for_s, freezes_at)


def _draw_job(draw: random.Random, job_id: str, committer: str, *, shared: bool) -> JobPlan:
    choices: dict[str, object] = dict(draw.choice(_CONFLICTS)) if committer in ENGINE else {}
    if shared and choices.get("existing_target") == "replace":
        choices = {}
    choices["validate_output"] = draw.random() < 0.3
    choices["promote_directories"] = draw.random() < 0.2
    choices["mark_successful_jobs"] = draw.random() < 0.85
    delivery: Delivery = draw.choice(("listing", "message"))
    # Large enough to be promoted, and to what no other task writes.
    promoted = choices["promote_directories"] and not shared
    return JobPlan(
        job_id,
        committer,
        delivery,
        CommitterConfig(**choices),  # type: ignore[arg-type]
        tasks=draw.choice((1, 2, 2, 3)),
        files=draw.choice((4, 5)) if promoted else draw.choice((1, 2, 3)),
        directories=draw.choice((1, 2)),
        starts_s=0.0 if job_id == "j0" else draw.random() * 1.5,
        names_winners=draw.random() < 0.3,
        says_tasks=draw.random() < 0.6,
        shared_names=shared,
        attempt_names=draw.random() < 0.3,
        own_directories=bool(promoted),
        clash=committer in ENGINE and draw.random() < 0.04,
        patience_s=draw.choice((0.3, 1.0, 60.0)),
        mischief=draw.choice((0.0, 0.1, 0.3)),
        aborts_lost=draw.random() < 0.3,
    )


_EVENTS: tuple[EventKind, ...] = (
    "recover",
    "recover",
    "abort",
    "cleanup",
    "cleanup_old",
    "commit_too",
    "crash",
    "crash",
    "cancel",
    "freeze",
    "freeze",
    "partition",
    "stranger",
    "squatter",
)


def _draw_event(draw: random.Random, number: int, jobs: tuple[JobPlan, ...], kind: str) -> Event:
    kinds: tuple[EventKind, ...] = (*_EVENTS, "roll_back", "roll_back") if kind in (*FENCING, *UPLOADING) else _EVENTS
    in_commit = draw.random() < 0.75
    return Event(
        number,
        draw.choice(kinds),
        draw.choice(jobs).job_id,
        in_commit,
        draw.random() * (1.2 if in_commit else 3.0),
        0.3 + draw.random() * 4.0,
    )
