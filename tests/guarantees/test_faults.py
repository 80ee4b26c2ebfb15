"""A fault before and after its effect, and a crash, at every store call of a job; then `recover` ends it right.

On real disks, and of drivers that run their tasks themselves. Where executors run them, on every kind of store in memory,
the simulator does this (tests/simulate/test_search.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer.errors import UnsupportedError
from committer.stages.publish.publish import PublishFiles
from tests.guarantees.cluster import Cluster, Plan
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import drive, end
from tests.guarantees.sweeps import FAULTS, SITUATIONS, SMALL, disk, memory, plan_of, sweep

DELIVERIES = ["listing", "message"]


async def then_recovered(cluster: Cluster) -> str:
    """The job meets trouble, then a fresh process ends it."""
    error = await drive(cluster)
    # A job that no driver began to commit may be ended either way.
    word = await end(cluster, commit=cluster.at % 2 == 0)
    assert error is not None or word == "committed"
    return word


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kind", ["local", "adls", "gcs"])
async def test_cancellation_at_every_call(kind: str, delivery: str, tally: Tally) -> None:
    plan = plan_of("append", delivery=delivery, inline=True)
    await sweep(memory(kind), plan, ("cancel",), then_recovered, tally)


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_crash_of_a_driver_that_runs_its_tasks_itself(delivery: str, tally: Tally) -> None:
    plan = plan_of("append", delivery=delivery, inline=True)
    await sweep(memory("local"), plan, ["lost", "crash_before"], then_recovered, tally)


ON_DISK = pytest.mark.allow_blocking("the checker looks at the disk from inside the store's calls")


@ON_DISK
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_fault_at_every_call_on_a_local_disk(delivery: str, tmp_path: Path, tally: Tally) -> None:
    faults = ("unanswered", "lost", "crash_before")
    await sweep(disk(tmp_path), plan_of("fresh", delivery=delivery), faults, then_recovered, tally)


@ON_DISK
@pytest.mark.parametrize("situation", ["same-names", "replace-same-names", "replace-elsewhere"])
async def test_crash_at_every_call_of_a_commit_on_a_local_disk(situation: str, tmp_path: Path, tally: Tally) -> None:
    plan = plan_of(situation, delivery="message", **SMALL)
    await sweep(disk(tmp_path), plan, ("crash_before",), then_recovered, tally, commit_only=True)


async def test_a_store_that_renames_nothing_is_refused_to_a_committer_that_does() -> None:
    world = memory("local")()
    with pytest.raises(UnsupportedError, match="rename"):
        await committer.open_job(
            "memory://guarantees-flat/out", committer="manifest", storage_options={"profile": "azure-flat"}
        )
    world.forget()


@ON_DISK
@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_every_trouble_on_a_local_disk(situation: str, delivery: str, tmp_path: Path, tally: Tally) -> None:
    plan = plan_of(situation, delivery=delivery)
    await sweep(disk(tmp_path), plan, (*FAULTS, "permanent", "cancel"), then_recovered, tally)


def plant_blind_retry(patch: pytest.MonkeyPatch) -> None:
    """A rename whose answer was lost is sent again without looking; that its source is gone by now is an error."""

    async def settle(self, file, source, target, error):
        await self.context.store.rename_file(source, target, identity=file.identity)

    patch.setattr(PublishFiles, "_settle", settle)


async def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    async def sweep_all() -> None:
        await sweep(memory("local"), Plan(), ("lost",), then_recovered, Tally(), commit_only=True)

    await sweep_all()
    plant_blind_retry(monkeypatch)
    with pytest.raises(AssertionError, match="nothing is there"):
        await sweep_all()
