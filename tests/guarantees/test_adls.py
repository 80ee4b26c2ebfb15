"""A fault at every request that a job makes to an emulated account, one run after the other; then `recover` ends it right.

What test_faults.py does at the store's calls, at the requests that they are made of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from committer import CommitterConfig
from committer_testing.emulators.adls import Fault, serve
from tests.guarantees.account import AccountWorld
from tests.guarantees.conftest import Tally
from tests.guarantees.requests import Served, sweep
from tests.guarantees.sweeps import SITUATIONS, SMALL, plan_of

TROUBLES: dict[str, Callable[[], Fault]] = {
    "answer lost": lambda: Fault("reset-after", count=1),
    "answers lost": lambda: Fault("reset-after", count=3),
    "reset": lambda: Fault("reset", count=1),
    "busy": lambda: Fault("error", count=1, status=503, code="ServerBusy", retry_after="0"),
    "busy after success": lambda: Fault("error-after", count=1, status=503, code="OperationTimedOut"),
    # What a front end makes of a rename or delete that it sent twice. The service does not say that what is there is not.
    "404 after success": lambda: Fault("error-after", count=1, status=404, code="SourcePathNotFound"),
    # The same, of a service that looks at the target first.
    "409 after success": lambda: Fault("error-after", count=1, status=409, code="PathAlreadyExists"),
}
SENT_TWICE = {
    "404 after success": {"rename", "delete"},
    "409 after success": {"rename", "create-directory", "create-file", "put-blob"},
}
DELIVERIES = ["listing", "message"]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serve() as emulator:
        yield Served(emulator.conduct, lambda: AccountWorld(emulator), ("rename", 201), TROUBLES, SENT_TWICE)


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("trouble", [trouble for trouble in TROUBLES if trouble != "answers lost"])
async def test_trouble_at_every_request(served: Served, trouble: str, delivery: str, tally: Tally) -> None:
    # After a busy answer a rate would let requests out one by one.
    plan = plan_of("fresh", delivery=delivery, config=CommitterConfig(azure_io_rate=0), **{**SMALL, "files": 2})
    await sweep(served, plan, trouble, tally)


@pytest.mark.parametrize(
    ("trouble", "delivery", "situation"),
    [("answer lost", "listing", "replace"), ("404 after success", "message", "replace-same-names")],
)
async def test_trouble_at_every_request_of_a_commit_that_replaces(
    served: Served, trouble: str, delivery: str, situation: str, tally: Tally
) -> None:
    await sweep(served, plan_of(situation, delivery=delivery, **SMALL), trouble, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_trouble_in_every_situation(
    served: Served, situation: str, trouble: str, delivery: str, tally: Tally
) -> None:
    plan = plan_of(situation, delivery=delivery)
    await sweep(served, plan, trouble, tally, commit_only=situation != "fresh")
