"""`busy_timeout`: a commit that meets another job's entry waits until that job has ended, and then commits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import committer
from committer import CommitterConfig, Job
from committer.errors import CommitterError, ConfigurationError, DestinationBusyError
from committer.flow.runtime import current_runtime
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.job_paths import entries_at, in_job
from tests.places import Place, place_fixture

place = place_fixture("disk", "gcs", "s3", "hdfs")

REPLACES = CommitterConfig(conflict_mode="replace")
# A thousandth of it is waited (tests/short_waits.py).
WAITS_S = 60_000.0


def waits(seconds: float = WAITS_S, **choices: Any) -> CommitterConfig:
    return CommitterConfig(busy_timeout=seconds, **choices)


async def written(at: Place, job_id: str, config: CommitterConfig, name: str = "p=1/new") -> Job:
    """A job whose task committed one file."""
    job = await at.open_job(job_id=job_id, config=config)
    await at.run_task(job, 0, {name: job_id.encode()})
    return job


@asynccontextmanager
async def held(at: Place, job_id: str = "owner") -> AsyncIterator[asyncio.Event]:
    """A job that replaces `p=1`, is decided, and does not go on until it may; it is committed when the block ends."""
    reached, may_go = asyncio.Event(), asyncio.Event()

    async def before(call: Call) -> None:
        if call.operation == "put" and str(call.path).endswith("/outcome"):
            reached.set()
            await may_go.wait()

    job = await written(at, job_id, REPLACES)
    await job.close()
    store = FaultyStore(at.store.inner)
    store.before_call = before
    async with committer.attach_job(at.dest, job_id=job_id, storage_options={"store": store}) as owner:
        commit = asyncio.create_task(owner.commit(tasks=1))
        await reached.wait()
        try:
            yield may_go
        finally:
            may_go.set()
            await commit


def intents_of(at: Place, job_id: str) -> list[str]:
    above = in_job(at, job_id, "intent-")
    return [name for name in at.all_files() if name.startswith(above)]


async def test_an_append_waits_for_an_overwrite_of_its_partition(place: Place) -> None:
    job = await written(place, "append", waits(), "p=1/added")
    withdraws, looks_again = asyncio.Event(), asyncio.Event()

    async def before(call: Call) -> None:
        if withdraws.is_set():
            looks_again.set()
        elif call.operation == "delete_file" and str(call.path).endswith(".append"):
            withdraws.set()

    place.store.before_call = before
    async with held(place) as may_go:
        commit = asyncio.create_task(job.commit(tasks=1))
        await looks_again.wait()
        # The other jobs do not wait for one that waits.
        assert entries_at(place, "append") == []
        # Else it would look as if its driver had died.
        assert len(intents_of(place, "append")) == 1
        assert not commit.done()
        may_go.set()
        report = await commit
    assert (report.files_committed, report.statistics.counters["committer_tasks_completed"]) == (1, 1)
    await job.close()
    assert place.files() == {"p=1/new": b"owner", "p=1/added": b"append"}
    assert place.temporary() == set()
    # Each try has an entry of its own: a delayed delete of one must not hit the next.
    puts = [str(call.path) for call in place.store.calls if call.operation in ("put", "rename_file")]
    assert len({path for path in puts if path.endswith(".append")}) >= 2


@pytest.mark.parametrize("config", [CommitterConfig(), waits(0)])
async def test_without_it_a_commit_fails_at_once(place: Place, config: CommitterConfig) -> None:
    job = await written(place, "append", config)
    async with held(place):
        with pytest.raises(DestinationBusyError) as caught:
            await job.commit(tasks=1)
        assert "a wait of" not in caught.value.message
    await job.abort()


async def test_the_error_comes_once_the_time_is_over_and_its_advice_works(place: Place) -> None:
    job = await written(place, "append", waits(90), "p=1/added")
    async with held(place):
        began = current_runtime().monotonic()
        with pytest.raises(
            DestinationBusyError, match=r" now: job owner replaces data there, after a wait of 90 s;"
        ) as caught:
            await job.commit(tasks=1)
        assert 90 <= current_runtime().monotonic() - began < 100
        assert (caught.value.owners, caught.value.outcome) == (("owner",), "unchanged")
        assert "commit again once job owner has ended" in caught.value.next_step
        # With an intent a recovery would commit the job.
        assert (entries_at(place, "append"), intents_of(place, "append")) == ([], [])
    assert (await job.commit(tasks=1)).success
    await job.close()
    assert place.files() == {"p=1/new": b"owner", "p=1/added": b"append"}


async def test_jobs_that_replace_one_directory_commit_one_after_the_other(place: Place) -> None:
    jobs = [await written(place, f"job-{number}", waits(conflict_mode="replace")) for number in range(4)]
    reports = await asyncio.gather(*(job.commit(tasks=1) for job in jobs))
    assert all(report.success for report in reports)
    for job in jobs:
        await job.close()
    assert list(place.files()) == ["p=1/new"]
    assert place.temporary() == set()


async def test_a_job_that_is_aborted_while_it_waits_ends(place: Place) -> None:
    job = await written(place, "append", waits())
    async with held(place):
        commit = asyncio.create_task(job.commit(tasks=1))
        await asyncio.sleep(0.05)
        async with committer.attach_job(place.dest, job_id="append", storage_options=place.options) as other:
            await other.abort()
    with pytest.raises(CommitterError) as caught:
        await commit
    assert not isinstance(caught.value, DestinationBusyError)
    await job.close()
    assert place.files() == {"p=1/new": b"owner"}


async def test_a_wait_is_cancelled_at_once_and_leaves_the_job_open(place: Place) -> None:
    job = await written(place, "append", waits())
    async with held(place):
        commit = asyncio.create_task(job.commit(tasks=1))
        await asyncio.sleep(0.05)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert (await place.states())["append"] == "open"
    await job.abort()
    assert place.temporary() == set()


async def test_a_job_whose_driver_died_is_waited_for_until_it_is_settled(place: Place) -> None:
    owner = await written(place, "owner", REPLACES)
    await owner.close()
    store = FaultyStore(place.store.inner, [Fault(kind="crash_after", operation="put", path="/decision")])
    dead = await committer.attach_job(place.dest, job_id="owner", storage_options={"store": store})
    with pytest.raises(SimulatedCrash):
        await dead.commit(tasks=1)
    job = await written(place, "append", waits(), "p=1/added")
    commit = asyncio.create_task(job.commit(tasks=1))
    await asyncio.sleep(0.05)
    assert not commit.done()
    assert await committer.settle(place.dest, "owner", storage_options=place.options) is not None
    assert (await commit).success
    await job.close()
    assert place.files() == {"p=1/new": b"owner", "p=1/added": b"append"}


async def test_a_caller_that_joins_says_how_long_it_waits(place: Place) -> None:
    job = await written(place, "append", CommitterConfig(), "p=1/added")
    await job.close()
    async with held(place) as may_go, place.attach_job("append", config=waits()) as joined:
        commit = asyncio.create_task(joined.commit(tasks=1))
        await asyncio.sleep(0.05)
        assert not commit.done()
        may_go.set()
        assert (await commit).success


def test_a_timeout_that_is_none_is_refused() -> None:
    for wrong in (-1, float("nan"), "5", True):
        with pytest.raises(ConfigurationError, match="busy_timeout"):
            CommitterConfig(busy_timeout=wrong)


@pytest.mark.parametrize("kind", ["forbidden", "unanswered"])
async def test_an_intent_that_cannot_be_withdrawn_is_reported(place: Place, kind: FaultKind) -> None:
    job = await written(place, "append", waits(90), "p=1/added")
    async with held(place):
        first = Fault(kind=kind, operation="delete_file", path="intent-", times=None)

        async def second_intent(call: Call) -> None:
            if call.operation == "put" and "intent-" in call.path.name and entries_at(place, "append") == []:
                seen.append(call.path.name)
                if len(seen) == 2:
                    place.faults(first)

        seen: list[str] = []
        place.store.before_call = second_intent
        with pytest.raises(DestinationBusyError) as caught:
            await job.commit(tasks=1)
        place.store.before_call = None
        assert len(intents_of(place, "append")) == 1
        assert (caught.value.outcome, "recover(" in caught.value.next_step) == ("unknown", True)
    place.store.faults.clear()
    assert (await place.recover("append")).files_committed == 1
