"""The request that removes a replace lock, and arrives when another job, or another try, holds the lock by then.

Where a rename is not told which file it moves, nothing but the name that it goes to can refuse it: that name stays taken
as long as its directory stands. Elsewhere the store decides by the identity.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError, StoreOutcomeUnknownError
from committer.paths import StorePath
from committer.stores.memory import MemorySpace
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table, is_record
from tests.neighbours.test_intent_of_two_drivers import Held

LOCK = "_temporary/.replace-lock"
OLD = {"p=1/old": b"old"}
REPLACED = {"p=1/r-0": b"r"}
OTHERS = {"p=1/other": b"o"}
APPENDED = {"p=1/a-0": b"a"}
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")
# What a job leaves stays, and with it every directory that a late request can go to.
LEFT = CommitterConfig(io_concurrency=1, conflict_mode="replace", cleanup_skipped=True)

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
HOW = pytest.mark.parametrize("how", ["late", "again"])
How: TypeAlias = Literal["late", "again"]


class HeldBack(Connection):
    """A connection whose first request that removes a file arrives when the test wants, once more or only then.

    Where `passes` is given, so many of them come in time, and the next one does not.
    """

    def __init__(self, space: MemorySpace, how: How, name: str = ".replace-lock", *, passes: int = 0) -> None:
        super().__init__(space)
        self._how, self._name, self._passes = how, name, passes
        self._effect: Callable[[], Awaitable[Any]] | None = None

    async def run(
        self,
        operation: str,
        effect: Callable[[], Awaitable[Any]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> Any:
        """Keeps the request, and has its caller not know."""
        if self._effect is not None or path.name != self._name or operation not in ("rename_file", "delete_file_if"):
            return await super().run(operation, effect, path, destination)
        if self._passes:
            self._passes -= 1
            return await super().run(operation, effect, path, destination)
        self._effect = effect
        if self._how == "again":
            return await super().run(operation, effect, path, destination)
        raise StoreOutcomeUnknownError("the answer is late", operation=operation, path=path)

    async def arrive(self) -> None:
        """The request arrives. What comes of it no caller hears."""
        assert self._effect is not None, self.log()
        with suppress(committer.CommitterError):
            await self._effect()


def decides(call: Call) -> bool:
    return call.operation == "put" and call.path.name == "decision"


async def attached(table: Table, party: Party, store: Connection) -> Party:
    """Another driver of a job."""
    driver = await committer.attach_job(party.driver.spec, storage_options={"store": store})
    return Party(driver, store, party.messages)


async def withdrawn(table: Table, how: How, config: CommitterConfig = REPLACE) -> tuple[Party, HeldBack]:
    """A replacing job whose driver withdrew, because it could not read a record; how far is for the test to tell."""
    store = HeldBack(table.space, how)
    party = await attached(table, await table.job("replace", REPLACED, config), store)
    store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    await party.commit()
    assert party.error is not None
    return party, store


async def check_keeps_its_lock(table: Table, party: Party, store: HeldBack | None, files: Mapping[str, bytes]) -> None:
    """The request of `store` arrives when the driver is about to decide: another job finds the lock, and goes second."""
    going_on = Held(party, decides)
    await going_on.stopped()
    if store is not None:
        await store.arrive()
    assert LOCK in table.all_files()
    append = await table.job("append", APPENDED)
    await append.commit()
    assert append.busy, append.error
    await going_on.finish()
    assert party.error is None, party.error
    await append.commit()
    assert append.error is None, append.error
    assert table.files() == {**files, **APPENDED}


@HOW
@PROFILES
async def test_job_that_is_committed_again_keeps_its_lock(profile: str, how: How) -> None:
    table = Table(profile, OLD)
    party, store = await withdrawn(table, how)
    await check_keeps_its_lock(table, party, store, REPLACED)
    assert table.temporary() == set()


@HOW
@PROFILES
async def test_driver_that_withdraws_twice_before_it_goes_on_keeps_its_lock(profile: str, how: How) -> None:
    """Found by the search (94038). A neighbour is in the way, so that the lock is given back, and once more when the
    driver says that it withdraws.
    """
    table = Table(profile, OLD)
    neighbour = Held(await table.job("neighbour", OTHERS), decides)
    await neighbour.stopped()
    store = HeldBack(table.space, how)
    party = await attached(table, await table.job("replace", REPLACED, REPLACE), store)
    await party.commit()
    assert party.busy, party.error
    assert LOCK not in table.all_files()
    await neighbour.finish()
    await check_keeps_its_lock(table, party, store, REPLACED)
    assert table.temporary() == set()


@HOW
@PROFILES
async def test_other_driver_of_the_job_keeps_its_lock(profile: str, how: How) -> None:
    table = Table(profile, OLD)
    party, store = await withdrawn(table, how)
    two = await attached(table, party, Connection(table.space))
    await check_keeps_its_lock(table, two, store, REPLACED)
    assert table.temporary() == set()


@HOW
@PROFILES
async def test_job_that_is_set_up_anew_keeps_its_lock(profile: str, how: How) -> None:
    """The directory of the job is there again; not the one that goes with the earlier setup."""
    table = Table(profile, OLD)
    _party, store = await withdrawn(table, how)
    await committer.recover(table.dest, "replace", rollback=True, storage_options=table.options)
    assert table.temporary() == set()
    anew = await table.job("replace", OTHERS, REPLACE)
    await check_keeps_its_lock(table, anew, store, OTHERS)


@HOW
@PROFILES
async def test_next_job_keeps_its_lock_where_an_aborted_one_is_left(profile: str, how: How) -> None:
    """An abort released the lock, and the directory stands in which the late request has a name to go to."""
    table = Table(profile, OLD)
    party, store = await withdrawn(table, how, LEFT)
    async with committer.attach_job(party.driver.spec, storage_options=table.options) as job:
        await job.abort()
    assert LOCK not in table.all_files()
    await check_next(table, store)


@HOW
@PROFILES
async def test_next_job_keeps_its_lock_where_a_committed_one_is_left(profile: str, how: How) -> None:
    """It is the release at the job's end that comes late, and another driver did the rest."""
    table = Table(profile, OLD)
    store = HeldBack(table.space, how)
    party = await attached(table, await table.job("replace", REPLACED, LEFT), store)
    await party.commit()
    if party.error is not None:
        assert party.error.outcome == "committed"
        await committer.recover(table.dest, "replace", storage_options=table.options)
    assert LOCK not in table.all_files()
    await check_next(table, store)


async def check_next(table: Table, store: HeldBack) -> None:
    """Another replacing job keeps the lock when the request arrives."""
    other = await table.job("other", OTHERS, REPLACE)
    await check_keeps_its_lock(table, other, store, OTHERS)
    await committer.cleanup(table.dest, job_id="replace", storage_options=table.options)
    assert table.temporary() == set()


@HOW
@PROFILES
async def test_next_job_keeps_its_lock_when_the_other_is_gone(profile: str, how: How) -> None:
    """The job is aborted, and its directories are gone."""
    table = Table(profile, OLD)
    party, store = await withdrawn(table, how)
    async with committer.attach_job(party.driver.spec, storage_options=table.options) as job:
        await job.abort()
    other = await table.job("other", OTHERS, REPLACE)
    await check_keeps_its_lock(table, other, store, OTHERS)
    with pytest.raises(JobNotFoundError):
        await committer.cleanup(table.dest, job_id="replace", storage_options=table.options)
    assert table.temporary() == set()


@HOW
@PROFILES
async def test_next_job_keeps_its_lock_when_the_other_is_left_without_its_job(profile: str, how: How) -> None:
    """It arrived late, when the job was removed: no directory stands that it could be taken to."""
    table = Table(profile, OLD)
    lost = Held(party := await table.job("replace", REPLACED, REPLACE), decides)
    await lost.stopped()
    lock = table.all_files()[LOCK]
    async with committer.attach_job(party.driver.spec, storage_options=table.options) as job:
        await job.abort()
    await lost.finish()
    assert table.temporary() == set()
    table.write(LOCK, lock)
    # Where directories are real the first two find none.
    store = HeldBack(table.space, how, passes=2 if table.space.store().capabilities.directories else 0)
    for options in ({"store": store}, table.options):
        with suppress(JobNotFoundError, StoreOutcomeUnknownError):
            await committer.cleanup(table.dest, job_id="replace", storage_options=options)
    assert LOCK not in table.all_files()
    await check_keeps_its_lock(table, await table.job("other", OTHERS, REPLACE), store, OTHERS)
    assert table.temporary() == set()


class HalfWay(Connection):
    """A connection whose first rename of a file is a link that was made, and a delete that was not."""

    def __init__(self, space: MemorySpace, *, dies: bool, name: str = ".replace-lock") -> None:
        super().__init__(space)
        self._dies, self._name = dies, name
        self._done = False

    async def run(
        self,
        operation: str,
        effect: Callable[[], Awaitable[Any]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> Any:
        """Leaves both names."""
        if self._done or destination is None or path.name != self._name:
            return await super().run(operation, effect, path, destination)
        self._done = True
        await self.inner.put(destination, await self.inner.read(path, limit=1 << 20))
        self.crashed = self._dies
        raise StoreOutcomeUnknownError("the answer was lost", operation=operation, path=path)


@pytest.mark.parametrize("dies", [False, True])
async def test_lock_that_was_given_back_half_way_is_taken_anew(dies: bool) -> None:
    """Both names stand, so that no driver can rest on the lock: it is taken away to the other name, and taken anew."""
    table = Table("local", OLD)
    store = HalfWay(table.space, dies=dies)
    one = await attached(table, await table.job("replace", REPLACED, REPLACE), store)
    store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    try:
        await one.commit()
    except SimulatedCrash:
        assert dies
    else:
        assert one.error is not None
    assert (LOCK in table.all_files()) == dies
    two = await attached(table, one, Connection(table.space))
    await check_keeps_its_lock(table, two, None, REPLACED)
    assert table.temporary() == set()
