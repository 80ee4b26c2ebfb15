"""A driver that stands still before it writes its outcome, or before it commits, while its id gets another job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

import committer
from committer.errors import CommitterError, JobNotFoundError, StoreNotFoundError
from committer.paths import StorePath
from committer.stores.memory import MemorySpace
from committer.stores.status import FileStatus
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table
from tests.rotation import Share

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
OLD, NEW = {"p=1/a": b"of the first"}, {"p=1/b": b"of the second"}


@PROFILES
@pytest.mark.parametrize("dies_after", ["/outcome", "/decision"])
async def test_driver_that_writes_its_outcome_late_removes_no_record_of_the_next_job(
    profile: str, dies_after: str
) -> None:
    """The next driver died when it had written that: its job can still be finished."""
    table = Table(profile)
    first = await table.job("job", OLD)
    second: Party | None = None

    async def before(call: Call) -> None:
        nonlocal second
        if second is None and call.operation == "put" and call.path.name == "outcome":
            await committer.recover(table.dest, "job", storage_options=table.options)
            second = await table.job("job", NEW)
            second.store.faults.append(Fault(kind="crash_after", operation="put", path=dies_after))
            with pytest.raises(SimulatedCrash):
                await second.commit()

    first.store.before_call = before
    await first.commit()
    assert second is not None
    assert (await committer.recover(table.dest, "job", storage_options=table.options)).success
    assert table.files() == {**OLD, **NEW}
    assert table.temporary() == set()
    marker = table.all_files()["_SUCCESS"]
    assert b"p=1/b" in marker
    assert b"p=1/a" not in marker


@pytest.mark.parametrize("profile", ["adls", "gcs"])
async def test_driver_that_joins_a_job_half_cleaned_up_publishes_nothing_late(profile: str) -> None:
    """The setup record is gone by then, but not the outcome. Then a late task attempt commits."""
    table = Table(profile)
    config = committer.CommitterConfig(mark_successful_jobs=False)
    first = await table.job("job", {"p=1/a-0": b"of attempt 0"}, config)
    joined: list[committer.Job] = []

    async def before(call: Call) -> None:
        ends = call.path.name == "outcome" and call.operation.startswith(("delete_file", "rename_file"))
        if ends and not joined and "_temporary/job/setup" not in table.all_files():
            joined.append(await committer.attach_job(table.dest, job_id="job", storage_options=table.options))

    late = Connection(table.space)

    async def before_late(call: Call) -> None:
        if joined and call.operation.startswith("delete") and any("-manifest" in name for name in table.all_files()):
            late.before_call = None
            with pytest.raises(JobNotFoundError):
                await joined[0].commit()

    late.before_call = before_late
    task = committer.open_task(first.driver.spec, task=0, attempt=1, storage_options={"store": late})
    attempt = await task.__aenter__()
    first.store.before_call = before
    await first.commit()
    assert first.error is None
    assert joined
    with pytest.raises(CommitterError):
        async with attempt.open("p=1/a-1") as file:
            await file.write(b"of attempt 1")
        await task.__aexit__(None, None, None)
    with pytest.raises(CommitterError):
        await joined[0].commit()
    assert table.files() == {"p=1/a-0": b"of attempt 0"}


class Listing(Connection):
    """A connection whose listing of the job names a record that is gone."""

    def __init__(self, space: MemorySpace, record: str) -> None:
        super().__init__(space)
        self._record = record

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """The record comes last."""
        with suppress(StoreNotFoundError):
            async for status in super().list(directory):
                yield status
        if directory.name == "job":
            yield FileStatus(directory / self._record, False, 1)


@pytest.mark.parametrize("record", ["setup", "decision", "outcome"])
async def test_record_that_is_listed_and_not_there_makes_no_job(record: str) -> None:
    table = Table("gcs")
    first = await table.job("job", OLD)
    await first.driver.abort()
    with pytest.raises(JobNotFoundError):
        await committer.attach_job(table.dest, job_id="job", storage_options={"store": Listing(table.space, record)})


@pytest.mark.parametrize("end", ["abort", "roll_back"])
async def test_decision_that_is_repeated_beside_a_setup_is_removed_where_it_made_no_directory(end: str) -> None:
    """The request that wrote it arrives again between the steps of the next setup, whose process dies there."""
    table = Table("adls")
    first = await table.job("job", OLD)
    decisions: list[bytes] = []

    async def keep(call: Call) -> None:
        name = "_temporary/job/decision"
        if not decisions and name in table.all_files():
            decisions.append(table.all_files()[name])

    first.store.before_call = keep
    await first.commit()
    assert first.error is None, first.error
    crashed = Connection(table.space)
    crashed.faults.append(Fault(kind="crash_after", operation="put", path="/setup"))
    with pytest.raises(SimulatedCrash):
        await committer.open_job(table.dest, job_id="job", storage_options={"store": crashed})
    table.write("_temporary/job/decision", decisions[0])
    if end == "abort":
        async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as job:
            await job.abort()
    else:
        await committer.recover(table.dest, "job", rollback=True, storage_options=table.options)
    assert table.files() == OLD
    assert table.temporary() == set()


@PROFILES
async def test_driver_that_joins_by_its_spec_beside_the_cleanup_of_the_next_job_is_refused(
    profile: str, share: Share
) -> None:
    """Found by the search (42930). It joins before each call of the next job's commit, and reports no success."""
    joined = 0
    for at in share.counted():
        table = Table(profile)
        first = await table.job("job", OLD)
        await first.driver.abort()
        second = await table.job("job", NEW)
        met: list[CommitterError] = []

        async def before(
            call: Call, at: int = at, table: Table = table, first: Party = first, met: list[CommitterError] = met
        ) -> None:
            if call.number == at:
                with pytest.raises(JobNotFoundError) as caught:
                    async with committer.attach_job(first.driver.spec, storage_options=table.options) as job:
                        await job.commit()
                met.append(caught.value)

        second.store.before_call = before
        await second.commit()
        assert second.error is None, (at, second.error)
        assert table.files() == NEW
        assert table.temporary() == set()
        joined += len(met)
        if not met:
            break
    assert joined
