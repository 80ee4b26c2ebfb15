"""A rollback beside others: a marker that another committer wrote, a stopped driver, and later jobs of the same names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobNotFoundError, JobStateError
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table
from tests.places import Place, place_fixture, plain_store
from tests.sweeps import Share

place = place_fixture("disk", "local", "adls", "gcs")


async def die_before_the_outcome(place: Place) -> None:
    """Kills the driver of job `j` after every file is published and before the outcome."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"a=1/new": b"new"})
    store = FaultyStore(plain_store(place))
    driver = await committer.attach_job(job.spec, storage_options={"store": store})

    async def before_call(call: Call) -> None:
        if call.operation == "put" and call.path.name == "outcome":
            raise asyncio.CancelledError

    store.before_call = before_call
    with pytest.raises(asyncio.CancelledError):
        await driver.commit()
    assert "_SUCCESS" not in place.all_files()


@pytest.mark.parametrize("says", ["nothing", "an older time"])
async def test_success_of_another_committer_outlives_a_rollback(place: Place, says: str) -> None:
    """Hadoop's file output committer leaves an empty one, S3A's one with the time of its own machine."""
    await place.run_job({"a=1/old": b"old"}, job_id="before")
    record = json.loads(place.read("_SUCCESS"))
    theirs = b""
    if says == "an older time":
        del record["diagnostics"]["committer.decided.by"]
        theirs = json.dumps({**record, "jobId": "job_1_0001", "timestamp": record["timestamp"] - 60_000}).encode()
    await die_before_the_outcome(place)
    place.write("_SUCCESS", theirs)
    await place.recover("j", rollback=True, force=True)
    assert place.read("_SUCCESS") == theirs
    assert set(place.all_files()) == {"a=1/old", "_SUCCESS"}


async def test_old_success_comes_back_where_none_stands(place: Place) -> None:
    await place.run_job({"a=1/old": b"old"}, job_id="before")
    before = place.all_files()
    await die_before_the_outcome(place)
    await place.recover("j", rollback=True, force=True)
    assert place.all_files() == before


async def test_rollback_that_failed_names_the_call_that_takes_the_job_back(place: Place) -> None:
    """Where no driver can be fenced off that call has force, as the one that failed had."""
    await die_before_the_outcome(place)
    forced = not plain_store(place).capabilities.atomic_directory_rename
    store = FaultyStore(plain_store(place))
    store.faults.append(Fault(kind="forbidden", operation="put", path="/outcome"))
    with pytest.raises(CommitterError) as caught:
        await committer.recover(place.dest, "j", rollback=True, force=forced, storage_options={"store": store})
    assert ("force=True" in caught.value.next_step) is forced
    assert not (await place.recover("j", rollback=True, force=forced)).success
    assert place.files() == {}


Others: TypeAlias = Callable[[], Awaitable[None]]

OLD = {"p=1/old": b"old", "p=1/same": b"old"}
NAMES = (*(f"q=1/r=1/new-{number}" for number in range(4)), "p=1/new", "p=1/same")
CONFIGS = {
    "append": CommitterConfig(io_concurrency=1),
    "promote": CommitterConfig(io_concurrency=1, promote_directories=True),
    "overwrite": CommitterConfig(io_concurrency=1, existing_target="replace"),
    "replace": CommitterConfig(io_concurrency=1, conflict_mode="replace"),
}
PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])


def written(profile: str, mode: str, data: bytes) -> dict[str, bytes]:
    """A job that replaces a file under its name only goes forward where nothing is linked."""
    names = NAMES if mode in ("overwrite", "replace") and profile == "local" else NAMES[:-1]
    return dict.fromkeys(names, data)


async def half_published(profile: str, mode: str) -> Table:
    table = Table(profile, OLD)
    party = await table.job("past", written(profile, mode, b"past"), CONFIGS[mode])
    party.store.faults.append(Fault(kind="crash_before", operation="put", path="outcome"))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    return table


async def rolled_back(table: Table, store: object) -> None:
    await committer.recover(table.dest, "past", rollback=True, force=True, storage_options={"store": store})


@PROFILES
@pytest.mark.parametrize("mode", CONFIGS)
async def test_a_driver_that_wakes_in_its_rollback_takes_nothing_of_a_later_job(
    profile: str, mode: str, share: Share
) -> None:
    most = 1
    for at in share.counted():
        table = await half_published(profile, mode)
        later = await table.job("later", written(profile, mode, b"later"), CONFIGS[mode])
        first = Connection(table.space)

        async def others(table: Table = table, later: Party = later) -> None:
            with suppress(JobNotFoundError):
                await rolled_back(table, Connection(table.space))
            await later.commit()

        running: list[asyncio.Task[None]] = []

        async def before(
            call: Call, at: int = at, running: list[asyncio.Task[None]] = running, others: Others = others
        ) -> None:
            if call.number == at:
                running.append(asyncio.create_task(others()))
                # The call may be given up meanwhile; what the others do is not.
                await asyncio.shield(running[0])

        first.before_call = before
        try:
            await rolled_back(table, first)
        except CommitterError as error:
            # Another driver rolled it back, and nothing is left that tells of it.
            assert isinstance(error, JobNotFoundError | JobStateError), (at, error)
        if running:
            await running[0]
            assert later.error is None, (at, later.error)
            left = {} if mode == "replace" else OLD
            assert table.files() == {**left, **written(profile, mode, b"later")}, (at, first.calls[at - 2 :])
        most = max(most, first.count())
        if at >= most:
            break
