"""A fault at every request that a job makes to an emulated bucket, one run after the other; then `recover` ends it right.

What test_faults.py does at the store's calls, at the requests that they are made of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from committer import CommitterConfig
from committer_testing.emulators.gcs import Fault, Settings, serve
from tests.guarantees.bucket import BucketWorld
from tests.guarantees.conftest import Tally
from tests.guarantees.requests import Served, sweep
from tests.guarantees.sweeps import SITUATIONS, SMALL, plan_of

TROUBLES: dict[str, Callable[[], Fault]] = {
    "answer lost": lambda: Fault("reset-after", count=1),
    "answers lost": lambda: Fault("reset-after", count=3),
    "reset": lambda: Fault("reset", count=1),
    "busy": lambda: Fault("error", count=1, status=429, retry_after="0"),
    "busy after success": lambda: Fault("error-after", count=1, status=503),
    # What a server makes of a move or delete that something on the way sent twice, where it knows no idempotency tokens.
    "404 after success": lambda: Fault("error-after", count=1, status=404, code="notFound"),
    # The same, of one that looks at the target first.
    "412 after success": lambda: Fault("error-after", count=1, status=412, code="conditionNotMet"),
}
SENT_TWICE = {
    "404 after success": {"move", "delete"},
    "412 after success": {"move", "insert"},
}
SENT_TWICE_OF_COPIES = {
    "404 after success": {"delete"},
    "412 after success": {"rewrite", "insert"},
}
DELIVERIES = ["listing", "message"]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    # Every run draws the same nonces, so that its requests would be known by their tokens from the run before.
    async with serve(Settings(idempotency_tokens=False)) as emulator:
        yield Served(emulator.conduct, lambda: BucketWorld(emulator), ("move", 200), TROUBLES, SENT_TWICE)


@pytest.fixture
async def copying() -> AsyncIterator[Served]:
    async with serve(Settings(has_move=False, rewrite_bytes=64, idempotency_tokens=False)) as emulator:
        world = lambda: BucketWorld(emulator)  # noqa: E731
        yield Served(emulator.conduct, world, ("rewrite", 200), TROUBLES, SENT_TWICE_OF_COPIES, guarded=True)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("trouble", [trouble for trouble in TROUBLES if trouble != "answers lost"])
async def test_trouble_at_every_request(served: Served, trouble: str, delivery: str, tally: Tally) -> None:
    # After a busy answer a rate would let requests out one by one.
    plan = plan_of("fresh", delivery=delivery, config=CommitterConfig(io_rate=0), **{**SMALL, "files": 2})
    await sweep(served, plan, trouble, tally)


@pytest.mark.parametrize(
    ("trouble", "delivery", "situation"),
    [("answer lost", "listing", "replace"), ("404 after success", "message", "replace-same-names")],
)
async def test_trouble_at_every_request_of_a_commit_that_replaces(
    served: Served, trouble: str, delivery: str, situation: str, tally: Tally
) -> None:
    await sweep(served, plan_of(situation, delivery=delivery, **SMALL), trouble, tally, commit_only=True)


@pytest.mark.parametrize(
    ("trouble", "situation"),
    [
        ("reset", "fresh"),
        ("404 after success", "fresh"),
        ("412 after success", "fresh"),
        ("answer lost", "replace"),
        ("busy", "replace"),
        ("busy after success", "replace-same-names"),
    ],
)
async def test_trouble_at_every_request_of_a_commit_without_moves(
    copying: Served, trouble: str, situation: str, tally: Tally
) -> None:
    """G13 where a rename is a copy and a delete: no moment, and no driver's death, leaves neither old nor new."""
    config = SITUATIONS[situation].get("config", CommitterConfig())
    assert isinstance(config, CommitterConfig)
    plan = plan_of(situation, delivery="message", **{**SMALL, "config": config.replace(io_rate=0)})
    await sweep(copying, plan, trouble, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_trouble_in_every_situation(
    served: Served, situation: str, trouble: str, delivery: str, tally: Tally
) -> None:
    plan = plan_of(situation, delivery=delivery)
    await sweep(served, plan, trouble, tally, commit_only=situation != "fresh")


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_in_every_situation_without_moves(
    copying: Served, situation: str, trouble: str, tally: Tally
) -> None:
    plan = plan_of(situation, delivery="listing", **SMALL)
    await sweep(copying, plan, trouble, tally, commit_only=situation != "fresh")
