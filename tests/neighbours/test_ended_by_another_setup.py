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
from committer.testing.faults import Call, Fault, FaultKind, SimulatedCrash
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


@PROFILES
@pytest.mark.parametrize("rollback", [False, True])
async def test_driver_takes_no_outcome_that_the_next_job_keeps_for_its_own(profile: str, rollback: bool) -> None:
    """It stands still before it writes its own. Its job was rolled back meanwhile, perhaps: that is no success."""
    table = Table(profile)
    first = await table.job("job", OLD, committer.CommitterConfig(mark_successful_jobs=False))
    second: Party | None = None

    async def before(call: Call) -> None:
        nonlocal second
        if second is None and call.operation == "put" and call.path.name == "outcome":
            options = table.options
            await committer.recover(table.dest, "job", rollback=rollback, force=rollback, storage_options=options)
            kept = committer.CommitterConfig(outcome_kept=True, mark_successful_jobs=False)
            second = await table.job("job", NEW, kept)
            await second.commit()
            assert second.error is None

    first.store.before_call = before
    await first.commit()
    assert second is not None
    assert first.report is None
    assert isinstance(first.error, CommitterError)
    assert table.files() == ({} if rollback else OLD) | NEW


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
@pytest.mark.parametrize("wish", ["commit", "abort"])
async def test_decision_to_abort_that_comes_after_the_cleanup_is_no_news_of_a_job_that_committed(
    profile: str, wish: str
) -> None:
    """A driver that wanted to abort stood still before it decided; another one looks before it finds out."""
    table = Table(profile)
    config = committer.CommitterConfig(mark_successful_jobs=False)
    first = await table.job("job", OLD, config)
    stopped, looking = Connection(table.space), Connection(table.space)
    aborter = await committer.attach_job(first.driver.spec, storage_options={"store": stopped})
    looker = await committer.attach_job(first.driver.spec, storage_options={"store": looking})
    told: list[CommitterError] = []

    async def before(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision" and not first.calls:
            await first.commit()
            assert first.error is None, first.error
        elif first.calls and "_temporary/job/decision" in table.all_files() and not told:
            stopped.before_call = None
            if wish == "abort":
                await looker.abort()
                assert not looker._aborted
                return
            with pytest.raises(CommitterError) as caught:
                await looker.commit()
            told.append(caught.value)

    stopped.before_call = before
    await aborter.abort()
    assert not aborter._aborted
    assert all(isinstance(error, JobNotFoundError) for error in told)
    assert bool(told) == (wish == "commit")
    assert table.files() == OLD
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_process_that_ends_a_job_marks_no_outcome_of_the_next_one(
    profile: str, rollback: bool, share: Share
) -> None:
    """It stands still before one of its calls, while another process does the rest. The next job's driver then dies when
    it has written its outcome: what it has yet to do must still be done.
    """
    reached = 0
    for at in share.counted():
        table = Table(profile)
        first = await table.job("job", OLD)
        first.store.faults.append(Fault(kind="crash_before", operation="put", path="/outcome"))
        with pytest.raises(SimulatedCrash):
            await first.commit()
        stopped, reached_now = Connection(table.space), False

        async def before(call: Call, table: Table = table, at: int = at) -> None:
            nonlocal reached_now
            if call.number != at:
                return
            reached_now = True
            with suppress(JobNotFoundError):
                await committer.recover(
                    table.dest, "job", rollback=rollback, force=rollback, storage_options=table.options
                )
            second = await table.job("job", NEW)
            second.store.faults.append(Fault(kind="crash_after", operation="put", path="/outcome"))
            with pytest.raises(SimulatedCrash):
                await second.commit()

        stopped.before_call = before
        with suppress(CommitterError):
            await committer.recover(
                table.dest, "job", rollback=rollback, force=rollback, storage_options={"store": stopped}
            )
        if not reached_now:
            break
        reached += 1
        assert (await committer.recover(table.dest, "job", storage_options=table.options)).success
        assert table.files() == ({} if rollback else OLD) | NEW, at
        assert b"p=1/b" in table.all_files()["_SUCCESS"], at
        assert table.temporary() == set(), at
    assert reached > (3 if share.is_whole else 1)


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
async def test_abort_that_dies_beside_the_outcome_that_the_next_job_keeps_says_nothing_of_it(profile: str) -> None:
    """It stood still before it decided; the request arrives when the next job of the id is over."""
    table = Table(profile)
    first = await table.job("job", OLD, committer.CommitterConfig(mark_successful_jobs=False))
    kept = committer.CommitterConfig(outcome_kept=True, mark_successful_jobs=False)
    stopped = Connection(table.space)
    aborter = await committer.attach_job(first.driver.spec, storage_options={"store": stopped})

    async def before(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision" and not first.calls:
            await first.commit()
            await (await table.job("job", NEW, kept)).commit()

    stopped.before_call = before
    stopped.faults.append(Fault(kind="crash_after", operation="put", path="/decision"))
    with pytest.raises(SimulatedCrash):
        await aborter.abort()
    for step in (Party.commit, lambda party: party.driver.abort()):
        with suppress(JobNotFoundError):
            late = await committer.attach_job(first.driver.spec, storage_options=table.options)
            party = Party(late, Connection(table.space), None)
            await step(party)
            assert party.report is None
            assert not late._aborted
    assert (await committer.recover(table.dest, "job", storage_options=table.options)).files_committed == 1
    assert table.temporary() == {"_temporary/job/outcome"}
    assert table.files() == OLD | NEW


@pytest.mark.parametrize("profile", ["gcs", "s3"])
async def test_driver_whose_outcome_an_earlier_jobs_keeps_replacing_ends_its_own_job(profile: str) -> None:
    """Found by the search (2058600): the request that marks the earlier outcome arrives twice."""
    table = Table(profile)
    first = await table.job("job", OLD)
    marked: list[bytes] = []

    async def keep(call: Call) -> None:
        standing = table.all_files().get("_temporary/job/outcome")
        if standing is not None and b'"finished": true' in standing:
            marked[:] = [standing]

    first.store.before_call = keep
    await first.commit()
    assert marked
    second = await table.job("job", NEW, committer.CommitterConfig(conflict_mode="replace"))
    late = 0

    async def before(call: Call) -> None:
        nonlocal late
        if call.operation == "put" and call.path.name == "outcome" and late < 2:
            late += 1
            table.write("_temporary/job/outcome", marked[0])

    second.store.before_call = before
    await second.commit()
    assert late == 2
    assert second.error is None, second.error
    assert table.files() == NEW
    assert b"p=1/b" in table.all_files()["_SUCCESS"]
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
@pytest.mark.parametrize("kind", ["lost", "unanswered", "again"])
async def test_mark_whose_answer_is_lost_is_written_once(profile: str, kind: FaultKind) -> None:
    """The second request would be refused: the driver looks, and finds its own mark, or puts it again."""
    table = Table(profile)
    job = await table.job("job", OLD, committer.CommitterConfig(outcome_kept=True))
    marks = 0

    async def before(call: Call) -> None:
        nonlocal marks
        if call.operation == "put" and call.path.name == "outcome":
            marks += 1
            if marks == 2:
                job.store.faults.append(Fault(kind=kind, operation="put", path="/outcome"))

    job.store.before_call = before
    await job.commit()
    assert job.error is None, job.error
    assert marks == {"lost": 2, "unanswered": 3, "again": 2}[kind]
    assert b'"finished": true' in table.all_files()["_temporary/job/outcome"]
    assert table.temporary() == {"_temporary/job/outcome"}
