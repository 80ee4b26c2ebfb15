"""What happens in one run: its jobs, what others do, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from committer.options.config import CommitterConfig
from committer.spec import Delivery
from committer.testing.faults import FaultKind
from committer_testing.simulate.worlds import ELSEWHERE, OUT

Trouble: TypeAlias = FaultKind | Literal["slow", "cancel"]
EventKind: TypeAlias = Literal[
    "recover",
    "roll_back",
    "abort",
    "cleanup",
    "cleanup_old",
    "commit_too",
    "commit_others",
    "crash",
    "cancel",
    "freeze",
    "partition",
    "stranger",
    "squatter",
    "rewrite",
]
Ending: TypeAlias = Literal["abort", "roll_back", "cleanup", "nothing"]
STAGING: frozenset[str] = frozenset({"directory", "partitioned"})
ENGINE: frozenset[str] = frozenset({"manifest", "magic", "block-list", *STAGING})
"""The engine's own committers, those whose tasks write to a disk among them; others are models, which tests bring."""
ONLY_ON: dict[str, str] = {"magic": "s3", "block-list": "azure-flat", **dict.fromkeys(STAGING, "s3")}
"""Committers for which one kind of store is there; `magic` also runs on `SERVICES`."""

FAULTS: tuple[Trouble, ...] = (
    "unavailable", "throttled", "unanswered", "lost", "lost", "late", "again", "slow", "crash_before", "crash_after",
)  # fmt: skip

EARLIER_SUCCESS = (
    b'{"name":"org.apache.hadoop.fs.s3a.commit.files.SuccessData/1","success":true,"jobId":"earlier","filenames":[]}'
)
NAMED = ("day=0", "other")
OLD = ("day=0/old-1.csv", "day=0/old-2.csv", "day=1/old-3.csv", "other/old.csv", "top.csv")
OUTSIDE = {
    f"{ELSEWHERE}/{name}": f"old {name} outside\n".encode() for name in ("day=0/old.csv", "day=1/old.csv", "top.csv")
}
# Begun by another user before all jobs, and never ended: below the destination, at a name that jobs write, and beside
# it.
OTHERS_UPLOADS = (f"{OUT}/day=0/upload.csv", f"{OUT}/day=0/part-j0-0-0.csv", f"{OUT}0/upload.csv")


@dataclass(frozen=True)
class JobPlan:
    """One job.

    Attributes:
        job_id: Its name in the run, and its id unless `under` says otherwise.
        committer: The engine's own, or a model of another one.
        delivery: How the driver learns of task commits.
        config: The job's choices.
        tasks: How many there are.
        files: Files a task writes.
        directories: Directories they go to, in turn.
        starts_s: When its driver starts.
        names_winners: Whether a driver that learns by listing names the winners all the same.
        says_tasks: Whether it says how many tasks there are.
        shared_names: Whether every job writes the same names, else each its own.
        attempt_names: Whether every attempt of a task writes names of its own.
        own_directories: Whether every task writes to directories that no other writes to.
        clash: Whether every task writes the names of the first one, which no commit may let pass.
        patience_s: How long the driver waits for an attempt before it starts another one beside it.
        mischief: How likely each thing is to go wrong in an attempt.
        aborts_lost: Whether the driver aborts attempts that failed or that it gave up.
        elsewhere: Whether every second file goes to an absolute path outside the destination.
        under: The job whose id it is set up under anew, once its driver ended that one; empty for an id of its own.
        ends_by: How it ends that one; ``nothing``: it does not, and sets its own up beside that one.
        same_names: Whether it writes the names that the other one writes.
        workers: How many workers publish for its driver; 0 where that publishes itself.
        twice: Whether every task is run by two attempts at once, so that two drivers can choose different winners.
        strays: Whether attempts go on writing into their directories after they committed.
    """

    job_id: str
    committer: str = "manifest"
    delivery: Delivery = "listing"
    config: CommitterConfig = field(default_factory=CommitterConfig)
    tasks: int = 2
    files: int = 2
    directories: int = 2
    starts_s: float = 0.0
    names_winners: bool = False
    says_tasks: bool = True
    shared_names: bool = False
    attempt_names: bool = False
    own_directories: bool = False
    clash: bool = False
    patience_s: float = 60.0
    mischief: float = 0.0
    aborts_lost: bool = False
    elsewhere: bool = False
    under: str = ""
    ends_by: Ending = "abort"
    same_names: bool = False
    workers: int = 0
    twice: bool = False
    strays: bool = False

    @property
    def id(self) -> str:
        """The id that it has at the destination."""
        return self.under or self.job_id

    def names(self, task: int, attempt: int) -> list[str]:
        """What an attempt writes."""
        stem = "part" if self.shared_names else f"part-{self.id if self.same_names else self.job_id}"
        tail = f"-{attempt}" if self.attempt_names else ""
        task = 0 if self.clash else task
        top = f"task={task}/" if self.own_directories else ""
        names = [
            f"{top}day={number % self.directories}/{stem}-{task}-{number}{tail}.csv" for number in range(self.files)
        ]
        if self.elsewhere:
            names[1::2] = [f"/{ELSEWHERE}/{name}" for name in names[1::2]]
        return names

    def files_of(self, task: int, attempt: int) -> dict[str, bytes]:
        """Names and contents: other bytes than any other attempt's, but as many, so that no length gives it away."""
        return {
            name: f"{self.job_id} task {task} attempt {attempt} file {number}\n".encode()
            for number, name in enumerate(self.names(task, attempt))
        }


@dataclass(frozen=True)
class AttemptPlan:
    """What becomes of one attempt.

    Attributes:
        works_s: How long it computes before each file.
        fails: Whether the user's code fails half way.
        unheard: Whether its message never reaches the driver.
        heard_after_s: How long its message is under way, as when it is cut off from the driver for a while.
        partitioned_s: For how long it is cut off from the store once it has opened.
        freezes_at: The number of the call before which its process stands still; 0 for never.
        freezes_s: For how long.
    """

    works_s: float
    fails: bool
    unheard: bool
    heard_after_s: float
    partitioned_s: float
    freezes_at: int
    freezes_s: float


@dataclass(frozen=True)
class Event:
    """Something that an operator or another process does, or that befalls a driver.

    Attributes:
        number: Its place among the events.
        kind: What happens.
        job_id: To which job.
        in_commit: Counted from the moment the job's driver begins to commit, else from the start.
        at_s: When.
        for_s: How long it lasts.
        freezes_at: The number of the operator's call before which its process stands still, for so long; 0 for never.
    """

    number: int
    kind: EventKind
    job_id: str
    in_commit: bool
    at_s: float
    for_s: float = 0.0
    freezes_at: int = 0

    def __str__(self) -> str:
        since = "its commit" if self.in_commit else "the start"
        return f"event {self.number}: {self.kind} of {self.job_id}, {self.at_s:.3f} s after {since}"


@dataclass(frozen=True)
class Scenario:
    """One run.

    Attributes:
        seed: What it was drawn from, and what everything else in it is drawn from.
        kind: The store, one of `KINDS` or `SERVICES`.
        jobs: The jobs, all of one destination.
        events: What others do.
        before: What stands in the world beforehand.
        fault_rate: How likely each call is to meet a fault.
        forced: Faults at certain calls, by process and number of the call; then no others are drawn.
        without: Faults left out, by process and number of the call: for minimising.
        calm: Whether a fresh process that ends what is left may commit a job that no driver began to commit.
        reads_again: Whether drivers keep no file in memory and read the records again, as those of large jobs do.
    """

    seed: int
    kind: str
    jobs: tuple[JobPlan, ...]
    events: tuple[Event, ...] = ()
    before: Mapping[str, bytes] = field(default_factory=dict)
    fault_rate: float = 0.0
    forced: Mapping[tuple[str, int], Trouble] | None = None
    without: frozenset[tuple[str, int]] = frozenset()
    calm: bool = True
    reads_again: bool = False

    def attempt(self, job: JobPlan, task: int, attempt: int) -> AttemptPlan:
        """What becomes of an attempt; the same whatever else is left out of the run."""
        draw = random.Random(f"{self.seed} {job.job_id} {task} {attempt}")
        drawn = [draw.random() for _ in range(10)]
        slow = drawn[1] < job.mischief
        return AttemptPlan(
            works_s=drawn[0] * (3.0 if slow else 0.1),
            fails=drawn[2] < job.mischief,
            unheard=drawn[3] < job.mischief / 2,
            heard_after_s=drawn[7] * 6.0 if drawn[8] < job.mischief / 2 else 0.0,
            partitioned_s=drawn[7] * 3.0 if drawn[9] < job.mischief / 3 else 0.0,
            freezes_at=1 + int(drawn[5] * 14) if drawn[4] < job.mischief else 0,
            freezes_s=0.5 + drawn[6] * 6.0,
        )
