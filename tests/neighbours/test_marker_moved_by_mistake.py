"""`_SUCCESS` of a newer job, moved by mistake where a rename is not told what to move: it comes back, by that driver or another one."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, OutcomeUnknownError
from committer.records.success import SuccessData, decode_success, encode_success
from committer.stages.take_away import is_not_given_back
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.neighbours.ending import (
    LOOKS_AT_MOVED,
    Steps,
    end_when_replaced,
    fails_from,
    finish_and_die,
    gives_back,
    lists_moved,
    marked,
    moves,
    puts,
    replace_unmarked,
    stop_before,
    taken,
    three,
)
from tests.neighbours.meeting import Connection, Table

BLIND = pytest.mark.parametrize("profile", ["local", "hdfs"])
ONE_BY_ONE = CommitterConfig(io_concurrency=1)


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


@BLIND
@pytest.mark.parametrize(("in_its_place", "stays"), [("oldest", "newest"), ("latest", "latest")])
async def test_a_marker_moved_by_mistake_comes_back_unless_a_newer_one_stands(
    profile: str, in_its_place: str, stays: str
) -> None:
    """Another job's came to its place before it could be given back."""
    table, middle, old = await mistaken(profile)
    if in_its_place == "oldest":
        table.write("_SUCCESS", old)
    else:
        latest = await table.job("latest", {"p=1/latest": b"latest"}, ONE_BY_ONE)
        await latest.commit()
    await middle.to_the_end()
    assert marked(table) == stays
    assert table.temporary() == set()


@BLIND
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


@BLIND
@pytest.mark.parametrize("kind", ["unanswered", "lost", "late", "again", "forbidden", "crash_before", "crash_after"])
async def test_a_marker_moved_by_mistake_is_not_lost_whatever_a_call_meets(profile: str, kind: FaultKind) -> None:
    """Any call from the first look at what was moved: after one recovery the newest stands, or the error says where."""
    for number in range(11):
        table, middle, old = await mistaken(profile)
        [lies] = taken(table)
        newest = table.all_files()[lies]
        table.write("_SUCCESS", old)
        store = middle.party.store
        # The first one has begun.
        store.faults.append(Fault(kind=kind, call=len(store.calls) + number, delay_s=0.001))
        failed, told = False, ""
        try:
            await middle.to_the_end()
        except SimulatedCrash:
            failed = True
        except CommitterError as error:
            failed, told = True, error.next_step if is_not_given_back(error) else ""
        assert kind in {call.fault for call in store.calls}
        if kind == "forbidden" and number < 8:
            assert told, number
        if told:
            [where] = [name for name, data in table.all_files().items() if data == newest]
            assert f"{table.dest}/{where}" in told, number
            assert "then call" in told
        if failed:
            await recovered(table)
        else:
            assert marked(table) == "newest", number
        if kind in ("late", "again"):
            await asyncio.sleep(0.002)
        assert marked(table) == "newest", number
        assert table.temporary() == set()


# -- a driver that died before it gave it back -------------------------------------------------------------------------


async def recovered(table: Table) -> Connection:
    """What the driver of a recovery sent, which ended the middle job."""
    sent = Connection(table.space)
    await committer.recover(table.dest, "middle", storage_options={"store": sent})
    return sent


@BLIND
@pytest.mark.parametrize("in_its_place", ["nothing", "oldest", "latest"])
async def test_a_recovery_gives_back_what_a_driver_that_died_had_moved_by_mistake(
    profile: str, in_its_place: str
) -> None:
    """Also where that one only stands still: it goes on when all is done, and finds nothing left to give back."""
    table, middle, old = await mistaken(profile)
    if in_its_place == "oldest":
        table.write("_SUCCESS", old)
    elif in_its_place == "latest":
        latest = await table.job("latest", {"p=1/latest": b"latest"}, ONE_BY_ONE)
        await latest.commit()
    await recovered(table)
    stays = "latest" if in_its_place == "latest" else "newest"
    assert marked(table) == stays
    assert table.temporary() == set()
    await middle.to_the_end()
    assert marked(table) == stays
    assert table.temporary() == set()


@BLIND
async def test_two_drivers_of_a_job_give_the_same_marker_back(profile: str) -> None:
    """Each right before its rename: the other one's was first, and that is no failure."""
    for first in ("driver", "recovery"):
        table, middle, _old = await mistaken(profile)
        await middle.until(gives_back)
        sent = Connection(table.space)
        stands, goes = stop_before(sent, gives_back)
        running = asyncio.create_task(committer.recover(table.dest, "middle", storage_options={"store": sent}))
        await asyncio.wait_for(stands.wait(), timeout=10)
        if first == "driver":
            await middle.to_the_end()
            goes.set()
            await running
        else:
            goes.set()
            await running
            await middle.to_the_end()
        assert marked(table) == "newest"
        assert table.temporary() == set()


@BLIND
async def test_a_recovery_gives_back_the_newest_of_the_markers_that_drivers_had_moved(profile: str) -> None:
    """The driver before died as well, when it had moved away what stood in the way, and that was newer still."""
    table, _middle, old = await mistaken(profile)
    table.write("_SUCCESS", old)

    async def meet(call: Call) -> None:
        if moves(call):
            table.remove("_SUCCESS")
            newest = decode_success(table.all_files()[taken(table)[0]], source="")
            later = msgspec.structs.replace(newest, timestamp=newest.timestamp + 1, jobId="later")
            table.write("_SUCCESS", encode_success(later))

    dying = Connection(table.space)
    dying.before_call = meet
    dying.faults.append(Fault(kind="crash_after", operation="rename_file", path="_SUCCESS"))
    with pytest.raises(SimulatedCrash):
        await committer.recover(table.dest, "middle", storage_options={"store": dying})
    assert len(taken(table)) == 2
    assert marked(table) is None
    await recovered(table)
    assert marked(table) == "later"
    assert table.temporary() == set()


@BLIND
async def test_a_recovery_that_cannot_give_a_marker_back_says_where_it_lies(profile: str) -> None:
    """And cleans nothing up, so that the next one can."""
    table, _middle, old = await mistaken(profile)
    [where] = taken(table)
    table.write("_SUCCESS", old)
    refused = Connection(table.space)
    refused.faults.append(Fault(kind="forbidden", operation="rename_file", path=where))
    with pytest.raises(OutcomeUnknownError) as caught:
        await committer.recover(table.dest, "middle", storage_options={"store": refused})
    assert where in taken(table)
    assert f"{table.dest}/{where}" in caught.value.next_step
    assert "then call" in caught.value.next_step
    await recovered(table)
    assert marked(table) == "newest"
    assert table.temporary() == set()


@BLIND
@pytest.mark.parametrize("kind", ["unavailable", "forbidden", "unanswered", "lost", "crash_before", "crash_after"])
async def test_a_recovery_that_cannot_look_at_moved_markers_leaves_them_to_the_next_one(
    profile: str, kind: FaultKind
) -> None:
    """Neither its listing, nor what it reads of one: it cleans nothing up, and its error says what does."""
    for what, number in LOOKS_AT_MOVED:
        table, middle, old = await mistaken(profile)
        await middle.dies()
        [where] = taken(table)
        newest = table.all_files()[where]
        table.write("_SUCCESS", old)
        failing = Connection(table.space)
        fails_from(failing, kind, what, number)
        try:
            await committer.recover(table.dest, "middle", storage_options={"store": failing})
        except SimulatedCrash:
            assert kind.startswith("crash")
        except CommitterError as error:
            assert error.outcome == "committed"
            assert "committer.recover(" in error.next_step
            # Once it knows that one is to be given back, it says so.
            assert (f"{table.dest}/{where}" in error.next_step) == (number == 2)
        else:
            raise AssertionError(kind)
        assert table.all_files()[where] == newest
        assert marked(table) == "oldest"
        await recovered(table)
        assert marked(table) == "newest"
        assert table.temporary() == set()


@BLIND
async def test_a_recovery_leaves_a_marker_that_was_taken_away_on_purpose(profile: str) -> None:
    """An older one than the job's own: it does not come back for a moment either."""
    table, middle, _newest = await three(profile)
    await middle.until(moves)
    middle.party.store.faults.append(Fault(kind="crash_after", operation="rename_file", path="_SUCCESS"))
    with pytest.raises(SimulatedCrash):
        await middle.to_the_end()
    [lies] = taken(table)
    # Nor is anything else looked at that drivers keep there.
    table.write(lies.replace("taken-", "another-"), b"{}")
    sent = await recovered(table)
    assert not [call for call in sent.calls if gives_back(call)]
    assert not [call for call in sent.calls if call.operation == "read" and call.path.name.startswith("another-")]
    assert marked(table) == "middle"


@BLIND
async def test_a_recovery_leaves_what_was_taken_away_under_the_lock_whatever_it_says(profile: str) -> None:
    """No other job can have ended meanwhile: the clock of the one before was ahead."""
    table = Table(profile)
    first = await table.job("first", {"p=1/first": b"first"}, ONE_BY_ONE)
    await first.commit()
    ahead = msgspec.structs.replace(decode_success(table.all_files()["_SUCCESS"], source=""), timestamp=1 << 42)
    replacing = msgspec.structs.replace(ONE_BY_ONE, conflict_mode="replace")
    second = Steps(await table.job("second", {"p=1/second": b"second"}, replacing))
    await second.until(puts)
    table.write("_SUCCESS", encode_success(ahead))
    second.party.store.faults.append(Fault(kind="crash_after", operation="rename_file", path="taken-"))
    with pytest.raises(SimulatedCrash):
        await second.to_the_end()
    assert len(taken(table)) == 1
    sent = Connection(table.space)
    await committer.recover(table.dest, "second", storage_options={"store": sent})
    assert not [call for call in sent.calls if gives_back(call)]
    assert marked(table) == "second"
    assert table.temporary() == set()


@BLIND
async def test_a_marker_does_not_come_back_once_the_job_is_finished(profile: str) -> None:
    """From then on another job may have replaced what it names, and have left no marker."""
    table, middle, newest = await three(profile)
    await middle.until(moves)
    await finish_and_die(table, "middle")
    await newest.to_the_end()
    middle.party.store.faults.append(Fault(kind="crash_after", operation="rename_file", path="_SUCCESS"))
    with pytest.raises(SimulatedCrash):
        await middle.to_the_end()
    assert "newest" in [decode_success(table.all_files()[name], source="").jobId for name in taken(table)]
    await replace_unmarked(table)
    await recovered(table)
    assert marked(table) is None
    assert set(table.files()) == {"p=1/later"}


@BLIND
async def test_a_marker_does_not_come_back_where_the_job_was_finished_after_a_recovery_had_looked_at_it(
    profile: str,
) -> None:
    """A driver finished it and died, the marker was moved, and a job without one replaced what that names."""
    table, middle, newest = await three(profile, newest_in=2)
    await middle.until(moves)
    await newest.to_the_end()
    sent = Connection(table.space)
    stands, goes = stop_before(sent, lists_moved)
    running = asyncio.create_task(committer.recover(table.dest, "middle", storage_options={"store": sent}))
    await asyncio.wait_for(stands.wait(), timeout=10)
    await finish_and_die(table, "middle")
    middle.party.store.faults.append(Fault(kind="crash_after", operation="rename_file", path="_SUCCESS"))
    with pytest.raises(SimulatedCrash):
        await middle.to_the_end()
    await end_when_replaced(table, goes, running)
    assert marked(table) == "middle"
    assert set(table.files()) == {"p=1/oldest", "p=1/middle", "p=2/later"}


@pytest.mark.allow_blocking("the test itself makes the link, and looks at it")
async def test_a_recovery_passes_over_a_link_that_a_driver_had_moved_away(tmp_path: Path) -> None:
    """It led to an older marker, and was moved on purpose."""
    table, old = tmp_path / "table", tmp_path / "old"
    old.write_bytes(encode_success(SuccessData(timestamp=1, jobId="old")))
    store, came = FaultyStore(LocalStore()), list[Path]()

    async def link(call: Call) -> None:
        if puts(call) and not came:
            came.append(table / "_SUCCESS")
            came[0].symlink_to(old)

    store.before_call = link
    store.faults.append(Fault(kind="crash_after", operation="rename_file", path="/_SUCCESS"))
    with pytest.raises(SimulatedCrash):
        async with committer.open_job(table, job_id="j", storage_options={"store": store}) as job:
            async with job.task_attempt(task=0) as task, task.open("a") as file:
                await file.write(b"a")
    [moved] = table.rglob("taken-*")
    assert moved.readlink() == old
    await committer.recover(table, "j")
    assert decode_success(came[0].read_bytes(), source="").jobId == "j"
    assert sorted(path.name for path in table.iterdir()) == ["_SUCCESS", "a"]
    assert old.read_bytes()


@pytest.mark.parametrize(("profile", "more"), [("local", 1), ("hdfs", 1), ("adls", 0), ("s3", 0)])
async def test_only_a_recovery_looks_for_moved_markers_and_only_where_renames_are_blind(
    profile: str, more: int
) -> None:
    """One listing, which a driver that ends its own job does not send."""
    table, middle, _newest = await three(profile)

    def looks(calls: list[Call]) -> int:
        before = takewhile(lambda call: not puts(call), calls)
        return sum(map(lists_moved, before))

    await middle.to_the_end()
    assert looks(middle.party.store.calls) == 0
    table, middle, _newest = await three(profile)
    assert looks((await recovered(table)).calls) == more
