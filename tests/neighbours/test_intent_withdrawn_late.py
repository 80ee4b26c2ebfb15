"""The request by which a driver takes its intent back, and that arrives when the intent of the next try has that name.

Jobs that replace would overlook that try, and take away the files that its report counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

import committer
from committer import CommitterConfig
from committer.committers.context import open_context
from committer.errors import JobUndecidedError, TaskMissingError
from committer.records.job_state import Intent, decode_record
from committer.stages.base import StageContext
from committer.stages.intent import withdraw
from committer.testing.faults import Call, Fault, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table, is_record
from tests.neighbours.test_intent_of_two_drivers import Held
from tests.neighbours.test_lock_given_back_late import (
    HOW,
    OLD,
    PROFILES,
    REPLACE,
    REPLACED,
    HalfWay,
    HeldBack,
    How,
    attached,
    decides,
)

INTENT = "_temporary/append/intent"
APPENDED = {"p=1/a-0": b"a"}
APPEND = CommitterConfig(io_concurrency=1)


async def refused(table: Table, store: Connection, *faults: Fault) -> Party:
    """A job whose driver withdrew, because it could not read a record."""
    party = await attached(table, await table.job("append", APPENDED, APPEND), store)
    store.faults += [Fault(kind="forbidden", operation="read", path=is_record), *faults]
    await party.commit()
    assert party.error is not None
    return party


async def check_seen(table: Table, late: Callable[[], Awaitable[None]], party: Party) -> None:
    """`late` happens when the driver is about to decide: a replacing job sees that try, and goes second."""
    again = Held(party, decides)
    await again.stopped()
    await late()
    assert INTENT in table.all_files()
    replacing = await table.job("replace", REPLACED, REPLACE)
    await replacing.commit()
    assert replacing.busy, replacing.error
    await again.finish()
    assert party.error is None, party.error
    assert table.files() == {**OLD, **APPENDED}
    await replacing.commit()
    assert replacing.error is None, replacing.error
    assert table.files() == REPLACED
    assert table.temporary() == set()


@HOW
@PROFILES
async def test_next_try_is_seen_by_a_job_that_replaces(profile: str, how: How) -> None:
    table = Table(profile, OLD)
    store = HeldBack(table.space, how, "intent")
    party = await refused(table, store)
    assert INTENT not in table.all_files()
    await check_seen(table, store.arrive, party)


@HOW
@PROFILES
async def test_try_after_next_is_seen_by_a_job_that_replaces(profile: str, how: How) -> None:
    """Between the two the next try is refused as well, and withdraws."""
    table = Table(profile, OLD)
    store = HeldBack(table.space, how, "intent")
    party = await refused(table, store)
    store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    await party.commit()
    assert party.error is not None
    assert INTENT not in table.all_files()
    await check_seen(table, store.arrive, party)


async def test_intent_that_was_renamed_half_way_is_taken_back() -> None:
    """A rename is a link and a delete there: both names stand after the first."""
    table = Table("local", OLD)
    party = await refused(table, HalfWay(table.space, dies=False, name="intent"))
    assert party.error.outcome == "unchanged"  # type: ignore[union-attr]
    assert INTENT not in table.all_files()


async def declared(table: Table) -> tuple[Party, StageContext, bytes]:
    """A driver that declared its intent and went no further, as it goes on from there; and that intent."""
    party = await table.job("append", APPENDED, APPEND)
    party.store.faults.append(Fault(kind="crash_after", operation="put", path="/intent"))
    with pytest.raises(SimulatedCrash):
        await party.commit()
    written = table.all_files()[INTENT]
    context = await open_context(party.driver.spec, Connection(table.space), owned=False)
    return party, replace(context, driver=decode_record(written, Intent, source=INTENT).driver), written


@PROFILES
async def test_own_intent_that_came_a_second_time_is_taken_back(profile: str) -> None:
    """The request that wrote it arrived again when the driver had withdrawn, and it withdraws once more."""
    table = Table(profile, OLD)
    _party, context, written = await declared(table)
    await withdraw(context, context.layout.intent)
    assert INTENT not in table.all_files()
    table.write(INTENT, written)
    await withdraw(context, context.layout.intent)
    assert INTENT not in table.all_files()


@PROFILES
async def test_driver_that_withdraws_twice_leaves_the_next_tries_intent(profile: str) -> None:
    """Whether the first time came through it does not know; another driver of the job declares in between."""
    table = Table(profile, OLD)
    party, context, _written = await declared(table)
    await withdraw(context, context.layout.intent)
    two = await attached(table, party, Connection(table.space))
    await check_seen(table, lambda: withdraw(context, context.layout.intent), two)


def _takes_intent(call: Call) -> bool:
    return call.operation in ("rename_file", "delete_file", "delete_file_if") and call.path.name == "intent"


def _joins(call: Call) -> bool:
    return call.operation == "put" and call.path.name.startswith("intent-")


@PROFILES
@pytest.mark.parametrize("joins_first", [True, False])
async def test_no_intent_is_left_of_two_drivers_that_withdraw(profile: str, joins_first: bool) -> None:
    """The second one has other winners. It joins while the first one, which looked at its intent, takes that back."""
    table = Table(profile, OLD)
    one = await table.job("append", APPENDED, APPEND)
    one.store.faults.append(Fault(kind="forbidden", operation="read", path=is_record))
    store = Connection(table.space)
    driver = await committer.attach_job(one.driver.spec, storage_options={"store": store})
    two = Party(driver, store, None, tasks=5)
    first, second = Held(one, _takes_intent), Held(two, _joins)
    await first.stopped()
    await second.stopped()
    for party in (second, first) if joins_first else (first, second):
        await party.finish()
    assert [party.error.outcome for party in (one, two) if party.error is not None] == ["unchanged"] * 2
    left = {name for name in table.all_files() if name.startswith(INTENT)}
    assert left == set()
    with pytest.raises(JobUndecidedError):
        await committer.recover(table.dest, "append", storage_options=table.options)


@PROFILES
async def test_recovery_goes_by_the_try_that_began_last(profile: str) -> None:
    """Both drivers died before they decided. The second one had other winners."""
    table = Table(profile, OLD)
    one, context, _written = await declared(table)
    store = Connection(table.space)
    two = Party(await committer.attach_job(one.driver.spec, storage_options={"store": store}), store, None, tasks=5)
    store.faults.append(Fault(kind="crash_after", operation="put", path=f"{INTENT}-"))
    with pytest.raises(SimulatedCrash):
        await two.commit()
    with pytest.raises(TaskMissingError):
        await committer.recover(table.dest, "append", storage_options=table.options)
    assert table.files() == OLD
    await withdraw(context, context.layout.intent)
    assert INTENT not in table.all_files()


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_intent_that_stayed_when_its_rename_was_barred_is_taken_back(profile: str) -> None:
    """The name it goes to is taken, by nothing, and the delete after that failed: the driver withdraws once more."""
    table = Table(profile, OLD)
    _party, context, _written = await declared(table)
    table.write(f"_temporary/append/{context.layout.drivers.name}/intent-of-{context.driver}", b"Nothing")
    await withdraw(context, context.layout.intent)
    assert INTENT not in table.all_files()
