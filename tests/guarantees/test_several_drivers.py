"""Another process comes in at every call of a driver that lives on, or two come at once where one died."""

from __future__ import annotations

import asyncio

import pytest

from committer_testing.simulate.worlds import FENCING, PROVING
from tests.guarantees.cluster import Cluster, Intruder
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import abort, check_claims, commit, drive, recover, roll_back, zombie
from tests.guarantees.sweeps import SMALL, memory, plan_of, sweep

DELIVERIES = ["listing", "message"]


async def then_compared(cluster: Cluster) -> str:
    """The driver goes on after another process came in; whatever each of them said must be true in the end."""
    return await check_claims(cluster, await drive(cluster))


def at_once(*intruders: Intruder, seed: int) -> object:
    """Several act at once after the trouble, in an order that the seed draws."""

    async def ordeal(cluster: Cluster) -> str:
        error = await drive(cluster)
        cluster.delay(seed * 1000 + cluster.at)
        await asyncio.gather(*(intruder(cluster) for intruder in intruders))
        return await check_claims(cluster, error)

    return ordeal


@pytest.mark.parametrize("intruder", [recover, commit, abort, zombie, roll_back])
@pytest.mark.parametrize("situation", ["append", "same-names", "replace-same-names"])
async def test_intruder_at_every_call_of_a_commit(intruder: Intruder, situation: str, tally: Tally) -> None:
    for number, kind in enumerate(FENCING if intruder is roll_back else PROVING):
        plan = plan_of(situation, delivery=DELIVERIES[(number + len(situation)) % 2], **SMALL)
        await sweep(memory(kind), plan, (intruder,), then_compared, tally, commit_only=True)


PAIRS: list[tuple[Intruder, Intruder]] = [
    (recover, recover),
    (recover, commit),
    (recover, abort),
    (recover, roll_back),
    (roll_back, roll_back),
    (commit, abort),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(one.__name__ for one in pair))
@pytest.mark.parametrize("situation", ["append", "same-names", "replace-same-names"])
async def test_two_at_once_after_a_crash_at_every_call(
    pair: tuple[Intruder, Intruder], situation: str, tally: Tally
) -> None:
    for number, kind in enumerate(FENCING if roll_back in pair else PROVING):
        plan = plan_of(situation, delivery=DELIVERIES[(number + len(situation)) % 2], **SMALL)
        ordeal = at_once(*pair, seed=number)
        await sweep(memory(kind), plan, ("crash_before",), ordeal, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(one.__name__ for one in pair))
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("situation", ["append", "same-names", "replace", "replace-same-names", "promoted"])
async def test_two_at_once_in_many_orders(
    pair: tuple[Intruder, Intruder], delivery: str, situation: str, tally: Tally
) -> None:
    for kind in FENCING if roll_back in pair else PROVING:
        plan = plan_of(situation, delivery=delivery)
        for seed in range(5):
            await sweep(memory(kind), plan, ("crash_before",), at_once(*pair, seed=seed), tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("intruder", [recover, commit, abort, zombie, roll_back])
@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("situation", ["append", "same-names", "replace", "replace-same-names", "promoted"])
async def test_intruder_in_every_situation(intruder: Intruder, delivery: str, situation: str, tally: Tally) -> None:
    for kind in FENCING if intruder is roll_back else PROVING:
        plan = plan_of(situation, delivery=delivery)
        await sweep(memory(kind), plan, (intruder,), then_compared, tally, commit_only=True)
