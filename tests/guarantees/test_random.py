"""Trouble of every kind at once, drawn from a seed: several faults, several drivers, any order."""

from __future__ import annotations

import asyncio
import random

import pytest

from committer.errors import CommitterError, JobStateError
from committer_testing.simulate.worlds import FENCING, PROVING
from tests.guarantees.cluster import Cluster, Intruder, Plan, Trouble
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import abort, check_claims, commit, drive, is_crash, recover, roll_back, zombie
from tests.guarantees.sweeps import SITUATIONS, memory, plan_of, running, undisturbed

KINDS: list[Trouble] = ["unavailable", "unanswered", "lost", "lost", "crash_before", "crash_after", "cancel"]


def drawn_plan(draw: random.Random) -> tuple[str, Plan]:
    """A store and a job."""
    situation = draw.choice(sorted(SITUATIONS))
    kind = draw.choice(FENCING if situation == "in-the-way" else PROVING)
    delivery = draw.choice(["listing", "message"])
    return kind, plan_of(situation, delivery=delivery)


async def ordeal(seed: int) -> str:
    """One job with several faults; later processes meet some too, until one meets none."""
    draw = random.Random(seed)
    kind, plan = drawn_plan(draw)
    calls, began = await undisturbed(memory(kind), plan)
    async with running(Cluster(memory(kind)(), plan, delays=seed), seed) as cluster:
        first = began if draw.random() < 0.7 else 1
        for _trouble in range(draw.randrange(1, 5)):
            cluster.more[draw.randrange(first, calls + 1)] = draw.choice(KINDS)
        error = await drive(cluster)
        able: list[Intruder] = [recover, recover, commit, abort, zombie]
        if kind in FENCING:
            able.append(roll_back)
        for _round in range(draw.randrange(3)):
            for _trouble in range(draw.randrange(3)):
                cluster.more[cluster.calls + draw.randrange(1, 80)] = draw.choice(KINDS[:-1])
            several = [draw.choice(able) for _ in range(draw.randrange(1, 4))]
            await asyncio.gather(*(shaken(one, cluster) for one in several))
        cluster.more.clear()
        return await check_claims(cluster, error)


async def shaken(intruder: Intruder, cluster: Cluster) -> None:
    """An operator's process that may fail or die of a fault; what it says is true all the same."""
    try:
        await intruder(cluster)
    except CommitterError as error:
        # A store that can prove every file never leaves anything unknown; a lost answer at the very end may.
        assert not isinstance(error, JobStateError) or error.outcome != "unknown", error
    except BaseException as death:
        if not is_crash(death):
            raise


async def shake(seeds: range, tally: Tally) -> None:
    wrong = []
    tried = tally.share(seeds)
    for seed in tried:
        try:
            tally.note(await ordeal(seed))
        except Exception as error:
            wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(tried)} runs ended wrong, the first:\n" + "\n".join(wrong[:5]))


@pytest.mark.parametrize("part", range(4))
async def test_several_troubles(part: int, tally: Tally) -> None:
    await shake(range(part * 60, part * 60 + 60), tally)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
async def test_many_troubles(part: int, tally: Tally) -> None:
    await shake(range(1000 + part * 500, 1500 + part * 500), tally)
