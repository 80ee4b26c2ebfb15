"""A job setup that fails or is cancelled leaves nothing, and takes nothing that is another driver's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

import committer
from committer import CommitterConfig, StorePath
from committer.errors import DestinationNotFoundError, JobExistsError, StorePermissionError
from committer.flow.runtime import use_runtime
from committer.stores.base import Store
from committer.stores.local import LocalStore
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, Fault, FaultyStore
from tests.guarantees.cluster import Impatient

_numbers = count()

# How many turns of the loop after a call began the cancellation comes: 0 is before it had any effect.
TURNS = range(4)


@pytest.fixture
def space(request: pytest.FixtureRequest) -> Iterator[MemorySpace]:
    """A space like a local disk, or of the profile that a test names."""
    made = MemoryStore.space(f"setup-{next(_numbers)}", getattr(request, "param", "local"))
    yield made
    MemoryStore.forget(made.name)


async def _cancelled(store: Store, destination: StorePath, at: int, turns: int, config: CommitterConfig) -> str:
    """Opens a job and cancels that at a call.

    Returns:
        ``cancelled``; ``opened`` when the cancellation came too late; ``over`` when there were not so many calls.
    """
    watched = FaultyStore(store)

    async def cancel(call: Call) -> None:
        # What is done for a cancelled setup is not cancelled a second time.
        if call.number == at:
            if turns == 0:
                opening.cancel()
            else:
                loop.call_soon(later, turns - 1)

    def later(turns_left: int) -> None:
        if turns_left:
            loop.call_soon(later, turns_left - 1)
        else:
            opening.cancel()

    async def run() -> None:
        await committer.open_job(destination, job_id="J", config=config, storage_options={"store": watched})

    watched.before_call = cancel
    loop = asyncio.get_running_loop()
    opening = asyncio.create_task(run())
    try:
        await opening
    except asyncio.CancelledError:
        return "cancelled"
    return "opened" if watched.count() >= at else "over"


async def _sweep(store: Store, destination: StorePath, config: CommitterConfig, turns: int) -> int:
    options = {"store": store}
    for at in count(1):
        how = await _cancelled(store, destination, at, turns, config)
        try:
            jobs = await committer.list_jobs(destination, storage_options=options)
        except DestinationNotFoundError:
            jobs = []
        assert len(jobs) == (how != "cancelled"), f"call {at}"
        if jobs:
            await (await committer.attach_job(destination, job_id="J", storage_options=options)).abort()
        if how == "over":
            break
        async with committer.open_job(destination, job_id="J", config=config, storage_options=options) as job:
            await job.abort()
    return at - 1


@pytest.mark.parametrize(
    ("space", "durability"), [("local", "none"), ("local", "fsync"), ("gcs", "none")], indirect=["space"]
)
@pytest.mark.parametrize("turns", TURNS)
async def test_cancelled_at_every_call_in_memory(
    space: MemorySpace, turns: int, durability: Literal["none", "fsync"]
) -> None:
    with use_runtime(Impatient(1)):
        calls = await _sweep(space.store(), space.path("a/out"), CommitterConfig(durability=durability), turns)
    assert calls >= 8


@pytest.mark.parametrize("turns", TURNS)
async def test_cancelled_at_every_call_on_a_disk(tmp_path: Path, turns: int) -> None:
    store = LocalStore(threads=1)
    try:
        assert await _sweep(store, StorePath.of(tmp_path / "out"), CommitterConfig(), turns) >= 8
    finally:
        await store.close()


async def test_nothing_is_left_below_temporary(space: MemorySpace) -> None:
    for number in count(1):
        if await _cancelled(space.store(), space.path("out"), number, 1, CommitterConfig()) != "cancelled":
            break
        assert space.files().keys() | space.directories() <= {"/out"}, f"call {number}"
    assert number > 8


@pytest.mark.parametrize("operation", ["make_directory", "list", "put", "probe", "sync"])
async def test_refused_call_leaves_nothing(space: MemorySpace, operation: str) -> None:
    for times in count(1):
        store = FaultyStore(space.store())

        async def refuse(call: Call, store: FaultyStore = store, times: int = times) -> None:
            if call.operation == operation and store.count(operation) == times:
                store.faults.append(Fault(kind="forbidden", call=call.number))

        store.before_call = refuse
        config = CommitterConfig(durability="fsync")
        try:
            job = await committer.open_job(
                space.path("out"), job_id="J", config=config, storage_options={"store": store}
            )
        except StorePermissionError:
            assert not any("_temporary" in path for path in space.directories() | space.files().keys())
        else:
            # There were not so many calls of the kind.
            store.before_call = None
            await job.abort()
            break
    assert times > 1


@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_lost_response_to_the_setup_record_then_a_refusal_leaves_nothing(profile: Literal["local", "s3"]) -> None:
    space = MemoryStore.space(f"setup-{next(_numbers)}", profile)
    faults = [Fault(kind="lost", operation="put", path="/setup"), Fault(kind="forbidden", path="/opened")]
    store = FaultyStore(space.store(), faults)
    with use_runtime(Impatient(1)), pytest.raises(StorePermissionError):
        await committer.open_job(space.path("out"), job_id="J", storage_options={"store": store})
    assert not any("_temporary" in path for path in space.directories() | space.files().keys())
    MemoryStore.forget(space.name)


async def test_claim_of_another_driver_stays(space: MemorySpace) -> None:
    """A driver that loses the claim, or is cancelled beside a claim that stands, takes nothing of it."""
    destination = space.path("out")
    options = {"store": space.store()}
    job = await committer.open_job(destination, job_id="J", storage_options=options)
    before = (space.files(), space.directories())
    with pytest.raises(JobExistsError):
        await committer.open_job(destination, job_id="J", storage_options=options)
    for turns in TURNS:
        for at in range(1, 5):
            with contextlib.suppress(JobExistsError):
                await _cancelled(space.store(), destination, at, turns, CommitterConfig())
    assert (space.files(), space.directories()) == before
    await job.abort()


async def test_claim_that_came_between_stays(space: MemorySpace) -> None:
    """Another driver claims the id right before this one is cancelled in its own create."""
    destination = space.path("out")
    store = FaultyStore(space.store())
    others: list[committer.Job] = []

    async def overtake(call: Call) -> None:
        if call.operation == "put" and not others:
            others.append(await committer.open_job(destination, job_id="J", storage_options={"store": space.store()}))
            opening.cancel()

    store.before_call = overtake

    async def run() -> None:
        await committer.open_job(destination, job_id="J", storage_options={"store": store})

    opening = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with others[0].task_attempt(0) as task, task.open("part-0") as file:
        await file.write(b"x")
    assert (await others[0].commit()).files_committed == 1
