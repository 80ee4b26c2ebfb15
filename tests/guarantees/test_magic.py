"""A job whose files wait in uploads: a fault at every call; who ends it leaves all of it or nothing, and none pending."""

from __future__ import annotations

import pytest

from tests.guarantees.cluster import Cluster
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import check_claims, drive, roll_back
from tests.guarantees.sweeps import FAULTS, REFUSALS, SMALL, memory, plan_of, sweep
from tests.guarantees.test_endings import then_aborted
from tests.guarantees.test_faults import then_recovered

DELIVERIES = ["message", "listing"]
SITUATIONS = ["append", "same-names", "replace", "replace-same-names", "replace-all", "unmarked", "elsewhere"]


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_cancellation_at_every_call(delivery: str, tally: Tally) -> None:
    plan = plan_of("append", delivery=delivery, inline=True)
    await sweep(memory("s3"), plan, ("cancel",), then_recovered, tally)


@pytest.mark.parametrize("situation", ["replace", "replace-all"])
async def test_fault_at_every_call_of_a_commit_that_deletes_old_files(situation: str, tally: Tally) -> None:
    """They go in one call, on conditions: before and after its effect, more than once, and refused."""
    plan = plan_of(situation, delivery=DELIVERIES[len(situation) % 2], **SMALL)
    await sweep(memory("s3"), plan, (*FAULTS, *REFUSALS), then_recovered, tally, commit_only=True)


async def then_rolled_back_without_force(cluster: Cluster) -> str:
    """The job meets trouble, then an operator rolls it back, who need not vouch that its driver is dead."""
    error = await drive(cluster)
    await roll_back(cluster)
    return await check_claims(cluster, error)


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_rollback_after_a_crash_at_every_call(situation: str, tally: Tally) -> None:
    plan = plan_of(situation, delivery=DELIVERIES[len(situation) % 2], **SMALL)
    await sweep(memory("s3"), plan, ("crash_after",), then_rolled_back_without_force, tally, commit_only=True)


async def test_abort_after_a_crash_at_every_call(tally: Tally) -> None:
    await sweep(memory("s3"), plan_of("replace", delivery="message", **SMALL), ("crash_before",), then_aborted, tally)
