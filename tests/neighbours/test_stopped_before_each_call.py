"""A process of a job stops before each of its calls, another one ends the job, its id is used again; then it goes on.

No name is used by both jobs, so whatever the process still does reaches nothing of the later job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig, JobReport
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobUndecidedError,
    TaskMissingError,
)
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Table
from tests.sweeps import sampled

EARLIER = [{"a=1/e-0": b"0"}, {"b=1/e-1": b"1"}]
LATER = {"a=1/later": b"later"}
PROFILES = ["local", "hdfs", "adls", "gcs", "s3", "azure-flat"]


class Stopped:
    """The store of a process that stops before one of its calls.

    Attributes:
        reached: Set when it stops.
        goes_on: Lets it go on.
    """

    def __init__(self, table: Table, at: int) -> None:
        self.store = Connection(table.space)
        self.store.before_call = self._before
        self.reached, self.goes_on = asyncio.Event(), asyncio.Event()
        self._at = at

    async def _before(self, call: Call) -> None:
        if call.number == self._at:
            self.reached.set()
            await self.goes_on.wait()

    async def run(self, process: Awaitable[JobReport | None], others: Callable[[], Awaitable[None]]) -> bool | None:
        """Runs a process, with what others do while it stops.

        Returns:
            Whether it reported success; None where it has no such call.
        """
        running = asyncio.ensure_future(process)
        reaching = asyncio.ensure_future(self.reached.wait())
        await asyncio.wait([running, reaching], return_when=asyncio.FIRST_COMPLETED)
        reaching.cancel()
        stopped = self.reached.is_set()
        if stopped:
            await others()
        self.goes_on.set()
        try:
            report = await running
        except CommitterError as error:
            assert error.outcome in ("unchanged", "partial", "committed", "unknown")
            report = None
        return bool(report is not None and report.success) if stopped else None


async def drive(table: Table, store: Connection, delivery: str, config: CommitterConfig) -> JobReport:
    """Sets the earlier job up, has its tasks run elsewhere, commits it."""
    job = await committer.open_job(
        table.dest, job_id="job", delivery=delivery, config=config, storage_options={"store": store}
    )
    messages = []
    for number, files in enumerate(EARLIER):
        async with committer.open_task(job.spec, task=number, storage_options=table.options) as task:
            for name, data in files.items():
                async with task.open(name) as file:
                    await file.write(data)
        messages.append(task.task_commit)
    return await job.commit(messages if delivery == "message" else None, tasks=len(EARLIER))


async def end(table: Table) -> bool:
    """Ends whatever has the id, as an operator does; whether it is committed."""
    try:
        return (await committer.recover(table.dest, "job", force=True, storage_options=table.options)).success
    except (JobUndecidedError, TaskMissingError):
        async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as job:
            await job.abort()
    except (JobNotFoundError, JobDecidedError, JobRolledBackError):
        # Aborted or rolled back, and not removed yet.
        pass
    with suppress(JobNotFoundError):
        await committer.cleanup(table.dest, job_id="job", force=True, storage_options=table.options)
    return False


async def run_later(table: Table, delivery: str, config: CommitterConfig) -> None:
    async with committer.open_job(
        table.dest, job_id="job", delivery=delivery, config=config, storage_options=table.options
    ) as job:
        async with committer.open_task(job.spec, task=0, storage_options=table.options) as task:
            async with task.open("a=1/later") as file:
                await file.write(b"later")
        assert (await job.commit([task.task_commit] if delivery == "message" else None, tasks=1)).success


def check(table: Table, *, committed: bool, at: int) -> None:
    """Looks at what readers see: the later job, and the earlier one whole or not at all."""
    earlier = {name: data for files in EARLIER for name, data in files.items()}
    assert table.files() == {**LATER, **(earlier if committed else {})}, at
    assert "_SUCCESS" in table.all_files(), at


async def all_is_removed(table: Table) -> None:
    await committer.cleanup(table.dest, older_than=0, force=True, storage_options=table.options)
    assert table.temporary() == set()


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept"])
@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("profile", sampled(PROFILES, 3, "drivers"))
async def test_a_driver_that_goes_on_reaches_nothing_of_the_next_job(profile: str, delivery: str, kept: bool) -> None:
    for at in range(1, 200):
        table = Table(profile)
        process, config = Stopped(table, at), CommitterConfig(outcome_kept=kept)
        ended = False

        async def others(table: Table = table) -> None:
            nonlocal ended
            ended = await end(table)
            with suppress(JobNotFoundError):
                await committer.cleanup(table.dest, job_id="job", force=True, storage_options=table.options)
            await run_later(table, delivery, CommitterConfig())

        success = await process.run(drive(table, process.store, delivery, config), others)
        if success is None:
            break
        check(table, committed=ended or success, at=at)
        await all_is_removed(table)
    assert 20 < at < 199


@pytest.mark.parametrize("how", ["abort", "cleanup", "recover", "roll back"])
@pytest.mark.parametrize("died_before", ["intent", "decision", "outcome", "_SUCCESS"])
@pytest.mark.parametrize("profile", sampled(PROFILES, 3, "operators"))
async def test_an_operator_that_goes_on_reaches_nothing_of_the_next_job(
    profile: str, died_before: str, how: str
) -> None:
    for at in range(1, 200):
        table = Table(profile)
        driver = Connection(table.space)

        def fits(path: object, name: str = died_before) -> bool:
            return getattr(path, "name", "").startswith(name)

        driver.faults.append(Fault(kind="crash_before", path=fits))
        with pytest.raises(SimulatedCrash):
            await drive(table, driver, "message", CommitterConfig())
        process = Stopped(table, at)
        ended = False

        async def others(table: Table = table) -> None:
            nonlocal ended
            ended = await end(table)
            await run_later(table, "message", CommitterConfig())

        success = await process.run(operate(table, process.store, how), others)
        if success is None:
            break
        check(table, committed=ended, at=at)
        await all_is_removed(table)
    assert at < 199


async def operate(table: Table, store: Connection, how: str) -> JobReport | None:
    options = {"store": store}
    if how == "abort":
        async with committer.attach_job(table.dest, job_id="job", storage_options=options) as job:
            await job.abort()
    elif how == "cleanup":
        await committer.cleanup(table.dest, job_id="job", storage_options=options)
    else:
        rollback = how == "roll back"
        return await committer.recover(table.dest, "job", rollback=rollback, force=rollback, storage_options=options)
    return None
