"""A fault at every request that a job makes to an emulated service, one run after the other; then `recover` ends it right.

What test_faults.py does at the store's calls, at the requests that they are made of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from committer import CommitterConfig
from committer_testing.emulators import adls, gcs
from committer_testing.emulators.faults import Fault
from tests.guarantees.account import AccountWorld
from tests.guarantees.bucket import BucketWorld
from tests.guarantees.conftest import Tally
from tests.guarantees.requests import Served, sweep
from tests.guarantees.sweeps import SITUATIONS, SMALL, plan_of

Troubles = dict[str, Callable[[], Fault]]

OF_BOTH: Troubles = {
    "answer lost": lambda: Fault("reset-after", count=1),
    "answers lost": lambda: Fault("reset-after", count=3),
    "reset": lambda: Fault("reset", count=1),
}
OF_ADLS: Troubles = {
    **OF_BOTH,
    "busy": lambda: Fault("error", count=1, status=503, code="ServerBusy", retry_after="0"),
    "busy after success": lambda: Fault("error-after", count=1, status=503, code="OperationTimedOut"),
    # What a front end makes of a rename or delete that it sent twice. The service does not say that what is there is not.
    "404 after success": lambda: Fault("error-after", count=1, status=404, code="SourcePathNotFound"),
    # The same, of a service that looks at the target first.
    "409 after success": lambda: Fault("error-after", count=1, status=409, code="PathAlreadyExists"),
}
SENT_TWICE_TO_ADLS = {
    "404 after success": {"rename", "delete"},
    "409 after success": {"rename", "create-directory", "create-file", "put-blob"},
}
OF_GCS: Troubles = {
    **OF_BOTH,
    "busy": lambda: Fault("error", count=1, status=429, retry_after="0"),
    "busy after success": lambda: Fault("error-after", count=1, status=503),
    # What a server makes of a move or delete that something on the way sent twice, where it knows no idempotency tokens.
    "404 after success": lambda: Fault("error-after", count=1, status=404, code="notFound"),
    # The same, of one that looks at the target first.
    "412 after success": lambda: Fault("error-after", count=1, status=412, code="conditionNotMet"),
}
SENT_TWICE_TO_GCS = {"404 after success": {"move", "delete"}, "412 after success": {"move", "insert"}}
DELIVERIES = ["listing", "message"]


@asynccontextmanager
async def on_adls() -> AsyncIterator[Served]:
    async with adls.serve() as emulator:
        yield Served(emulator.conduct, lambda: AccountWorld(emulator), ("rename", 201), OF_ADLS, SENT_TWICE_TO_ADLS)


@asynccontextmanager
async def on_gcs() -> AsyncIterator[Served]:
    # Every run draws the same nonces, so that its requests would be known by their tokens from the run before.
    async with gcs.serve(gcs.Settings(idempotency_tokens=False)) as emulator:
        yield Served(emulator.conduct, lambda: BucketWorld(emulator), ("move", 200), OF_GCS, SENT_TWICE_TO_GCS)


Serve = Callable[[], AbstractAsyncContextManager[Served]]


def on_each(*left_out: str) -> list[tuple[Serve, str]]:
    """Each service with each of its troubles."""
    services = ((on_adls, OF_ADLS), (on_gcs, OF_GCS))
    return [(serve, trouble) for serve, troubles in services for trouble in troubles if trouble not in left_out]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize(("serve", "trouble"), on_each("answers lost"))
async def test_trouble_at_every_request(serve: Serve, trouble: str, delivery: str, tally: Tally) -> None:
    # After a busy answer a rate would let requests out one by one.
    unpaced = CommitterConfig(azure_io_rate=0, io_rate=0)
    plan = plan_of("fresh", delivery=delivery, config=unpaced, **{**SMALL, "files": 2})
    async with serve() as served:
        await sweep(served, plan, trouble, tally)


@pytest.mark.parametrize("serve", [on_adls, on_gcs])
@pytest.mark.parametrize(
    ("trouble", "delivery", "situation"),
    [("answer lost", "listing", "replace"), ("404 after success", "message", "replace-same-names")],
)
async def test_trouble_at_every_request_of_a_commit_that_replaces(
    serve: Serve, trouble: str, delivery: str, situation: str, tally: Tally
) -> None:
    async with serve() as served:
        await sweep(served, plan_of(situation, delivery=delivery, **SMALL), trouble, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(("serve", "trouble"), on_each())
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_trouble_in_every_situation(
    serve: Serve, situation: str, trouble: str, delivery: str, tally: Tally
) -> None:
    plan = plan_of(situation, delivery=delivery)
    async with serve() as served:
        await sweep(served, plan, trouble, tally, commit_only=situation != "fresh")
