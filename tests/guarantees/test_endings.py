"""A driver dies at every call of its commit; an operator rolls back, aborts, or dies in turn while recovering."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import committer
from committer.errors import CommitterError
from committer_testing.simulate.worlds import FENCING
from tests.guarantees.cluster import JOB_ID, Cluster
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import abort, check_claims, drive, is_crash, roll_back, roll_back_by_force
from tests.guarantees.sweeps import MEMORY, SMALL, memory, plan_of, sweep

DELIVERIES = ["listing", "message"]
REPLACING = ["append", "same-names", "replace", "replace-same-names", "elsewhere", "replace-elsewhere"]


async def then_rolled_back(cluster: Cluster) -> str:
    """The job meets trouble, then an operator rolls it back."""
    error = await drive(cluster)
    fences = cluster.world.store().capabilities.atomic_directory_rename
    await (roll_back if fences else roll_back_by_force)(cluster)
    return await check_claims(cluster, error)


async def then_aborted(cluster: Cluster) -> str:
    """The job meets trouble, then an operator aborts it."""
    error = await drive(cluster)
    await abort(cluster)
    return await check_claims(cluster, error)


@pytest.mark.parametrize("situation", REPLACING)
@pytest.mark.parametrize("kind", MEMORY)
async def test_rollback_after_a_crash_at_every_call(situation: str, kind: str, tally: Tally) -> None:
    plan = plan_of(situation, delivery=DELIVERIES[len(situation + kind) % 2], **SMALL)
    await sweep(memory(kind), plan, ("crash_after",), then_rolled_back, tally, commit_only=True)


@pytest.mark.parametrize("situation", ["in-the-way", "promoted"])
@pytest.mark.parametrize("kind", FENCING)
async def test_rollback_where_directories_are_real(situation: str, kind: str, tally: Tally) -> None:
    plan = plan_of(situation, delivery=DELIVERIES[len(situation + kind) % 2])
    await sweep(memory(kind), plan, ("crash_after",), then_rolled_back, tally, commit_only=True)


@pytest.mark.parametrize("kind", MEMORY)
async def test_abort_after_a_crash_at_every_call(kind: str, tally: Tally) -> None:
    plan = plan_of("replace", delivery=DELIVERIES[len(kind) % 2], **SMALL)
    await sweep(memory(kind), plan, ("crash_before",), then_aborted, tally)


def dying_in_turn(at: int, *, rollback: bool, died: set[int]) -> Callable[[Cluster], Awaitable[str]]:
    """Kills the process that recovers the job, too, at its call `at`, and has another one end the job.

    `died` gets `at`, unless the process made fewer calls.
    """

    async def ordeal(cluster: Cluster) -> str:
        error = await drive(cluster)
        second = cluster.process()
        cluster.at, cluster.trouble, cluster.hit = cluster.calls + at, "crash_after", None
        try:
            await committer.recover(
                cluster.world.destination,
                JOB_ID,
                rollback=rollback,
                config=cluster.vouched,
                storage_options={"store": second},
            )
        except CommitterError:
            pass
        except BaseException as death:
            if not is_crash(death):
                raise
        cluster.at = 0
        if cluster.hit is not None:
            died.add(at)
        if rollback:
            await roll_back(cluster)
        return await check_claims(cluster, error)

    return ordeal


@pytest.mark.parametrize("rollback", [False, True], ids=["recover", "rollback"])
@pytest.mark.parametrize("situation", ["append", "replace"])
async def test_death_of_who_recovers(situation: str, rollback: bool, tally: Tally) -> None:
    for number, at in enumerate((4, 8, 11, 14, 19, 24)):
        plan = plan_of(situation, delivery=DELIVERIES[number % 2], **SMALL)
        kind = FENCING[number % 3]
        ordeal = dying_in_turn(at, rollback=rollback, died=set())
        await sweep(memory(kind), plan, ("crash_before",), ordeal, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("rollback", [False, True], ids=["recover", "rollback"])
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("kind", FENCING)
@pytest.mark.parametrize("situation", [*REPLACING, "in-the-way", "promoted"])
async def test_death_of_who_recovers_at_every_call(
    situation: str, kind: str, delivery: str, rollback: bool, tally: Tally
) -> None:
    small = {} if situation == "promoted" else SMALL
    plan = plan_of(situation, delivery=delivery, **small)
    at, died = 0, {0}
    while at in died:
        at += 1
        ordeal = dying_in_turn(at, rollback=rollback, died=died)
        await sweep(memory(kind), plan, ("crash_before",), ordeal, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["lost", "permanent", "crash_before", "cancel"])
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("situation", [*REPLACING, "replace-all", "unmarked", "promoted"])
@pytest.mark.parametrize("kind", MEMORY)
async def test_rollback_after_every_trouble(
    situation: str, delivery: str, kind: str, trouble: str, tally: Tally
) -> None:
    plan = plan_of(situation, delivery=delivery)
    await sweep(memory(kind), plan, (trouble,), then_rolled_back, tally, commit_only=True)  # type: ignore[arg-type]
