"""The replace lock of a job that committed, taken anew by a driver of that job that stood still: it proves nothing.

As long as a job holds the lock that it was decided with no other one ends, and whatever `_SUCCESS` stands is older.
"""

from __future__ import annotations

import asyncio

import pytest

import committer
from committer import CommitterConfig
from committer.records.success import SuccessData, decode_success, encode_success
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table, interrupted
from tests.neighbours.test_intent_of_two_drivers import Held

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
OLD = {"p=1/old": b"old"}
PAST = {"p=1/past": b"past"}
LATER = {"p=1/later": b"later"}
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")
LOCK = ".replace-lock"


def takes_lock(call: Call) -> bool:
    return call.operation == "put" and call.path.name == LOCK


def decides(call: Call) -> bool:
    return call.operation == "put" and call.path.name == "decision"


def marker_of(table: Table) -> SuccessData:
    return decode_success(table.all_files()["_SUCCESS"], source="")


async def other_driver(table: Table, party: Party) -> Party:
    store = Connection(table.space)
    return Party(await committer.attach_job(party.driver.spec, storage_options={"store": store}), store, party.messages)


@PROFILES
async def test_recovery_that_takes_the_lock_anew_leaves_the_marker_of_a_later_job(profile: str) -> None:
    """Found by the search (34212). The driver dies when `_SUCCESS` stands, and an abort releases its lock."""
    table = Table(profile, OLD)
    past = await table.job("past", PAST, REPLACE)
    deciding = Held(past, decides)
    await deciding.stopped()
    late = Connection(table.space)
    stands, goes_on = asyncio.Event(), asyncio.Event()

    async def before_late(call: Call) -> None:
        if takes_lock(call) and not stands.is_set():
            stands.set()
            await goes_on.wait()

    late.before_call = before_late
    recovery = asyncio.create_task(committer.recover(table.dest, "past", storage_options={"store": late}))
    await stands.wait()
    past.store.faults.append(Fault(kind="crash_after", operation="put", path="_SUCCESS"))
    with pytest.raises(SimulatedCrash):
        await deciding.finish()
    async with committer.attach_job(table.dest, job_id="past", storage_options=table.options) as job:
        await job.abort()
    later = await table.job("later", LATER)
    await later.commit()
    assert later.error is None, later.error
    goes_on.set()
    assert (await recovery).success
    assert marker_of(table).jobId == "later"
    assert table.files() == {**PAST, **LATER}
    assert table.temporary() == set()


async def of_a_wrong_clock() -> bytes:
    """The `_SUCCESS` of an earlier job, whose driver's clock was a day ahead."""
    table = Table("local")
    earlier = await table.job("earlier", OLD)
    await earlier.commit()
    marker = marker_of(table)
    marker.timestamp += 24 * 3600 * 1000
    return encode_success(marker)


def writes_success(party: Party) -> int:
    return next(call.number for call in party.store.calls if call.operation == "put" and call.path.name == "_SUCCESS")


async def call_of_success(profile: str, *, rests: bool) -> int:
    table = Table(profile)
    party = await replacing(table, rests=rests)
    await party.commit()
    assert party.error is None, party.error
    return writes_success(party)


async def replacing(table: Table, *, rests: bool) -> Party:
    """A replacing job that is about to commit; with `rests`, an earlier driver died when it had taken the lock."""
    party = await table.job("past", PAST, REPLACE)
    if not rests:
        return party
    party.store.faults.append(Fault(kind="crash_after", operation="put", path=LOCK))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    return await other_driver(table, party)


@PROFILES
@pytest.mark.parametrize("rests", [False, True], ids=["took the lock", "rests on it"])
async def test_marker_of_a_wrong_clock_makes_room_under_the_lock_that_decided(profile: str, rests: bool) -> None:
    """It came late, after the job had set the old one aside."""
    at = await call_of_success(profile, rests=rests)
    table = Table(profile)
    party = await replacing(table, rests=rests)

    async def appear() -> None:
        table.write("_SUCCESS", await of_a_wrong_clock())

    await interrupted(party, at, appear)
    assert party.error is None, party.error
    assert marker_of(table).jobId == "past"
    assert table.temporary() == set()
