"""A driver stopped while it takes a job back, while others do that and a later job publishes under the same names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobNotFoundError, JobStateError
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table
from tests.sweeps import Share

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
            # Another driver took it back, and nothing is left that tells of it.
            assert isinstance(error, JobNotFoundError | JobStateError), (at, error)
        if running:
            await running[0]
            assert later.error is None, (at, later.error)
            left = {} if mode == "replace" else OLD
            assert table.files() == {**left, **written(profile, mode, b"later")}, (at, first.calls[at - 2 :])
        most = max(most, first.count())
        if at >= most:
            break
