"""A `_SUCCESS` that came when its job was over is taken away; another job's, which came a moment before that, is not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from itertools import count

import pytest

import committer
from committer.committers.context import open_context
from committer.errors import CommitterError, OutcomeUnknownError
from committer.records.success import SuccessData, encode_success
from committer.stages.base import StageContext
from committer.stages.planned_file import PlannedFile
from committer.stages.publish import Published
from committer.stages.success_content import success_data
from committer.stages.success_file import withdraw_success
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore
from tests.engine.places import MemoryPlace

OTHERS = b'{"name": "org.apache.hadoop.fs.s3a.commit.files.SuccessData/1", "jobId": "another"}'
profiles = pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs"])


async def _over(place: MemoryPlace) -> tuple[StageContext, SuccessData, Published]:
    """A job whose files are gone, and whose `_SUCCESS` stands."""
    async with place.open_job(job_id="j") as job:
        context = await open_context(job.spec, place.store, owned=False)
        await job.abort()
    published = Published(1, 1, named=[PlannedFile("attempt/part-0", "part-0", 1, "gone")])
    marker = success_data(context, success=True, published=published, stage="test", decided_by="driver")
    place.write("_SUCCESS", encode_success(marker))
    return context, marker, published


def _swap_before_move(place: MemoryPlace, lost: Collection[str] = ()) -> None:
    """Another job replaces the marker in the moment in which it is to be moved.

    Args:
        place: Where.
        lost: Whose answers are lost: of the `move`, of what `bars` it from coming late, and of the way `back`, whose
            requests never come.
    """

    async def before(call: Call) -> None:
        kind: FaultKind | None = None
        if call.operation == "rename_file" and call.path.name == "_SUCCESS":
            place.remove("_SUCCESS")
            place.write("_SUCCESS", OTHERS)
            kind = "lost" if "move" in lost else None
        elif call.operation == "rename_file" and call.path.name.startswith("taken-"):
            kind = "unanswered" if "back" in lost else None
        elif call.operation == "put" and "bars" in lost:
            kind = "unanswered"
        if kind is not None:
            place.faults(Fault(kind=kind, call=call.number))

    place.store.before_call = before


async def _turns(until: asyncio.Event | None = None) -> None:
    """Lets all that runs beside this one take some steps, or come so far."""
    for _turn in range(200):
        if until is not None and until.is_set():
            return
        await asyncio.sleep(0)


def _markers(place: MemoryPlace) -> dict[str, bytes]:
    """What stands at the marker's name, or was moved from there."""
    return {name: data for name, data in place.all_files().items() if name == "_SUCCESS" or "/taken-" in name}


@profiles
async def test_its_own_is_taken_away(profile: str) -> None:
    place = MemoryPlace(profile)
    context, marker, published = await _over(place)
    assert await withdraw_success(context, marker, published)
    assert place.all_files() == {}


@pytest.mark.one_in(2)
@profiles
@pytest.mark.parametrize("kind", ["unanswered", "lost", "late", "again", "unavailable", "forbidden", "throttled"])
@pytest.mark.parametrize("meets", ["own", "another's"])
async def test_trouble_at_each_call(profile: str, kind: FaultKind, meets: str) -> None:
    for number in count(1):
        place = MemoryPlace(profile)
        context, marker, published = await _over(place)
        if meets == "another's":
            _swap_before_move(place)
        before = place.store.count()
        place.faults(Fault(kind=kind, call=before + number, delay_s=0.02))
        try:
            taken = await withdraw_success(context, marker, published)
        except CommitterError:
            taken = False
        for task in list(place.store.under_way):
            await task
        if place.store.count() < before + number:
            break
        if meets == "another's" and any(call.operation == "rename_file" for call in place.store.calls[before:]):
            assert OTHERS in _markers(place).values(), place.store.log()
        if taken:
            assert "_SUCCESS" not in place.all_files()
    assert number > 2


@pytest.mark.parametrize("profile", ["local", "hdfs"])
@pytest.mark.parametrize("lost", [("back",), ("move", "bars"), ("move", "bars", "back")], ids=", ".join)
async def test_another_jobs_stays_where_all_answers_are_lost(profile: str, lost: tuple[str, ...]) -> None:
    """The error says where it lies, and where it belongs."""
    place = MemoryPlace(profile)
    context, marker, published = await _over(place)
    _swap_before_move(place, lost)
    if "back" not in lost:
        assert not await withdraw_success(context, marker, published)
        assert _markers(place) == {"_SUCCESS": OTHERS}
        return
    with pytest.raises(OutcomeUnknownError) as caught:
        await withdraw_success(context, marker, published)
    [(where, data)] = _markers(place).items()
    assert data == OTHERS
    assert caught.value.outcome == "unknown"
    assert f"{place.dest}/{where}" in caught.value.next_step
    assert f"{place.dest}/_SUCCESS" in caught.value.next_step


@pytest.mark.parametrize("profile", ["local", "hdfs"])
@pytest.mark.parametrize("whose", ["own", "another's"])
async def test_a_move_that_is_said_to_have_found_nothing(profile: str, whose: str) -> None:
    """A client sends a request again whose answer it lost: the first one moved the marker, the second one finds none."""
    place = MemoryPlace(profile)
    context, marker, published = await _over(place)

    async def move_twice(call: Call) -> None:
        if call.operation != "rename_file" or call.path.name != "_SUCCESS":
            return
        place.store.before_call = None
        if whose == "another's":
            place.remove("_SUCCESS")
            place.write("_SUCCESS", OTHERS)
        assert call.destination is not None
        await place.store.inner.rename_file(call.path, call.destination)

    place.store.before_call = move_twice
    assert await withdraw_success(context, marker, published) is (whose == "own")
    assert place.store.before_call is None
    assert _markers(place) == ({} if whose == "own" else {"_SUCCESS": OTHERS})


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_another_jobs_that_is_moved_again_after_it_was_given_back(profile: str) -> None:
    """The request that took it by mistake is served a second time, when this driver has given back what it took."""
    place = MemoryPlace(profile)
    context, marker, published = await _over(place)
    _swap_before_move(place)
    swap = place.store.before_call
    assert swap is not None
    moved: list[Call] = []

    async def move_again(call: Call) -> None:
        await swap(call)
        if call.operation == "rename_file" and call.path.name == "_SUCCESS":
            moved.append(call)
        elif moved and place.all_files().get("_SUCCESS") == OTHERS:
            [first] = moved
            assert first.destination is not None
            place.store.before_call = None
            await place.store.inner.rename_file(first.path, first.destination)

    place.store.before_call = move_again
    assert not await withdraw_success(context, marker, published)
    assert place.store.before_call is None
    assert _markers(place) == {"_SUCCESS": OTHERS}


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_its_own_is_taken_away_though_all_answers_are_lost(profile: str) -> None:
    place = MemoryPlace(profile)
    context, marker, published = await _over(place)

    async def before(call: Call) -> None:
        if call.operation == "rename_file" or (call.operation == "put" and call.path.name.startswith("taken-")):
            place.faults(Fault(kind="lost" if call.operation == "rename_file" else "unanswered", call=call.number))

    place.store.before_call = before
    assert await withdraw_success(context, marker, published)
    assert place.all_files() == {}


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_the_driver_that_moved_another_jobs_says_so(profile: str) -> None:
    """Its own call removes nothing more then: the other job's marker lies in what it would remove."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"data"})
    puts = 0

    async def before(call: Call) -> None:
        nonlocal puts
        if call.operation != "put" or call.path.name != "_SUCCESS":
            return
        puts += 1
        if puts == 1:
            # Another driver ends the job.
            options = {"store": FaultyStore(place.space.store())}
            await committer.recover(place.dest, "j", storage_options=options)
        else:
            # A later job replaces what it published, and leaves no marker until that of this one came.
            place.remove("part-0")
            _swap_before_move(place, ["back"])
        place.remove("_SUCCESS")

    place.store.before_call = before
    with pytest.raises(OutcomeUnknownError) as caught:
        await job.commit()
    [(where, data)] = _markers(place).items()
    assert (puts, data) == (2, OTHERS)
    assert caught.value.outcome == "committed"
    assert f"{place.dest}/{where}" in caught.value.next_step


@pytest.mark.parametrize("profile", ["local", "hdfs"])
async def test_another_jobs_comes_back_though_the_lock_cannot_be_looked_at_meanwhile(profile: str) -> None:
    """The driver looks for the lock as it marks the job: that this fails does not cut short what follows the mark."""
    place, over, moved = MemoryPlace(profile), asyncio.Event(), asyncio.Event()
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"data"})

    async def before(call: Call) -> None:
        if call.operation == "status" and call.path.name.startswith("taken-"):
            moved.set()
            await _turns()
        if "_SUCCESS" not in place.all_files():
            return
        if call.operation == "put" and call.path.name == "outcome":
            # Another driver ends the job, and a later one replaces what it published, and leaves no marker.
            await committer.recover(place.dest, "j", storage_options={"store": FaultyStore(place.space.store())})
            place.remove("part-0")
            over.set()
        elif call.operation == "rename_file" and call.path.name == "_SUCCESS":
            place.remove("_SUCCESS")
            place.write("_SUCCESS", OTHERS)
        elif call.operation == "read" and call.path.name == ".replace-lock":
            await over.wait()
            await _turns(moved)
            place.faults(Fault(kind="forbidden", call=call.number))

    place.store.before_call = before
    with pytest.raises(CommitterError):
        await job.commit()
    assert moved.is_set()
    assert _markers(place) == {"_SUCCESS": OTHERS}


@pytest.mark.parametrize(("profile", "last"), [("local", 2), ("hdfs", 2), ("adls", 1), ("gcs", 1), ("s3", 1)])
async def test_the_driver_that_cannot_take_its_own_away_says_so_though_its_job_is_gone(profile: str, last: int) -> None:
    """Another driver ended the job, so that this one would report that: the marker, which may not be true, would stay."""
    place, puts = MemoryPlace(profile), 0
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"data"})

    async def before(call: Call) -> None:
        nonlocal puts
        if call.operation != "put" or call.path.name != "_SUCCESS":
            return
        puts += 1
        if puts == 1:
            options = {"store": FaultyStore(place.space.store())}
            await committer.recover(place.dest, "j", storage_options=options)
        if puts == last:
            # A later job replaces what it published.
            place.remove("part-0")
            place.faults(Fault(kind="forbidden", operation="status", path="/part-0", times=None))
        place.remove("_SUCCESS")

    place.store.before_call = before
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert puts == last
    assert "_SUCCESS" in place.all_files()
    error = caught.value
    assert error.outcome == "committed"
    assert f"look at {place.dest}/_SUCCESS: if it is of job j" in error.next_step
    assert "no right" in error.message
    assert error.__cause__ is error.causes[0]
