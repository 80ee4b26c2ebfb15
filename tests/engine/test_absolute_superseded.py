"""Directories outside the destination, below roots that the caller gave, that a job supersedes by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer import Job
from committer.errors import CommitterError, ConfigurationError
from committer.paths import StorePath
from committer.testing.faults import Fault, SimulatedCrash
from tests.engine.outside import HERE, config, outside, put, run_task, uri
from tests.engine.places import MemoryPlace, Place

OLD = {"p=9/old": b"old", "p=9/q=1/old": b"old", "p=8/old": b"old"}


async def opened(place: Place, **choices: object) -> Job:
    """A job that supersedes `p=9` below the root outside, or more."""
    for name, data in OLD.items():
        put(place, name, data)
    place.write("p=3/old", b"old")
    where = StorePath.of(uri(place, "p=9")).path
    given = {"conflict_mode": "replace", "superseded_directories": (where,), **choices}
    return await place.open_job(job_id="j-1", config=config(place, **given))


@pytest.mark.parametrize("scope", [None, "destination"])
async def test_superseded_when_all_new_files_are_there(place: Place, scope: str | None) -> None:
    async with await opened(place, superseded_scope=scope) as job:
        await run_task(place, job, 0, {"p=9/new": b"new"}, HERE)
        assert outside(place) == OLD
        await job.commit(tasks=1)
    assert outside(place) == {"p=8/old": b"old", "p=9/new": b"new"}
    assert place.files() == ({**HERE} if scope else {**HERE, "p=3/old": b"old"})


async def test_superseded_without_new_files(place: Place) -> None:
    job = await opened(place)
    await run_task(place, job, 0, {}, HERE)
    before = outside(place, directories=True)
    await job.plan()
    assert outside(place, directories=True) == before
    await job.commit(tasks=1)
    await job.close()
    assert outside(place) == {"p=8/old": b"old"}


@pytest.mark.parametrize("scope", [None, "destination"])
async def test_taken_back_half_way(memory: MemoryPlace, scope: str | None) -> None:
    job = await opened(memory, superseded_scope=scope)
    await run_task(memory, job, 0, {}, HERE)
    before = outside(memory, directories=True)
    memory.faults(Fault(kind="crash_before", path="/outcome"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=1)
    options = {"store": memory.store.inner}
    assert outside(memory) == {"p=8/old": b"old"}
    with pytest.raises(ConfigurationError, match="must say that it may write below"):
        await committer.recover(memory.dest, "j-1", storage_options=options)
    await committer.recover(
        memory.dest, "j-1", rollback=True, force=True, config=config(memory), storage_options=options
    )
    assert outside(memory, directories=True) == before
    assert memory.files() == {"p=3/old": b"old"}


async def test_a_directory_below_no_root_is_refused(place: Place) -> None:
    where = f"{StorePath.of(uri(place)).path}-another/p=9"
    with pytest.raises(ConfigurationError, match="below none of absolute_roots"):
        await opened(place, superseded_directories=(where,))
    assert outside(place) == OLD
    assert place.temporary() == set()


async def test_a_link_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "roots"
    (root / "real").mkdir(parents=True)
    (root / "real" / "old").write_bytes(b"old")
    (root / "p=9").symlink_to("real")
    given = {"conflict_mode": "replace", "superseded_directories": [str(root / "p=9")], "absolute_roots": [str(root)]}
    with pytest.raises(CommitterError, match="is a link, and is to be superseded"):
        async with committer.open_job(tmp_path / "t", config=given) as job:
            await job.commit(tasks=0)
    assert (root / "real" / "old").read_bytes() == b"old"
