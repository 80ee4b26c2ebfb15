"""A rollback that moved a newer `_SUCCESS` by mistake, where a rename is not told what to move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobRolledBackError
from committer.records.success import decode_success, encode_success
from committer.testing.faults import Call, Fault, FaultKind, SimulatedCrash
from tests.neighbours.ending import (
    LOOKS_AT_MOVED,
    end_when_replaced,
    fails_from,
    finish_and_die,
    marked,
    moves,
    stop_before,
    taken,
)
from tests.neighbours.meeting import Connection, Party, Table, publishes

BLIND = pytest.mark.parametrize("profile", ["local", "hdfs"])
ONE_BY_ONE = CommitterConfig(io_concurrency=1)


async def undone_beside_others(
    table: Table, met: list[str], then: Callable[[], Awaitable[None]] | None = None
) -> Party:
    """A job whose commit is refused, about to be; it meets an old marker that came late, and moves a newer one for it.

    Args:
        table: The destination.
        met: What it met.
        then: What happens when that one came.
    """
    first = await table.job("first", {"p=1/first": b"first"}, ONE_BY_ONE)
    await first.commit()
    kept = decode_success(table.all_files()["_SUCCESS"], source="")
    undone = await table.job("undone", {"p=1/undone": b"undone"}, ONE_BY_ONE)

    async def meet(call: Call) -> None:
        if publishes(call, "undone") and not met:
            met.append("file")
            table.write("p=1/undone", b"another's")
        elif call.operation == "read" and str(call.path).endswith("/superseded-fenced/_SUCCESS") and "late" not in met:
            met.append("late")
            table.write("_SUCCESS", encode_success(msgspec.structs.replace(kept, timestamp=1, jobId="late")))
        elif moves(call) and call.destination is not None and call.destination.name.startswith("taken-"):
            met.append("taken")
            table.remove("_SUCCESS")
            newer = msgspec.structs.replace(kept, timestamp=kept.timestamp + 1, jobId="newer")
            table.write("_SUCCESS", encode_success(newer))
            if then is not None:
                await then()
        elif call.operation == "rename_file" and call.path.name.startswith("taken-") and "back" not in met:
            met.append("back")
            table.write("_SUCCESS", b"")

    undone.store.before_call = meet
    return undone


@BLIND
async def test_a_rollback_leaves_the_marker_of_another_committer_for_one_that_it_moved_by_mistake(profile: str) -> None:
    """Hadoop's file output committer says nothing in it, and leaves it when its job ends: it is the newest."""
    table, met = Table(profile), list[str]()
    undone = await undone_beside_others(table, met)
    await undone.commit()
    assert undone.error is not None
    assert met == ["file", "late", "taken", "back"]
    assert table.all_files()["_SUCCESS"] == b""
    assert table.temporary() == set()


@BLIND
@pytest.mark.parametrize("meanwhile", ["nothing", "hadoop's", "finished"])
async def test_a_recovery_gives_back_what_a_rollback_that_died_had_moved_by_mistake(
    profile: str, meanwhile: str
) -> None:
    """Not where another committer left a marker since; nor once another driver had marked the job as finished."""
    table, met = Table(profile), list[str]()

    async def finished() -> None:
        await finish_and_die(table, "undone")

    undone = await undone_beside_others(table, met, finished if meanwhile == "finished" else None)
    undone.store.faults.append(Fault(kind="crash_before", operation="status", path="taken-"))
    with pytest.raises(SimulatedCrash):
        await undone.commit()
    assert met == ["file", "late", "taken"]
    assert marked(table) is None
    if meanwhile == "hadoop's":
        table.write("_SUCCESS", b"")
    with pytest.raises(JobRolledBackError):
        await committer.recover(table.dest, "undone", storage_options=table.options)
    if meanwhile == "hadoop's":
        assert table.all_files()["_SUCCESS"] == b""
    else:
        assert (marked(table) == "newer") == (meanwhile == "nothing")
    assert table.temporary() == set()


@BLIND
@pytest.mark.parametrize("kind", ["unavailable", "forbidden", "unanswered", "lost", "crash_before", "crash_after"])
async def test_a_rollback_that_cannot_look_at_moved_markers_leaves_them_to_the_next_one(
    profile: str, kind: FaultKind
) -> None:
    """Neither its listing, nor what it reads of one: it cleans nothing up, and its error says what does."""
    for what, number in LOOKS_AT_MOVED:
        table = Table(profile)
        undone = await undone_beside_others(table, [])
        undone.store.faults.append(Fault(kind="crash_before", operation="status", path="taken-"))
        with pytest.raises(SimulatedCrash):
            await undone.commit()
        [where] = taken(table)
        newer = table.all_files()[where]
        failing = Connection(table.space)
        fails_from(failing, kind, what, number)
        try:
            await committer.recover(table.dest, "undone", storage_options={"store": failing})
        except SimulatedCrash:
            assert kind.startswith("crash")
        except CommitterError as error:
            # Once it knows that one is to be given back, it says so.
            told = number == 2
            assert error.outcome == ("unknown" if told else "partial")
            assert "committer.recover(" in error.next_step
            assert (f"{table.dest}/{where}" in error.next_step) == told
        else:
            raise AssertionError(kind)
        assert table.all_files()[where] == newer
        with pytest.raises(JobRolledBackError):
            await committer.recover(table.dest, "undone", storage_options=table.options)
        assert marked(table) == "newer"
        assert table.temporary() == set()


@BLIND
async def test_a_rollback_leaves_a_newer_marker_where_the_job_was_finished_after_it_had_looked(profile: str) -> None:
    """A driver finished it and died, the marker was moved, and a job without one replaced what that names."""
    table, met = Table(profile), list[str]()
    sent = Connection(table.space)
    stands, goes = stop_before(
        sent, lambda call: call.operation == "read" and str(call.path).endswith("/superseded-fenced/_SUCCESS")
    )
    running = list[asyncio.Task[committer.JobReport]]()

    async def finished() -> None:
        running.append(asyncio.create_task(committer.recover(table.dest, "undone", storage_options={"store": sent})))
        await asyncio.wait_for(stands.wait(), timeout=10)
        await finish_and_die(table, "undone")

    undone = await undone_beside_others(table, met, finished)
    undone.store.faults.append(Fault(kind="crash_before", operation="status", path="taken-"))
    with pytest.raises(SimulatedCrash):
        await undone.commit()
    with pytest.raises(JobRolledBackError):
        await end_when_replaced(table, goes, running[0])
    assert marked(table) == "first"
