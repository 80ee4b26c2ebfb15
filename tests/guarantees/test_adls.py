"""A fault at every request that a job makes to an emulated account, one run after the other; then `recover` ends it right.

What test_faults.py does at the store's calls, at the requests that they are made of.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from committer import CommitterConfig
from committer.flow.runtime import use_runtime
from committer.testing.emulators.adls import AdlsEmulator, Fault, serve
from tests.guarantees.account import AccountWorld
from tests.guarantees.cluster import Cluster, Impatient, Plan
from tests.guarantees.conftest import Tally
from tests.guarantees.outcomes import drive, end
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
async def emulator() -> AsyncIterator[AdlsEmulator]:
    async with serve() as emulator:
        yield emulator


@asynccontextmanager
async def running(emulator: AdlsEmulator, plan: Plan, *faults: Fault) -> AsyncIterator[Cluster]:
    """A cluster on a new filesystem."""
    emulator.conduct.faults[:] = faults
    emulator.conduct.log.clear()
    # No call of a store is hit; that there is trouble lets a directory stay.
    cluster = Cluster(AccountWorld(emulator), plan, trouble="lost" if faults else None)
    with use_runtime(Impatient(1)):
        try:
            yield cluster
        finally:
            await cluster.close()


@dataclass
class Requests:
    """Those of a job that meets no trouble: what each is, and which is the first of the commit."""

    operations: list[str]
    commit_began: int


async def undisturbed(emulator: AdlsEmulator, plan: Plan) -> Requests:
    began = 0
    async with running(emulator, plan) as cluster:
        named = cluster.named

        def note() -> object:
            nonlocal began
            began = len(emulator.conduct.log)
            return named()

        cluster.named = note  # type: ignore[method-assign,assignment]
        await cluster.run()
        cluster.raise_broken()
        cluster.checker.end("committed", neat=True)
        return Requests([one.operation for one in emulator.conduct.log], began)


def renamed_again(emulator: AdlsEmulator) -> set[str]:
    """Files of tasks whose rename was asked for once more after it was done."""
    done: set[str] = set()
    again: set[str] = set()
    for one in emulator.conduct.log:
        if one.operation == "rename" and "/tasks/" in one.source:
            if one.source in done:
                again.add(one.source)
            if one.status == 201 or any(kind.endswith("-after") for kind in one.faults):
                done.add(one.source)
    return again


async def sweep(emulator: AdlsEmulator, plan: Plan, trouble: str, tally: Tally, *, commit_only: bool = False) -> None:
    """Runs the job anew for a fault at every request of this run's share.

    Raises:
        AssertionError: It names the first runs that ended wrong.
    """
    requests = await undisturbed(emulator, plan)
    numbers: Sequence[int] = range(requests.commit_began if commit_only else 0, len(requests.operations))
    if trouble in SENT_TWICE:
        numbers = [number for number in numbers if requests.operations[number] in SENT_TWICE[trouble]]
    numbers = tally.share(numbers)
    tally.calls += len(numbers)
    wrong: list[str] = []
    for number in numbers:
        fault = TROUBLES[trouble]()
        fault.skip = number
        async with running(emulator, plan, fault) as cluster:
            try:
                error = await drive(cluster)
                assert fault.hits, "the job made fewer requests"
                word = await end(cluster, commit=number % 2 == 0)
                assert error is not None or word == "committed"
                assert not renamed_again(emulator)
                tally.note(word)
            except Exception as error:
                hit = next((f"{one.operation} of {one.path}" for one in emulator.conduct.log if one.faults), "nothing")
                wrong.append(f"{trouble} at request {number}, {hit}\n    {type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {len(numbers)} runs ended wrong, the first:\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("trouble", [trouble for trouble in TROUBLES if trouble != "answers lost"])
async def test_trouble_at_every_request(emulator: AdlsEmulator, trouble: str, delivery: str, tally: Tally) -> None:
    # After a busy answer a rate would let requests out one by one.
    plan = plan_of("fresh", delivery=delivery, config=CommitterConfig(azure_io_rate=0), **{**SMALL, "files": 2})
    await sweep(emulator, plan, trouble, tally)


@pytest.mark.parametrize(
    ("trouble", "delivery", "situation"),
    [("answer lost", "listing", "replace"), ("404 after success", "message", "replace-same-names")],
)
async def test_trouble_at_every_request_of_a_commit_that_replaces(
    emulator: AdlsEmulator, trouble: str, delivery: str, situation: str, tally: Tally
) -> None:
    await sweep(emulator, plan_of(situation, delivery=delivery, **SMALL), trouble, tally, commit_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_trouble_in_every_situation(
    emulator: AdlsEmulator, situation: str, trouble: str, delivery: str, tally: Tally
) -> None:
    plan = plan_of(situation, delivery=delivery)
    await sweep(emulator, plan, trouble, tally, commit_only=situation != "fresh")
