"""A job with two drivers, one of which withdraws, beside replacing jobs: the other one must not be overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import committer
from committer import CommitterConfig
from committer.testing.faults import Call, Fault
from tests.neighbours.meeting import Connection, Party, Table, is_record, publishes

OLD = {"p=1/old": b"old"}
APPENDED = {"p=1/a-0": b"a", "p=1/a-1": b"a"}
ONE_BY_ONE = CommitterConfig(io_concurrency=1)
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")


PROFILES = pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])


class Held:
    """A driver that stops before the first call that `stop` picks, until it is let go."""

    def __init__(self, party: Party, stop: Callable[[Call], bool]) -> None:
        self._stop = stop
        self._party = party
        self._stopped, self._go = asyncio.Event(), asyncio.Event()
        party.store.before_call = self._before
        self._running = asyncio.create_task(party.commit())

    async def _before(self, call: Call) -> None:
        if not self._stopped.is_set() and self._stop(call):
            self._stopped.set()
            await self._go.wait()

    async def stopped(self) -> None:
        waiting = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({waiting, self._running}, return_when=asyncio.FIRST_COMPLETED)
        assert self._stopped.is_set(), self._party.error

    @property
    def over(self) -> bool:
        return self._running.done()

    async def finish(self) -> None:
        self._go.set()
        await self._running


def reads_lock(times: int) -> Callable[[Call], bool]:
    left = times

    def stop(call: Call) -> bool:
        nonlocal left
        if call.operation == "read" and call.path.name == ".replace-lock":
            left -= 1
        return left == 0

    return stop


def releases_lock(call: Call) -> bool:
    return call.operation in ("rename_file", "delete_file_if") and call.path.name == ".replace-lock"


async def two_drivers(table: Table) -> tuple[Party, Held]:
    """A job that is about to be decided by a driver whose intent the job's other driver took back, and then died.

    It withdrew because of a lock that was released before the second one looked.
    """
    replace = await table.job("replace", {"p=1/replaced": b"r"}, REPLACE)
    one = await table.job("append", APPENDED, ONE_BY_ONE, "message")
    store = Connection(table.space)
    driver = await committer.attach_job(one.driver.spec, storage_options={"store": store})
    two = Party(driver, store, one.messages)

    holder = Held(replace, lambda call: call.path.name == "decision")
    await holder.stopped()
    # Found the lock, and is about to take the intent back.
    withdrawing = Held(one, reads_lock(2))
    await withdrawing.stopped()
    await holder.finish()
    assert replace.error is None
    # Finds the intent and no lock.
    going_on = Held(two, lambda call: call.operation == "put" and call.path.name == "decision")
    await going_on.stopped()
    await withdrawing.finish()
    assert one.busy
    return two, going_on


def check(table: Table, two: Party, again: Party) -> None:
    for party in (two, again):
        assert party.error is None or party.busy, party.error
    appended = {name for name in table.files() if name.startswith("p=1/a-")}
    assert two.error is not None or len(appended) != 1, f"half of a committed job is gone: {sorted(table.files())}"


@PROFILES
async def test_replacer_that_comes_while_the_other_driver_publishes(profile: str) -> None:
    """The decision stands, and the intent does not: the replacer must see the one for the other."""
    table = Table(profile, OLD)
    two, going_on = await two_drivers(table)
    again = await table.job("again", {"p=1/again": b"g"}, REPLACE)

    async def half_way(call: Call) -> None:
        if publishes(call, "a-1"):
            two.store.before_call = None
            await again.commit()

    two.store.before_call = half_way
    await going_on.finish()
    assert again.busy or again.error is None
    check(table, two, again)


@PROFILES
async def test_replacer_that_looks_before_the_other_driver_decides(profile: str) -> None:
    """The intent that the job's first driver took back was not the one its second driver rests on."""
    table = Table(profile, OLD)
    two, going_on = await two_drivers(table)
    again = await table.job("again", {"p=1/again": b"g"}, REPLACE)
    await again.commit()
    assert again.busy
    assert again.error.owner == "append"  # type: ignore[union-attr]
    await going_on.finish()
    check(table, two, again)
    await again.commit()
    assert again.error is None
    assert table.files() == {"p=1/again": b"g"}


@PROFILES
async def test_lock_that_another_driver_of_the_job_rests_on(profile: str) -> None:
    """A replacing driver that withdraws, stopped before it gives the lock back, leaves it to who took it over."""
    replaced = {"p=1/r-0": b"r", "p=2/r-1": b"r"}
    table = Table(profile, OLD)
    one = await table.job("replace", replaced, REPLACE)
    # It cannot read a record, stays undecided, and is about to release the lock.
    one.store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    withdrawing = Held(one, releases_lock)
    await withdrawing.stopped()
    store = Connection(table.space)
    driver = await committer.attach_job(one.driver.spec, storage_options={"store": store})
    two = Party(driver, store, one.messages)
    going_on = Held(two, lambda call: call.operation == "put" and call.path.name == "decision")
    await going_on.stopped()
    await withdrawing.finish()
    assert one.error is not None
    append = await table.job("append", APPENDED, ONE_BY_ONE)
    await append.commit()
    assert append.busy
    await going_on.finish()
    assert two.error is None
    await append.commit()
    assert append.error is None
    assert table.files() == {**replaced, **APPENDED}
    assert table.temporary() == set()


@PROFILES
async def test_lock_of_a_driver_that_is_about_to_decide_is_never_open(profile: str) -> None:
    """A second driver of a replacing job, stopped before any of its calls: no other job finds the lock released."""
    replaced = {"p=1/r-0": b"r"}
    deciding = False
    number = 0
    while not deciding:
        table = Table(profile, OLD)
        one = await table.job("replace", replaced, REPLACE)
        first = Held(one, lambda call: call.operation == "put" and call.path.name == "decision")
        await first.stopped()
        store = Connection(table.space)
        driver = await committer.attach_job(one.driver.spec, storage_options={"store": store})
        left = number

        def stop(call: Call) -> bool:
            nonlocal left, deciding
            deciding = call.operation == "put" and call.path.name == "decision"
            left -= 1
            return left < 0 or deciding

        two = Party(driver, store, one.messages)
        second = Held(two, stop)
        await second.stopped()
        append = await table.job("append", APPENDED, ONE_BY_ONE)
        await append.commit()
        assert append.busy, f"with the second driver before its call {number}"
        await second.finish()
        await first.finish()
        assert two.error is None
        assert one.error is None
        await append.commit()
        assert append.error is None
        assert table.files() == {**replaced, **APPENDED}
        assert table.temporary() == set()
        number += 1
    assert number > 10


@PROFILES
async def test_lock_is_given_back_by_a_driver_that_no_other_rests_on(profile: str) -> None:
    """A replacing job that stays undecided keeps no other job out, and can be committed again."""
    table = Table(profile, OLD)
    one = await table.job("replace", {"p=1/r-0": b"r"}, REPLACE)
    one.store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    await one.commit()
    assert one.error is not None
    append = await table.job("append", APPENDED, ONE_BY_ONE)
    await append.commit()
    assert append.error is None
    await one.commit()
    assert one.error is None
    assert table.files() == {"p=1/r-0": b"r"}
