"""A fault at each call that sets the old `_SUCCESS` aside, writes the new one, or puts the old one back."""

from __future__ import annotations

from contextlib import suppress

import pytest

import committer
from committer.errors import CommitterError
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.places import Place, place_fixture, plain_store

place = place_fixture("disk", "hdfs", "adls", "gcs", "s3")
KINDS: list[FaultKind] = ["unavailable", "unanswered", "lost", "late", "crash_before", "crash_after"]


def of_success(call: Call) -> bool:
    return any(path is not None and "_SUCCESS" in path.name for path in (call.path, call.destination))


async def job_in(
    place: Place, files: dict[str, bytes]
) -> tuple[committer.Job, FaultyStore, list[committer.TaskCommit]]:
    job = await place.open_job(job_id="j")
    done = await place.run_task(job, 0, files)
    store = FaultyStore(plain_store(place))
    driver = await committer.attach_job(job.spec, storage_options={"store": store})
    return driver, store, [done]


def fault_at(store: FaultyStore, number: int, kind: FaultKind) -> None:
    """The `number`th call that concerns `_SUCCESS` meets a fault, once."""
    met = 0

    async def before(call: Call) -> None:
        nonlocal met
        if of_success(call):
            met += 1
            if met == number:
                store.faults.append(Fault(kind=kind, call=call.number, delay_s=0.001))

    store.before_call = before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_commit(place: Place, kind: FaultKind) -> None:
    await place.run_job({"old": b"old"}, job_id="before")
    number = 0
    while True:
        number += 1
        driver, store, done = await job_in(place, {f"new-{number}": b"new"})
        fault_at(store, number, kind)
        with suppress(CommitterError, SimulatedCrash):
            await driver.commit(done if place.delivery == "message" else None)
        for late in list(store.under_way):
            await late
        with suppress(CommitterError):
            await place.recover("j")
        assert f"new-{number}" in place.files(), number
        assert b'"j"' in place.read("_SUCCESS"), number
        assert place.temporary() == set(), number
        if not any(call.fault for call in store.calls):
            break
    assert number > 3


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rollback(place: Place, kind: FaultKind) -> None:
    await place.run_job({"old": b"old"}, job_id="before")
    marker, number = place.read("_SUCCESS"), 0
    while True:
        number += 1
        driver, store, done = await job_in(place, {"new": b"new"})
        store.faults.append(Fault(kind="crash_before", operation="put", path="/outcome"))
        with pytest.raises(SimulatedCrash):
            await driver.commit(done if place.delivery == "message" else None)
        assert "_SUCCESS" not in place.all_files()
        recoverer = FaultyStore(plain_store(place))
        fault_at(recoverer, number, kind)
        with suppress(CommitterError, SimulatedCrash):
            await committer.recover(place.dest, "j", rollback=True, force=True, storage_options={"store": recoverer})
        for late in list(recoverer.under_way):
            await late
        with suppress(CommitterError):
            await place.recover("j", rollback=True, force=True)
        assert place.read("_SUCCESS").rstrip(b" ") == marker, number
        assert place.files() == {"old": b"old"}, number
        assert place.temporary() == set(), number
        if not any(call.fault for call in recoverer.calls):
            break
    assert number > 2
