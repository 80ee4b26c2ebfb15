"""Of two changes made at once, the one that fails does not cut the other short: a request that was sent arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

import committer
from committer.errors import CommitterError, StorePermissionError
from committer.paths import StorePath
from committer.testing.faults import Call
from committer.testing.virtual_time import virtual_loop
from tests.neighbours.meeting import Connection, Table

T = TypeVar("T")


class SlowWire(Connection):
    """A process whose making of one directory is under way for a while; who waits for it may give up, it does not."""

    async def run(
        self, operation: str, effect: Callable[[], Awaitable[T]], path: StorePath, destination: StorePath | None = None
    ) -> T:
        """Makes a call."""
        sent = asyncio.ensure_future(self._sent(operation, effect, path, destination))
        return await asyncio.shield(sent)

    async def _sent(
        self, operation: str, effect: Callable[[], Awaitable[T]], path: StorePath, destination: StorePath | None
    ) -> T:
        if operation == "make_directory" and path.name == "new=1":
            await asyncio.sleep(10)
        return await super().run(operation, effect, path, destination)


async def refused_beside_a_directory(table: Table) -> None:
    """Commits a job that may not set the old `_SUCCESS` aside, takes it back, and looks what is left of it."""
    async with committer.open_job(table.dest, job_id="first", storage_options=table.options) as job:
        async with job.task_attempt(task=0) as task, task.open("old") as file:
            await file.write(b"old")
    before = table.all_files()
    party = await table.job("second", {"new=1/a": b"a"})
    party.driver = await committer.attach_job(
        party.driver.spec, storage_options={"store": (wire := SlowWire(table.space))}
    )

    async def refuse(call: Call) -> None:
        if call.operation == "rename_file" and call.path.name == "_SUCCESS":
            raise StorePermissionError("no right", operation=call.operation, path=call.path)

    wire.before_call = refuse
    with pytest.raises(CommitterError):
        await party.driver.commit()
    await committer.recover(table.dest, "second", rollback=True, storage_options=table.options)
    await asyncio.sleep(60)
    assert table.all_files() == before
    assert not any(name.endswith("/new=1") for name in table.space.directories())


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
def test_no_directory_comes_when_the_job_was_taken_back(profile: str) -> None:
    with virtual_loop() as loop:
        loop.run_until_complete(refused_beside_a_directory(Table(profile)))
