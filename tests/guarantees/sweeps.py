"""A fault at every call, one run after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from committer import CommitterConfig
from committer.flow.runtime import use_runtime
from committer.testing.virtual_time import VirtualRuntime
from committer_testing.simulate.worlds import KINDS, DiskWorld, World, world_of
from tests.guarantees.cluster import Cluster, Impatient, Plan, Trouble
from tests.guarantees.conftest import Tally

FAULTS: tuple[Trouble, ...] = ("unanswered", "lost", "crash_before", "crash_after")
REFUSALS: tuple[Trouble, ...] = ("unavailable", "throttled", "permanent")

_MOST_SHOWN = 5

EARLIER_SUCCESS = (
    b'{"name":"org.apache.hadoop.fs.s3a.commit.files.SuccessData/1","success":true,"jobId":"earlier","filenames":[]}'
)


def _old(names: Iterable[str]) -> dict[str, bytes]:
    return {f"out/{name}": f"old {name}\n".encode() for name in names}


AROUND = {
    "beside/x.csv": b"x",
    "outside.txt": b"y",
    "out2/part.csv": b"z",
    "out/_metadata/m": b"m",
    "out/.hidden": b"h",
    "out/_temporary/other/setup": b"{}",
    "out/_temporary/other/00/tasks/a/f": b"f",
    "out/_SUCCESS": EARLIER_SUCCESS,
}
EXISTING = _old(["day=0/old-1.csv", "day=0/old-2.csv", "day=1/old-3.csv", "other/old.csv", "top.csv"])
SAME = _old(["day=0/part-0-0.csv", "day=1/part-0-1.csv", "day=0/part-1-0.csv", "day=2/part-1-2.csv"])

OUTSIDE = {
    f"elsewhere/{name}": f"old {name} outside\n".encode()
    for name in ("day=0/old.csv", "day=1/old.csv", "day=7/old.csv", "top.csv")
}

SITUATIONS: dict[str, dict[str, object]] = {
    "fresh": {},
    "append": {"before": {**EXISTING, **AROUND}},
    "same-names": {"before": {**EXISTING, **SAME, **AROUND}, "config": CommitterConfig(existing_target="replace")},
    "replace": {"before": {**EXISTING, **AROUND}, "config": CommitterConfig(conflict_mode="replace")},
    "replace-same-names": {
        "before": {**EXISTING, **SAME, **AROUND},
        "config": CommitterConfig(conflict_mode="replace", validate_output=True),
    },
    "replace-all": {
        "before": {**EXISTING, **AROUND},
        "config": CommitterConfig(conflict_mode="replace", superseded_scope="destination"),
    },
    "replace-named": {
        "before": {**EXISTING, **AROUND},
        "config": CommitterConfig(conflict_mode="replace", superseded_directories=("day=0", "other")),
    },
    "unmarked": {
        "before": {**EXISTING, **AROUND},
        "config": CommitterConfig(mark_successful_jobs=False, validate_output=True),
    },
    # Every second file goes to an absolute path outside the destination.
    "elsewhere": {"before": {**EXISTING, **AROUND, **OUTSIDE}, "elsewhere": True},
    "replace-elsewhere": {
        "before": {**EXISTING, **SAME, **AROUND, **OUTSIDE, "elsewhere/day=1/part-1-1.csv": b"old part"},
        "config": CommitterConfig(conflict_mode="replace", superseded_scope="destination", validate_output=True),
        "elsewhere": True,
    },
    # A file where a directory must go, a directory where a file goes.
    "in-the-way": {
        "before": {**AROUND, "out/day=0": b"a file", "out/day=1/part-0-1.csv/inner": b"a directory"},
        "config": CommitterConfig(existing_target="replace"),
    },
    # One task alone writes directories that are not there, so that they are renamed as a whole.
    "promoted": {"config": CommitterConfig(promote_directories=True), "tasks": 1, "files": 12, "retried": 0},
}


# Of stores that differ in nothing a sweep looks at, one a kind is swept each time.
QUICK = ("local", "adls", "gcs", "no-identity")
MEMORY = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]

# Enough for every step to have something to do, at half the calls.
SMALL: dict[str, object] = {"tasks": 2, "files": 3, "directories": 2, "retried": None}


def plan_of(situation: str, **more: object) -> Plan:
    """The job of a situation."""
    return Plan(**{**SITUATIONS[situation], **more})  # type: ignore[arg-type]


def memory(name: str) -> Callable[[], World]:
    """Makes new memory spaces of one kind."""
    return lambda: world_of(name)


def disk(root: Path) -> Callable[[], World]:
    """Makes new directories of this machine."""
    numbers = count()

    def make() -> World:
        path = root / str(next(numbers))
        path.mkdir()
        return DiskWorld(path)

    return make


@asynccontextmanager
async def running(cluster: Cluster, seed: int = 1) -> AsyncIterator[Cluster]:
    """A cluster in a runtime that makes every run alike and waits for nothing."""
    on_disk = isinstance(cluster.world, DiskWorld)
    with use_runtime(Impatient(seed) if on_disk else VirtualRuntime(seed)):
        try:
            yield cluster
        finally:
            await cluster.close()


async def undisturbed(make: Callable[[], World], plan: Plan) -> tuple[int, int]:
    """Runs a job without trouble; the number of its calls, and of the first one of its commit."""
    async with running(Cluster(make(), plan)) as cluster:
        await cluster.run()
        cluster.raise_broken()
        cluster.checker.end("committed", neat=True)
        return cluster.calls, cluster.commit_began


async def sweep(
    make: Callable[[], World],
    plan: Plan,
    troubles: Sequence[Trouble],
    ordeal: Callable[[Cluster], Awaitable[str]],
    tally: Tally,
    *,
    commit_only: bool = False,
) -> None:
    """Runs the job anew for every fault at every call of this run's share.

    Args:
        make: Makes a new world.
        plan: The job.
        troubles: What goes wrong.
        ordeal: Runs the job, has others end it, checks; returns how it ended.
        tally: Counts, and says how large a share is; each trouble has its own calls of it.
        commit_only: Leave out calls before the job commit.

    Raises:
        AssertionError: It names the first runs that ended wrong.
    """
    calls, began = await undisturbed(make, plan)
    wrong: list[str] = []
    tried = [(trouble, at) for trouble in troubles for at in tally.share(range(began if commit_only else 1, calls + 1))]
    tally.calls += len({at for _trouble, at in tried})
    for trouble, at in tried:
        async with running(Cluster(make(), plan, at=at, trouble=trouble)) as cluster:
            try:
                tally.note(await ordeal(cluster))
            except Exception as error:
                what = trouble if isinstance(trouble, str) else trouble.__name__
                wrong.append(f"{what} at {cluster.hit}\n    {type(error).__name__}: {error}")
    if wrong:
        shown = "\n".join(wrong[:_MOST_SHOWN])
        raise AssertionError(f"{len(wrong)} of {len(tried)} runs ended wrong, the first:\n{shown}")
