"""An operator's call, or a late driver's, that is stopped while the job is ended and its id set up anew.

What `test_set_up_anew` says of drivers holds for those who know a job by its id alone, too, from the moment in which
they learned which setup of it they are about, until a cleanup listed what it deletes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, JobNotFoundError
from committer.operations import forget_outcome
from committer.testing.faults import Call, SimulatedCrash
from tests.neighbours.meeting import Connection, Table
from tests.neighbours.test_set_up_anew import OLD, SECOND, Anew
from tests.rotation import Share

Operation = Callable[[str, dict[str, object]], Awaitable[Any]]

OPERATIONS: dict[str, Operation] = {
    "cleanup": lambda dest, options: committer.cleanup(dest, job_id="job", storage_options=options),
    "by force": lambda dest, options: committer.cleanup(dest, job_id="job", force=True, storage_options=options),
    "by age": lambda dest, options: committer.cleanup(dest, older_than=0, storage_options=options),
    "of a stream": lambda dest, options: forget_outcome(dest, "job", storage_options=options),
    "roll back": lambda dest, options: committer.recover(dest, "job", rollback=True, storage_options=options),
}
PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])


async def begun(profile: str, *, aborted: bool) -> Anew:
    """A job that is open, or whose driver died when it had decided to abort it."""
    anew = Anew(profile, "message")
    first = await anew.first()
    if not aborted:
        return anew

    async def die(call: Call) -> None:
        if call.operation.startswith("delete") or call.operation == "rename_directory":
            first.store.crashed = True
            raise SimulatedCrash(call)

    first.store.before_call = die
    with pytest.raises((SimulatedCrash, ExceptionGroup)):
        await first.driver.abort()
    return anew


async def window(anew: Anew, operation: Operation) -> range:
    """Its calls from the one after it knew which setup stands, to the one that lists what it deletes.

    It knows when it read the record, or when it saw that what it read is what stands.
    """
    store = Connection(anew.table.space)
    await operation(anew.table.dest, {"store": store})
    learned = next(call.number for call in store.calls if call.operation == "read" and call.path.name == "setup")
    after = store.calls[learned]
    learned += (after.operation, after.path.name) == ("status", "setup")
    lists = [call for call in store.calls if call.operation == "list"]
    first = ("drivers-",) if store.capabilities.directories else ("00",)
    cleanup = next(number for number, call in enumerate(lists) if call.path.name.startswith(first))
    looks = [call.number for call in lists[:cleanup] if call.path.name == "job"]
    return range(learned + 1, looks[-1] + 1)


@PROFILES
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("aborted", [False, True], ids=["open", "aborted"])
async def test_operator_who_goes_on_does_not_reach_the_new_setup(
    profile: str, operation: str, aborted: bool, share: Share
) -> None:
    run = OPERATIONS[operation]
    for number in share.of(await window(await begun(profile, aborted=aborted), run)):
        anew = await begun(profile, aborted=aborted)
        store = Connection(anew.table.space)

        async def before(call: Call, number: int = number, anew: Anew = anew) -> None:
            if call.number == number:
                await anew.set_up_anew()

        store.before_call = before
        try:
            report = await run(anew.table.dest, {"store": store})
        except CommitterError as error:
            assert isinstance(error, JobNotFoundError), (number, error)
        else:
            assert operation == "roll back" or "job" in report.kept, (number, report)
        await anew.recover_too_early()
        await anew.commit_second()


@PROFILES
async def test_lock_of_the_new_setup_is_never_released(profile: str, share: Share) -> None:
    """A replacing driver is stopped before each of its calls, until its cleanup lists what it deletes."""
    config = CommitterConfig(conflict_mode="replace")
    taken = False
    for number in share.counted():
        table = Table(profile, {**OLD, "p=1/old": b"old"})
        late = await table.job("job", {"p=1/first": b"1"}, config)
        met = _Met(table, config)

        async def before(call: Call, number: int = number, met: _Met = met) -> None:
            if call.operation == "list" and call.path.name == "tasks":
                met.over = True
            if call.number == number and not met.over:
                await met.set_up_anew()

        late.store.before_call = before
        await late.commit()
        if met.second is None:
            assert taken
            return
        assert f"{met.lock}" in table.all_files(), number
        taken = True
        met.go_on.set()
        await met.second
        assert met.error is None, (number, met.error)
        assert table.files() == {**OLD, "p=1/second": b"2"}, number
        assert table.temporary() == set(), number


class _Met:
    """A job that is set up under the id of one that is over, and stops when it holds the replace lock."""

    lock = "_temporary/.replace-lock"

    def __init__(self, table: Table, config: CommitterConfig) -> None:
        self.table = table
        self.config = config
        self.over = False
        self.go_on = asyncio.Event()
        self.second: asyncio.Task[None] | None = None
        self.error: CommitterError | None = None

    async def set_up_anew(self) -> None:
        try:
            await committer.recover(self.table.dest, "job", rollback=False, storage_options=self.table.options)
        except CommitterError:
            await committer.cleanup(self.table.dest, job_id="job", storage_options=self.table.options)
        new = await self.table.job("job", {"p=1/second": b"2"}, self.config)
        holds = asyncio.Event()

        async def before(call: Call) -> None:
            if self.lock in self.table.all_files() and not holds.is_set():
                holds.set()
                await self.go_on.wait()

        async def commit() -> None:
            await new.commit()
            self.error = new.error

        new.store.before_call = before
        self.second = asyncio.create_task(commit())
        await holds.wait()


@PROFILES
async def test_spec_of_an_earlier_setup_joins_no_other_job(profile: str) -> None:
    """As Spark's processes do, which commit and abort by the spec of a job."""
    anew = Anew(profile, "message")
    first = await anew.first()
    await anew.set_up_anew()
    with pytest.raises(JobNotFoundError, match="set up anew") as caught:
        await committer.attach_job(first.driver.spec, storage_options=anew.table.options)
    assert caught.value.outcome == "unchanged"
    await anew.commit_second()


@PROFILES
@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_task_attempt_of_the_new_setup_is_not_aborted_by_its_ids(profile: str, delivery: str) -> None:
    anew = Anew(profile, delivery)
    first = await anew.first()
    await anew.set_up_anew()
    with pytest.raises(JobNotFoundError, match="set up anew"):
        await first.driver.abort_task(0, 0)
    await anew.commit_second()
    assert set(SECOND) <= anew.table.files().keys()


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs"])
async def test_cleanup_by_age_removes_what_a_task_attempt_wrote_when_its_job_was_gone(profile: str) -> None:
    """No record stands, and no directory tells its age."""
    table = Table(profile)
    table.write("_temporary/job/00/tasks/attempt_job_m_000000_0-0123456789ab/p=1/late", b"late")
    report = await committer.cleanup(table.dest, older_than=3600, storage_options=table.options)
    assert list(report.kept) == ["job"]
    report = await committer.cleanup(table.dest, older_than=0, storage_options=table.options)
    assert report.removed == ["job"]
    assert table.temporary() == set()
