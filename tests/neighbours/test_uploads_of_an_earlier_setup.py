"""A task attempt that goes on when its job is over and the id set up anew, on stores whose files wait in uploads."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Literal

import pytest

import committer
from committer.errors import CommitterError, JobNotFoundError
from committer.testing.faults import Call
from tests.neighbours.meeting import Connection, Table

NEW = {"p=1/new": b"new"}
Delivery = Literal["listing", "message"]
BOTH: tuple[Delivery, ...] = ("listing", "message")


class Stops(Connection):
    """The connection of a driver that stands still before it deletes a run's list of uploads."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.space)
        self.stopped, self.goes_on = asyncio.Event(), asyncio.Event()
        self.before_call = self._before

    async def _before(self, call: Call) -> None:
        if call.operation == "delete_directory" and call.path.parent.name == "uploads" and not self.stopped.is_set():
            self.stopped.set()
            await self.goes_on.wait()


async def write(task: committer.TaskAttempt, name: str) -> None:
    async with task.open(name) as file:
        await file.write(b"old")


@pytest.mark.parametrize("delivery", BOTH)
@pytest.mark.parametrize("anew", BOTH)
async def test_task_attempt_that_goes_on_leaves_no_upload(delivery: Delivery, anew: Delivery) -> None:
    """Found by the search (800895): the earlier job's driver deletes the list of what it never read."""
    table = Table("s3")
    late = Stops(table)
    job = await committer.open_job(table.dest, job_id="job", delivery=delivery, storage_options=table.options)
    task = await committer.open_task(job.spec, task=0, storage_options=table.options)
    await write(task, "p=1/old-0")
    driver = await committer.attach_job(job.spec, storage_options={"store": late})
    aborting = asyncio.create_task(driver.abort())
    await late.stopped.wait()
    async with committer.attach_job(job.spec, storage_options=table.options) as other:
        await other.abort()
    assert table.temporary() == set()
    new = await table.job("job", NEW, delivery=anew)
    with pytest.raises(JobNotFoundError, match="set up anew"):
        await write(task, "p=1/old-1")
    late.goes_on.set()
    with suppress(CommitterError):
        await aborting
    await new.commit()
    assert new.error is None, new.error
    assert table.files() == NEW
    assert [str(upload.path) for upload in table.space.uploads] == []
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["gcs", "s3"])
async def test_task_attempt_of_an_earlier_setup_is_told_that_it_commits_for_no_job(profile: str) -> None:
    table = Table(profile)
    job = await committer.open_job(table.dest, job_id="job", delivery="message", storage_options=table.options)
    task = await committer.open_task(job.spec, task=0, storage_options=table.options)
    await write(task, "p=1/old-0")
    await job.abort()
    new = await table.job("job", NEW, delivery="message")
    with pytest.raises(JobNotFoundError, match="set up anew"):
        async with task:
            pass
    await new.commit()
    assert new.error is None, new.error
    assert table.files() == NEW
    assert table.temporary() == set()


@pytest.mark.parametrize("delivery", BOTH)
@pytest.mark.parametrize("anew", BOTH)
async def test_task_attempt_that_is_opened_late_leaves_no_upload(delivery: Delivery, anew: Delivery) -> None:
    """Found by the search (80240, 81033): it knows no setup record but the new job's, and dies when it has sent a file."""
    table = Table("s3")
    job = await committer.open_job(table.dest, job_id="job", delivery=delivery, storage_options=table.options)
    await job.abort()
    new = await table.job("job", NEW, delivery=anew)
    task = await committer.open_task(job.spec, task=0, storage_options=table.options)
    await write(task, "p=1/old-0")
    assert "/table/p=1/old-0" in {upload.path.path for upload in table.space.uploads}
    await new.commit()
    assert new.error is None, new.error
    assert table.files() == NEW
    assert [str(upload.path) for upload in table.space.uploads] == []
    assert table.temporary() == set()
