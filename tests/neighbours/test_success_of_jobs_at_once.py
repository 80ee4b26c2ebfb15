"""Jobs that append to one destination and end at once: `_SUCCESS` is left to the one that committed last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

import committer
from committer.errors import CommitterError, StoreNotFoundError
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore
from tests.neighbours.ending import Steps, finish_and_die, job, marked, puts, reads, replace_unmarked, three
from tests.neighbours.meeting import Connection, Table

PROFILES = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs", "s3"])


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
    await replace_unmarked(table)
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
    await finish_and_die(table, "newest")
    await middle.to_the_end()
    assert marked(table) == "newest"
    table.remove("_SUCCESS")
    await replace_unmarked(table)
    await newest.to_the_end()
    assert marked(table) is None
    assert set(table.files()) == {"p=1/later"}
    assert table.temporary() == set()


LATE = pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])


async def marked_and_replaced(profile: str) -> tuple[Table, Steps]:
    """A driver stands right before its put; its job is marked as finished, and replaced by one that leaves no marker."""
    table = Table(profile)
    slow = await (await job(table, "slow")).until(puts)
    await finish_and_die(table, "slow")
    table.remove("_SUCCESS")
    await replace_unmarked(table)
    return table, slow


@LATE
async def test_a_recovery_that_died_ended_the_job_of_a_driver_that_stands_before_its_put(profile: str) -> None:
    """What replaced the job's data leaves no marker: the driver that wakes takes its own away, which the mark tells."""
    table, slow = await marked_and_replaced(profile)
    await slow.to_the_end()
    assert marked(table) is None
    assert set(table.files()) == {"p=1/later"}
    assert table.temporary() == set()


def withdrawing(profile: str) -> list[tuple[str, str]]:
    """With what a driver takes its own marker away: each call, and what is in its path."""
    takes = [("make_directory", "/ended-"), ("rename_file", "/_SUCCESS"), ("delete_directory", "/ended-")]
    looks = [("status", "/p=1/slow"), ("status", "/_SUCCESS"), ("read", "/_SUCCESS")]
    return [*looks, *(takes if profile == "adls" else [("delete_file_if", "/_SUCCESS")])]


@LATE
@pytest.mark.parametrize("kind", ["unanswered", "lost", "late", "again"])
async def test_a_marker_is_taken_away_though_an_answer_is_lost(profile: str, kind: FaultKind) -> None:
    for operation, path in withdrawing(profile):
        table, slow = await marked_and_replaced(profile)
        faults = [Fault(kind=kind, operation=operation, path=path, delay_s=0.001)]
        slow.party.store.faults += faults
        await slow.to_the_end()
        for late in list(slow.party.store.under_way):
            await late
        assert kind in {call.fault for call in slow.party.store.calls}, operation
        assert marked(table) is None, operation
        assert set(table.files()) == {"p=1/later"}
        assert table.temporary() == set()


@LATE
@pytest.mark.parametrize("kind", ["forbidden", "unavailable"])
async def test_a_marker_that_cannot_be_taken_away_is_told_of(profile: str, kind: FaultKind) -> None:
    """Its files may be gone, and no recovery looks at it: the error says to remove it by hand, then to recover the job."""
    for operation, path in withdrawing(profile):
        table, slow = await marked_and_replaced(profile)
        slow.party.store.faults.append(Fault(kind=kind, operation=operation, path=path, times=None))
        with pytest.raises(CommitterError) as caught:
            await slow.to_the_end()
        assert caught.value.outcome == "committed"
        step = caught.value.next_step
        assert f"look at {table.dest}/_SUCCESS: if it is of job slow" in step, operation
        assert step.index("remove it by hand") < step.index("committer.recover(")
        if "_SUCCESS" in table.all_files():
            table.remove("_SUCCESS")
        await committer.recover(table.dest, "slow", storage_options=table.options)
        assert marked(table) is None
        assert set(table.files()) == {"p=1/later"}
        assert table.temporary() == set()


@PROFILES
async def test_a_driver_whose_job_another_one_marked_leaves_the_marker_of_files_that_stand(profile: str) -> None:
    table = Table(profile)
    slow = await (await job(table, "slow")).until(puts)
    await finish_and_die(table, "slow")
    table.remove("_SUCCESS")
    await slow.to_the_end()
    assert marked(table) == "slow"
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
