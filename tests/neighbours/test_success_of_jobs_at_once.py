"""Jobs that append to one destination and end at once: `_SUCCESS` is left to the one that committed last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Self

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import OutcomeUnknownError, StoreNotFoundError
from committer.records.success import decode_success, encode_success
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.neighbours.meeting import Connection, Party, Table, publishes

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])
UNMARKED = CommitterConfig(io_concurrency=1, conflict_mode="replace", mark_successful_jobs=False)


def puts(call: Call) -> bool:
    return call.operation == "put" and call.path.name == "_SUCCESS"


def moves(call: Call) -> bool:
    return call.operation == "rename_file" and call.path.name == "_SUCCESS"


def reads(call: Call) -> bool:
    return call.operation == "read" and call.path.name == "_SUCCESS"


class Steps:
    """A commit that stands still right before each call that is named, until it is told to go on."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self._stops, self._goes = asyncio.Event(), asyncio.Event()
        self._until: Callable[[Call], bool] | None = None
        self._running: asyncio.Task[None] | None = None
        party.store.before_call = self._before

    async def _before(self, call: Call) -> None:
        if self._until is not None and self._until(call):
            self._until = None
            self._goes.clear()
            self._stops.set()
            await self._goes.wait()

    async def until(self, what: Callable[[Call], bool]) -> Self:
        """Goes on to the next call of that kind, and stands still before it."""
        self._until = what
        await self._go()
        assert self._until is None, "no such call"
        return self

    async def to_the_end(self) -> None:
        await self._go()
        assert self._running is not None
        await self._running
        if self.party.error is not None:
            raise self.party.error

    async def _go(self) -> None:
        self._stops.clear()
        self._goes.set()
        if self._running is None:
            self._running = asyncio.create_task(self.party.commit())
            self._running.add_done_callback(lambda _done: self._stops.set())
        if self._until is not None:
            await self._stops.wait()


async def job(table: Table, name: str) -> Steps:
    return Steps(await table.job(name, {f"p=1/{name}": name.encode()}, CommitterConfig(io_concurrency=1)))


def marked(table: Table) -> str | None:
    found = table.all_files().get("_SUCCESS")
    return decode_success(found, source="").jobId if found else None


async def three(profile: str) -> tuple[Table, Steps, Steps]:
    """The middle and the newest job, about to put their `_SUCCESS`, which that of the oldest one refuses."""
    table = Table(profile)
    # All are set up and decided before one of them writes it: else the decision names the one to set aside.
    oldest, middle, newest = [await job(table, name) for name in ("oldest", "middle", "newest")]
    for each in (oldest, middle, newest):
        await each.until(puts)
    await oldest.to_the_end()
    assert marked(table) == "oldest"
    return table, middle, newest


@PROFILES
@pytest.mark.parametrize("first", ["middle", "newest"])
async def test_a_marker_that_another_job_takes_away_as_the_newest_reads_it(profile: str, first: str) -> None:
    table, middle, newest = await three(profile)
    await newest.until(reads)
    await middle.until(puts)
    assert marked(table) is None
    order = [middle, newest] if first == "middle" else [newest, middle]
    for each in order:
        await each.to_the_end()
    assert marked(table) == "newest"
    assert set(table.files()) == {"p=1/oldest", "p=1/middle", "p=1/newest"}
    assert table.temporary() == set()


@PROFILES
@pytest.mark.parametrize("stops_before", [reads, puts], ids=["read", "put"])
async def test_another_driver_ends_the_job_whose_marker_was_refused(
    profile: str, stops_before: Callable[[Call], bool]
) -> None:
    """And what replaced the job's data leaves none: the driver that wakes writes none either."""
    table, middle, newest = await three(profile)
    await newest.until(reads)
    await middle.until(puts)
    if stops_before is puts:
        await newest.until(puts)
    await committer.recover(table.dest, "newest", storage_options={"store": Connection(table.space)})
    await middle.to_the_end()
    assert marked(table) == "newest"
    table.remove("_SUCCESS")
    later = await table.job("later", {"p=1/later": b"later"}, UNMARKED)
    await later.commit()
    assert later.error is None
    sent = len(newest.party.store.calls)
    await newest.to_the_end()
    if stops_before is reads:
        # Not for a moment either: a reader could take it for true.
        assert not [call for call in newest.party.store.calls[sent:] if puts(call)]
    assert marked(table) is None
    assert set(table.files()) == {"p=1/later"}
    assert table.temporary() == set()


@PROFILES
async def test_a_recovery_that_died_ended_the_job_whose_marker_was_refused(profile: str) -> None:
    """It marked the job as finished, and cleaned nothing up: nothing but the outcome tells that the job is over."""
    table, middle, newest = await three(profile)
    await newest.until(reads)
    await middle.until(puts)
    dying = Connection(table.space)
    dying.faults += [Fault(kind="crash_after", operation=name, path="outcome") for name in ("put", "replace_file")]
    with pytest.raises(SimulatedCrash):
        await committer.recover(table.dest, "newest", storage_options={"store": dying})
    await middle.to_the_end()
    assert marked(table) == "newest"
    table.remove("_SUCCESS")
    later = await table.job("later", {"p=1/later": b"later"}, UNMARKED)
    await later.commit()
    assert later.error is None
    await newest.to_the_end()
    assert marked(table) is None
    assert set(table.files()) == {"p=1/later"}
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_a_marker_that_keeps_being_taken_away_is_left_to_recover(profile: str) -> None:
    """So is one that no reader finds, though it refuses a put: a link that leads nowhere."""
    table, _middle, newest = await three(profile)
    old = table.all_files()["_SUCCESS"]
    for number in range(5):
        await newest.until(reads)
        table.remove("_SUCCESS")
        if number < 4:
            await newest.until(puts)
            table.write("_SUCCESS", old)
    with pytest.raises(StoreNotFoundError) as caught:
        await newest.to_the_end()
    assert caught.value.outcome == "committed"
    assert "link that leads nowhere" in caught.value.message
    await committer.recover(table.dest, "newest", storage_options=table.options)
    assert marked(table) == "newest"


@PROFILES
async def test_a_marker_that_goes_as_a_driver_whose_directory_is_gone_reads_it(profile: str) -> None:
    """A committer of Hadoop's deletes all of `_temporary`, and then the marker that it replaces."""
    table, middle, newest = await three(profile)
    await middle.to_the_end()
    table.remove("_temporary")
    await newest.until(reads)
    table.remove("_SUCCESS")
    await newest.to_the_end()
    assert marked(table) == "newest"
    assert table.temporary() == set()


# -- a rename that is not told what to move --------------------------------------------------------------------------


async def mistaken(profile: str) -> tuple[Table, Steps, bytes]:
    """The middle job has moved the newest one's marker for the oldest one's; and the bytes of a third one's."""
    table, middle, newest = await three(profile)
    old = table.all_files()["_SUCCESS"]
    await middle.until(moves)
    await newest.to_the_end()
    assert marked(table) == "newest"
    await middle.until(lambda call: call.path.name.startswith("taken-"))
    assert marked(table) is None
    return table, middle, old


@pytest.mark.parametrize("profile", ["local", "hdfs"])
@pytest.mark.parametrize(("in_its_place", "stays"), [("oldest", "newest"), ("latest", "latest")])
async def test_a_marker_moved_by_mistake_comes_back_unless_a_newer_one_stands(
    profile: str, in_its_place: str, stays: str
) -> None:
    """Another job's came to its place before it could be given back."""
    table, middle, old = await mistaken(profile)
    if in_its_place == "oldest":
        table.write("_SUCCESS", old)
    else:
        latest = await table.job("latest", {"p=1/latest": b"latest"}, CommitterConfig(io_concurrency=1))
        await latest.commit()
    await middle.to_the_end()
    assert marked(table) == stays
    assert table.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_a_marker_that_cannot_be_given_back_is_told_of(profile: str) -> None:
    """An older one comes each time the way is clear: the error says where the newest one lies, and it stays there."""
    table, middle, old = await mistaken(profile)
    newest = next(data for name, data in table.all_files().items() if "/taken-" in name and data != old)

    async def in_the_way(call: Call) -> None:
        if call.destination is not None and call.destination.name == "_SUCCESS":
            table.write("_SUCCESS", old)

    middle.party.store.before_call = in_the_way
    with pytest.raises(OutcomeUnknownError) as caught:
        await middle.to_the_end()
    [where] = [name for name, data in table.all_files().items() if data == newest]
    assert f"{table.dest}/{where}" in caught.value.next_step


@pytest.mark.parametrize("profile", ["local", "hdfs"])
@pytest.mark.parametrize("refused", range(8))
async def test_a_marker_moved_by_mistake_stays_where_the_error_says_when_a_call_is_refused(
    profile: str, refused: int
) -> None:
    """Any call from the first look at what was moved: a recovery that came then would delete it."""
    table, middle, old = await mistaken(profile)
    newest = next(data for name, data in table.all_files().items() if "/taken-" in name and data != old)
    table.write("_SUCCESS", old)
    store = middle.party.store
    # The first one has begun.
    store.faults.append(Fault(kind="forbidden", call=len(store.calls) + refused))
    with pytest.raises(OutcomeUnknownError) as caught:
        await middle.to_the_end()
    assert [call.fault for call in store.calls if call.fault] == ["forbidden"]
    [where] = [name for name, data in table.all_files().items() if data == newest]
    assert f"{table.dest}/{where}" in caught.value.next_step
    assert "then call" in caught.value.next_step


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_a_rollback_leaves_the_marker_of_another_committer_for_one_that_it_moved_by_mistake(profile: str) -> None:
    """Hadoop's file output committer says nothing in it, and leaves it when its job ends: it is the newest."""
    table = Table(profile)
    first = await table.job("first", {"p=1/first": b"first"}, CommitterConfig(io_concurrency=1))
    await first.commit()
    kept = decode_success(table.all_files()["_SUCCESS"], source="")
    undone = await table.job("undone", {"p=1/undone": b"undone"}, CommitterConfig(io_concurrency=1))
    met: list[str] = []

    async def meet(call: Call) -> None:
        if publishes(call, "undone") and not met:
            table.write("p=1/undone", b"another's")
        elif call.operation == "read" and str(call.path).endswith("/superseded-fenced/_SUCCESS") and "late" not in met:
            met.append("late")
            table.write("_SUCCESS", encode_success(msgspec.structs.replace(kept, timestamp=1, jobId="late")))
        elif moves(call) and call.destination is not None and call.destination.name.startswith("taken-"):
            met.append("taken")
            table.remove("_SUCCESS")
            newer = msgspec.structs.replace(kept, timestamp=kept.timestamp + 1, jobId="newer")
            table.write("_SUCCESS", encode_success(newer))
        elif call.operation == "rename_file" and call.path.name.startswith("taken-") and "hadoop" not in met:
            met.append("hadoop")
            table.write("_SUCCESS", b"")

    undone.store.before_call = meet
    await undone.commit()
    assert undone.error is not None
    assert met == ["late", "taken", "hadoop"]
    assert table.all_files()["_SUCCESS"] == b""
    assert table.temporary() == set()


class Turns:
    """Lets one of many processes do its next store call, and then one again, as a seed says."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def wait_in(self, store: FaultyStore, number: int) -> None:
        async def before(_call: Call) -> None:
            assert number not in self._waiting, "two calls of one process at once"
            turn = self._waiting[number] = asyncio.get_running_loop().create_future()
            await turn

        store.before_call = before

    async def go_on(self, running: list[asyncio.Task[None]]) -> None:
        """Until all are done. One goes on for some calls as a rule: one marker is taken, read and written by then."""
        last = -1
        while alive := sum(not each.done() for each in running):
            # Every process is at its next call, or at its end: the order depends on the seed alone.
            await asyncio.sleep(0)
            if len(self._waiting) == alive:
                stays = last in self._waiting and self._random.random() < 0.6
                last = last if stays else self._random.choice(sorted(self._waiting))
                self._waiting.pop(last).set_result(None)


@PROFILES
@pytest.mark.parametrize("seed", [3, 10, 13, 51])
async def test_jobs_that_end_in_any_turn_leave_the_marker_of_the_last(profile: str, seed: int) -> None:
    table, turns, names = Table(profile), Turns(seed), ["a", "b", "c", "d"]
    jobs = [await job(table, name) for name in names]
    for each in jobs:
        await each.until(puts)
    for number, each in enumerate(jobs):
        turns.wait_in(each.party.store, number)
    ends = [asyncio.create_task(each.to_the_end()) for each in jobs]
    await turns.go_on(ends)
    for end in ends:
        await end
    assert marked(table) == "d"
    assert table.temporary() == set()
