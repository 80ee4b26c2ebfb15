"""A process that is stopped within its cleanup while the job is ended and its id set up anew.

What it listed had names that the new job's files and records have, too. When it goes on, before the new job's driver
begins to commit or in the middle of that, the new job ends as if undisturbed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import count

import pytest

import committer
from committer.errors import CommitterError, JobDecidedError, JobExistsError, JobNotFoundError
from committer.operations import forget_outcome
from committer.testing.faults import Call
from tests.neighbours.meeting import Connection, Party, Table, publishes
from tests.rotation import Share

OLD = {"p=0/old": b"old"}
FIRST = {"p=1/first-0": b"1", "p=1/first-1": b"1"}
SECOND = {"p=1/second-0": b"2", "p=2/second-1": b"2"}

Cleaner = Callable[[Party], Awaitable[object]]


def _by(operation: Callable[..., Awaitable[object]], *job_id: str, **arguments: object) -> Cleaner:
    return lambda party: operation(
        party.driver.spec.destination, *job_id, storage_options={"store": party.store}, **arguments
    )


CLEANERS: dict[str, Cleaner] = {
    "commit": lambda party: party.driver.commit(party.messages),
    "abort": lambda party: party.driver.abort(),
    "roll back": _by(committer.recover, "job", rollback=True),
    "cleanup": _by(committer.cleanup, job_id="job"),
    "by force": _by(committer.cleanup, job_id="job", force=True),
    "by age": _by(committer.cleanup, older_than=0),
    "of a stream": _by(forget_outcome, "job"),
}
PLACES = [
    ("local", "listing"),
    ("local", "message"),
    ("hdfs", "listing"),
    ("adls", "listing"),
    ("gcs", "listing"),
    ("gcs", "message"),
    ("s3", "listing"),
    ("s3", "message"),
]

MIDDLES = [("local", "message"), ("adls", "listing"), ("gcs", "listing"), ("s3", "listing")]
DRIVERS = [CLEANERS["commit"], CLEANERS["abort"]]


async def run(party: Party, cleaner: Cleaner) -> None:
    try:
        await cleaner(party)
    except CommitterError as error:
        party.error = error


async def end(table: Table) -> None:
    """Ends the job as another driver of it does, or an operator."""
    try:
        async with committer.attach_job(table.dest, job_id="job", storage_options=table.options) as job:
            await job.abort()
    except JobDecidedError:
        await committer.recover(table.dest, "job", storage_options=table.options)
    except JobNotFoundError:
        pass
    if FIRST.keys() <= table.files().keys():
        await committer.recover(table.dest, "job", storage_options=table.options)


async def learns(profile: str, delivery: str, cleaner: Cleaner) -> int:
    """The number of the first call of a cleaner that knows which setup of the id it is about."""
    table = Table(profile, OLD)
    party = await table.job("job", FIRST, delivery=delivery)
    await run(party, cleaner)
    if cleaner in DRIVERS:
        return 1
    calls = party.store.calls
    learned = next(call.number for call in calls if call.operation == "read" and call.path.name == "setup")
    # It may look whether what it read is what stands.
    after = calls[learned]
    return 1 + learned + ((after.operation, after.path.name) == ("status", "setup"))


async def stopped(
    profile: str, delivery: str, cleaner: Cleaner, at: int, new_stops_at: int
) -> tuple[Table, Party] | None:
    """A cleaner that is stopped before its call of a number goes on when the new job's driver is about to make one.

    Returns:
        The table and the new job; None where the cleaner had fewer calls.
    """
    return await stopped_at(Table(profile, OLD), delivery, cleaner, at, new_stops_at)


async def stopped_at(
    table: Table, delivery: str, cleaner: Cleaner, at: int, new_stops_at: int
) -> tuple[Table, Party] | None:
    late = await table.job("job", FIRST, delivery=delivery)
    stop = Stop(at)
    late.store.before_call = stop.before
    cleaning = asyncio.create_task(run(late, cleaner))
    if not await stop.reached(cleaning):
        return None
    await end(table)
    new = await table.job("job", SECOND, delivery=delivery)

    async def before_new(call: Call) -> None:
        if call.number == new_stops_at:
            stop.go_on.set()
            await cleaning

    new.store.before_call = before_new
    await new.commit()
    stop.go_on.set()
    await cleaning
    return table, new


class Stop:
    """Where a process stands still, before its call of a number, until it is told to go on."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.stands, self.go_on = asyncio.Event(), asyncio.Event()

    async def before(self, call: Call) -> None:
        if call.number == self.at:
            self.stands.set()
            await self.go_on.wait()

    async def reached(self, running: asyncio.Task[None]) -> bool:
        """Waits until it stands still; False where it ended before."""
        standing = asyncio.create_task(self.stands.wait())
        await asyncio.wait([running, standing], return_when=asyncio.FIRST_COMPLETED)
        standing.cancel()
        if not self.stands.is_set():
            await running
        return self.stands.is_set()


def check(table: Table, new: Party, where: object) -> None:
    assert new.error is None, (where, new.error)
    assert new.report is not None
    assert new.report.files_committed == len(SECOND), where
    files = table.files()
    first = FIRST if FIRST.keys() <= files.keys() else {}
    assert files == {**OLD, **SECOND, **first}, where
    assert table.temporary() == set(), where


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cleaner", CLEANERS)
@pytest.mark.parametrize(("profile", "delivery"), PLACES)
async def test_cleaner_that_goes_on_before_the_new_commit(
    profile: str, delivery: str, cleaner: str, share: Share
) -> None:
    first = await learns(profile, delivery, CLEANERS[cleaner])
    for number in share.counted():
        if number < first:
            continue
        met = await stopped(profile, delivery, CLEANERS[cleaner], number, 1)
        if met is None:
            assert number > 10
            return
        check(*met, number)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("cleaner", ["commit", "abort", "cleanup"])
@pytest.mark.parametrize(("profile", "delivery"), MIDDLES)
async def test_cleaner_that_goes_on_in_the_middle_of_the_new_commit(
    profile: str, delivery: str, cleaner: str, share: Share
) -> None:
    """At every call of it; the cleaner at every one from that on that lists what it removes."""
    first = await learns(profile, delivery, CLEANERS[cleaner])
    table = Table(profile, OLD)
    late = await table.job("job", FIRST, delivery=delivery)
    await run(late, CLEANERS[cleaner])
    looks = [call.number for call in late.store.calls if call.operation == "list" and call.path.name == "job"]
    removes = max(first, looks[-1])
    new = await table.job("job", SECOND, delivery=delivery)
    await new.commit()
    pairs = [(at, back) for at in range(removes, len(late.store.calls) + 1) for back in range(2, new.calls + 1)]
    # Pairs grow with the square of the calls: a share takes one in 49.
    for at, back in share.of(share.of(pairs)):
        met = await stopped(profile, delivery, CLEANERS[cleaner], at, back)
        assert met is not None, at
        check(*met, (at, back))


@pytest.mark.parametrize("cleaner", ["commit", "abort", "cleanup"])
@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_cleaner_that_goes_on_by_name_reaches_no_more_than_its_next_delete(delivery: str, cleaner: str) -> None:
    """On a file system where a rename of a directory may replace one."""
    harmed = set()
    for number in count(await learns("local", delivery, CLEANERS[cleaner])):
        table = Table("local", OLD, atomic_directory_rename=False)
        met = await stopped_at(table, delivery, CLEANERS[cleaner], number, 1)
        if met is None:
            break
        try:
            check(*met, number)
        except AssertionError:
            harmed.add(number)
    late = await Table("local", OLD, atomic_directory_rename=False).job("job", FIRST, delivery=delivery)
    await run(late, CLEANERS[cleaner])
    deletes = {call.number for call in late.store.calls if call.operation.startswith("delete")}
    assert harmed <= deletes


async def opened(table: Table, delivery: str, store: Connection) -> committer.Job | None:
    try:
        return await committer.open_job(table.dest, job_id="job", delivery=delivery, storage_options={"store": store})
    except (JobExistsError, JobNotFoundError):
        return None


async def claimed(profile: str, delivery: str, cleaner: Cleaner, open_at: int, at: int, back_at: int) -> str:
    """A driver that is stopped in its setup goes on when an earlier job of the id has been run, and is being removed.

    Who removes that is stopped before its call `at`, and goes on before the other's `back_at`th call from then on, or
    when its task has committed.

    Returns:
        What became of it.
    """
    table = Table(profile, OLD)
    store, opens = Connection(table.space), Stop(open_at)
    store.before_call = opens.before
    opening = asyncio.create_task(opened(table, delivery, store))
    if not await opens.reached(opening):
        return "set up before"
    try:
        late = await table.job("job", FIRST, delivery=delivery)
    except JobExistsError:
        opens.go_on.set()
        await opening
        return "was first"
    stop = Stop(at)
    late.store.before_call = stop.before
    cleaning = asyncio.create_task(run(late, cleaner))
    if not await stop.reached(cleaning):
        opens.go_on.set()
        await opening
        return "removed before"
    calls = 0

    async def before(call: Call) -> None:
        nonlocal calls
        calls += 1
        if calls == back_at:
            stop.go_on.set()
            await cleaning

    store.before_call = before
    opens.go_on.set()
    job = await opening
    if job is None:
        stop.go_on.set()
        await cleaning
        return "refused"
    async with committer.open_task(job.spec, task=0, storage_options=table.options) as task:
        for name, data in SECOND.items():
            async with task.open(name) as file:
                await file.write(data)
    stop.go_on.set()
    await cleaning
    new = Party(job, store, [task.task_commit] if delivery == "message" else None)
    await new.commit()
    check(table, new, (open_at, at, back_at))
    return "claimed"


@pytest.mark.one_in(6)
@pytest.mark.parametrize("cleaner", ["commit", "abort", "cleanup"])
@pytest.mark.parametrize(("profile", "delivery"), MIDDLES)
async def test_driver_that_claims_an_id_whose_removal_stands_still(
    profile: str, delivery: str, cleaner: str, share: Share
) -> None:
    """It saw the id free before the earlier job was set up."""
    seen = set()
    for open_at in range(1, 6):
        for back_at in share.of([1, 2, 3, 4, 6, 8, 100]):
            for at in range(1, 100):
                seen.add(fate := await claimed(profile, delivery, CLEANERS[cleaner], open_at, at, back_at))
                if fate not in ("refused", "claimed"):
                    break
    assert {"refused", "claimed"} <= seen


@pytest.mark.parametrize("profile", ["local", "adls", "gcs"])
async def test_driver_that_stands_still_in_its_setup_takes_no_other_job_for_its_own(profile: str) -> None:
    """At each call: its job is aborted meanwhile, and the id set up anew."""
    seen = set()
    for number in count(1):
        table = Table(profile, OLD)
        store, stop = Connection(table.space), Stop(number)
        store.before_call = stop.before
        opening = asyncio.create_task(opened_or_error(table, store))
        if not await stop.reached(opening):
            break
        with contextlib.suppress(CommitterError):
            await committer.cleanup(table.dest, job_id="job", storage_options=table.options)
        new = await table.job("job", SECOND)
        stop.go_on.set()
        late = await opening
        if isinstance(late, committer.Job):
            # It was set up before.
            with pytest.raises(JobNotFoundError):
                await late.commit()
            seen.add("late")
        else:
            seen.add(type(late).__name__)
        await new.commit()
        check(table, new, number)
    assert {"JobExistsError", "JobNotFoundError"} <= seen


async def opened_or_error(table: Table, store: Connection) -> committer.Job | CommitterError:
    try:
        return await committer.open_job(table.dest, job_id="job", storage_options={"store": store})
    except CommitterError as error:
        return error


@pytest.mark.one_in(6)
@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
async def test_cleaner_beside_a_driver_that_stands_still_in_its_setup(profile: str, share: Share) -> None:
    """Another cleaner ends the job, and the id is set up anew. Then the driver makes one call, and the first one goes on.

    What the driver makes in the new job's directory proves nothing to that cleaner.
    """
    seen = set()
    for setup_at, cleaner_at in share.of([(made, at) for made in range(1, 24) for at in range(1, 24)]):
        seen.add(await met_in_setup(profile, setup_at, cleaner_at))
    assert "both stood still" in seen


async def met_in_setup(profile: str, setup_at: int, cleaner_at: int) -> str:
    table = Table(profile, OLD)
    # Of an earlier job of the id. A driver that sets the id up removes it.
    table.write("_temporary/job/intent", b"{}")
    late, stands, after = Connection(table.space), Stop(setup_at), Stop(setup_at + 1)

    async def before_late(call: Call) -> None:
        await stands.before(call)
        await after.before(call)

    late.before_call = before_late
    opening = asyncio.create_task(opened_or_error(table, late))
    if not await stands.reached(opening):
        return "set up before"
    cleaner, stop = Connection(table.space), Stop(cleaner_at)
    cleaner.before_call = stop.before
    cleaning = asyncio.create_task(cleaned(table, cleaner))
    is_cleaning = await stop.reached(cleaning)
    await cleaned(table, Connection(table.space))
    try:
        new = await table.job("job", SECOND)
    except JobExistsError:
        new = None

    async def go_on() -> None:
        stands.go_on.set()
        await after.reached(opening)
        stop.go_on.set()
        await cleaning
        after.go_on.set()
        await opening

    async def before_new(call: Call) -> None:
        if publishes(call, "second-1"):
            new.store.before_call = None
            await go_on()

    if new is not None:
        new.store.before_call = before_new
        await new.commit()
    await go_on()
    if new is None or not is_cleaning:
        return "not ended" if new is None else "removed before"
    if isinstance(old := opening.result(), committer.Job):
        # It stood still after its last look.
        with pytest.raises(JobNotFoundError):
            await old.commit()
    check(table, new, (setup_at, cleaner_at))
    return "both stood still"


async def cleaned(table: Table, store: Connection) -> None:
    with contextlib.suppress(CommitterError):
        await committer.cleanup(table.dest, job_id="job", storage_options={"store": store})
