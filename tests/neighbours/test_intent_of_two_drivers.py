"""A job with two drivers, one of which withdraws, beside replacing jobs: the other one must not be overlooked."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig
from committer.layout import COMMITTING
from committer.testing.faults import Call, Fault
from tests.neighbours.ending import Steps
from tests.neighbours.meeting import Connection, Party, Table, publishes

OLD = {"p=1/old": b"old"}
APPENDED = {"p=1/a-0": b"a", "p=1/a-1": b"a"}
ONE_BY_ONE = CommitterConfig(io_concurrency=1)
REPLACE = CommitterConfig(io_concurrency=1, conflict_mode="replace")


PROFILES = pytest.mark.parametrize("profile", ["local", "adls", "gcs", "s3"])


def withdraws(call: Call) -> bool:
    return call.operation == "delete_file" and call.path.parent.name == COMMITTING


def decides(call: Call) -> bool:
    return call.operation == "put" and call.path.name == "decision"


async def two_drivers(table: Table) -> tuple[Party, Steps]:
    """A job that is about to be decided by a driver, beside another driver of it that withdrew and died.

    It withdrew because of a replacing job that ended before the second one looked.
    """
    replace = await table.job("replace", {"p=1/replaced": b"r"}, REPLACE)
    one = await table.job("append", APPENDED, ONE_BY_ONE, "message")
    store = Connection(table.space)
    driver = await committer.attach_job(one.driver.spec, storage_options={"store": store})
    two = Party(driver, store, one.messages)

    holder = await Steps(replace).until(lambda call: call.path.name == "decision")
    withdrawing = await Steps(one).until(withdraws)
    # The other one's entry stands, and so it is the first driver of the two that is in the way.
    await holder.to_the_end()
    assert replace.error is None
    going_on = await Steps(two).until(decides)
    await withdrawing.to_the_end()
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
    await going_on.to_the_end()
    assert again.busy or again.error is None
    check(table, two, again)


@PROFILES
async def test_replacer_that_looks_before_the_other_driver_decides(profile: str) -> None:
    """The intent that the job's first driver rolled back was not the one its second driver rests on."""
    table = Table(profile, OLD)
    two, going_on = await two_drivers(table)
    again = await table.job("again", {"p=1/again": b"g"}, REPLACE)
    await again.commit()
    assert again.busy
    assert again.error.owner == "append"  # type: ignore[union-attr]
    await going_on.to_the_end()
    check(table, two, again)
    await again.commit()
    assert again.error is None
    assert table.files() == {"p=1/again": b"g"}


@PROFILES
async def test_replacer_whose_other_driver_withdraws_is_seen(profile: str) -> None:
    """A replacing driver that withdraws deletes its own entry only."""
    replaced = {"p=1/r-0": b"r", "p=2/r-1": b"r"}
    table = Table(profile, OLD)
    one = await table.job("replace", replaced, REPLACE)
    # It cannot list the entries, stays undecided, and is about to withdraw.
    one.store.faults.append(Fault(kind="forbidden", operation="list", path=COMMITTING))
    withdrawing = await Steps(one).until(withdraws)
    store = Connection(table.space)
    driver = await committer.attach_job(one.driver.spec, storage_options={"store": store})
    two = Party(driver, store, one.messages)
    going_on = await Steps(two).until(decides)
    await withdrawing.to_the_end()
    assert one.error is not None
    append = await table.job("append", APPENDED, ONE_BY_ONE)
    await append.commit()
    assert append.busy
    await going_on.to_the_end()
    assert two.error is None
    await append.commit()
    assert append.error is None
    assert table.files() == {**replaced, **APPENDED}
    assert table.temporary() == set()


@PROFILES
async def test_replacer_that_stays_undecided_keeps_no_job_out(profile: str) -> None:
    """A replacing job that stays undecided keeps no other job out, and can be committed again."""
    table = Table(profile, OLD)
    one = await table.job("replace", {"p=1/r-0": b"r"}, REPLACE)
    one.store.faults.append(Fault(kind="forbidden", operation="list", path=COMMITTING))
    await one.commit()
    assert one.error is not None
    append = await table.job("append", APPENDED, ONE_BY_ONE)
    await append.commit()
    assert append.error is None
    await one.commit()
    assert one.error is None
    assert table.files() == {"p=1/r-0": b"r"}
