"""A driver that dies between taking the replace lock away and deleting it: whatever ends the job deletes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.engine.places import EVERY_COMMITTER, Place, make_place, place_fixture
from tests.rotation import Share

LOCK = "_temporary/.replace-lock"
TAKEN = "_temporary/j/ended-0123456789ab/replace-lock"
OLD = {"a=1/old": b"old"}
FILES = {"a=1/part-0": b"x"}
REPLACE = CommitterConfig(conflict_mode="replace", io_concurrency=1)

End: TypeAlias = Callable[[Place, FaultyStore], Awaitable[object]]

place = place_fixture(*EVERY_COMMITTER)


async def recover(place: Place, store: FaultyStore) -> None:
    await committer.recover(place.dest, "j", storage_options={"store": store})


async def roll_back(place: Place, store: FaultyStore) -> None:
    await committer.recover(place.dest, "j", rollback=True, force=True, storage_options={"store": store})


async def abort(place: Place, store: FaultyStore) -> None:
    async with committer.attach_job(place.dest, job_id="j", storage_options={"store": store}) as job:
        await job.abort()


async def clean_up(place: Place, store: FaultyStore) -> None:
    await committer.cleanup(place.dest, job_id="j", force=True, storage_options={"store": store})


def connection(place: Place, *faults: Fault) -> FaultyStore:
    """What another process has."""
    return FaultyStore(place.store.inner, faults)


async def dead_driver(place: Place, *faults: Fault, config: CommitterConfig = REPLACE) -> bytes:
    """A replacing job whose driver died; the record of its lock."""
    for name, data in OLD.items():
        place.write(name, data)
    job = await place.open_job(job_id="j", config=config)
    await place.run_task(job, 0, FILES)
    store = connection(place, *faults)
    lock = b""

    async def before(call: Call) -> None:
        nonlocal lock
        lock = place.all_files().get(LOCK, lock)

    store.before_call = before
    driver = await committer.attach_job(job.spec, storage_options={"store": store})
    with pytest.raises(SimulatedCrash):
        await driver.commit()
    assert lock
    return lock


def dies(state: str) -> Fault:
    """What stops a driver when its job stands so."""
    record, kind = {
        "undecided": ("decision", "crash_before"),
        "decided": ("decision", "crash_after"),
        "committed": ("outcome", "crash_after"),
    }[state]
    return Fault(kind=kind, operation="put", path=lambda path: path.name == record)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("undecided", roll_back),
        ("undecided", abort),
        ("undecided", clean_up),
        ("decided", recover),
        ("decided", roll_back),
        ("decided", clean_up),
        ("committed", recover),
        ("committed", clean_up),
    ],
)
async def test_lock_that_was_taken_away_and_not_deleted_goes_with_whatever_ends_the_job(
    place: Place, state: str, end: End
) -> None:
    lock = await dead_driver(place, dies(state))
    place.remove(LOCK)
    place.write(TAKEN, lock)
    await end(place, connection(place))
    assert LOCK not in place.all_files()
    assert TAKEN not in place.all_files()


async def test_lock_that_was_taken_away_and_not_deleted_goes_where_the_outcome_is_kept(place: Place) -> None:
    config = CommitterConfig(conflict_mode="replace", io_concurrency=1, outcome_kept=True)
    lock = await dead_driver(place, dies("committed"), config=config)
    place.remove(LOCK)
    place.write(TAKEN, lock)
    await recover(place, connection(place))
    assert place.temporary() - {"_temporary", "_temporary/j"} == {"_temporary/j/outcome"}


async def test_lock_that_an_earlier_job_of_the_id_left_keeps_no_job_out_and_goes_with_the_next(place: Place) -> None:
    lock = await dead_driver(place, dies("undecided"))
    await roll_back(place, connection(place))
    place.write(TAKEN, lock)
    for job_id in ("k", "j"):
        job = await place.open_job(job_id=job_id, config=REPLACE)
        await place.run_task(job, 0, FILES)
        await job.commit()
        assert (TAKEN in place.all_files()) == (job_id == "k")
    assert place.temporary() == set()


@pytest.mark.parametrize("end", [roll_back, abort, clean_up])
@pytest.mark.parametrize("kind", ["disk", "local", "hdfs", "adls"])
async def test_end_that_dies_at_each_call_leaves_no_lock(kind: str, end: End, tmp_path: Path, share: Share) -> None:
    """Found by the search (94572). The lock arrived late, when another process had begun to remove the job: the
    directory is gone that it would be taken to, and so one is made.
    """
    seen: set[str] = set()
    for number in share.counted():
        place = make_place(kind, tmp_path / str(number))
        lock = await dead_driver(place, dies("undecided"))
        begun = Fault(kind="crash_after", operation="rename_directory", path="/drivers-")
        with pytest.raises(SimulatedCrash):
            await roll_back(place, connection(place, begun))
        assert LOCK not in place.all_files()
        place.write(LOCK, lock)
        died = connection(place, Fault(kind="crash_before", call=number))
        over = False
        with suppress(SimulatedCrash):
            await end(place, died)
            over = True
        seen |= {name.rpartition("/")[2] for name in place.all_files() if name.endswith("replace-lock")}
        if not over:
            try:
                await end(place, connection(place))
            except JobNotFoundError:
                # Who finds no job any more is told to clean up.
                with suppress(JobNotFoundError):
                    await clean_up(place, connection(place))
        assert not {name for name in place.all_files() if name.startswith("_temporary/")}, (number, died.log())
        assert place.files() == OLD
        if over:
            break
    # Where the store is told what to move, the job's own directory will do.
    share.check_seen(seen, {".replace-lock"} if kind == "adls" else {".replace-lock", "replace-lock"})
