"""A commit that is refused leaves no request behind that puts the records of later tasks out of a later commit's sight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

import committer
from committer import Job
from committer.errors import (
    CommitterError,
    StoreOutcomeUnknownError,
    TaskError,
    TaskMissingError,
)
from committer.flow.runtime import use_runtime
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime
from tests.engine.frozen import (
    BOTH,
    fault_of_freeze,
    half_begun,
    kinds_of_place,
    open_half,
    profiles,
    run_last_task,
    what_is_late_arrives,
)
from tests.engine.places import MemoryPlace, make_place
from tests.job_paths import in_job
from tests.rotation import Share


@kinds_of_place
@pytest.mark.parametrize("kind", ["unanswered", "lost", "late", "again"])
async def test_a_commit_goes_on_where_the_answer_to_the_freeze_is_lost(
    kind_of_place: str, tmp_path: Path, kind: FaultKind
) -> None:
    place = make_place(kind_of_place, tmp_path)
    job = await open_half(place)
    place.faults(fault_of_freeze(kind, 4 if kind == "unanswered" else 1))
    assert (await job.commit(tasks=1)).success
    await what_is_late_arrives(place)
    assert place.files() == {"a/part-0": b"0"}
    assert place.temporary() == set()


@profiles
@pytest.mark.parametrize("kind", ["unanswered", "late"])
async def test_a_commit_whose_freezes_are_all_lost_is_done_again(profile: str, kind: FaultKind) -> None:
    """What the error says holds: nothing changed, tasks go on, and a commit that follows counts them."""
    # The requests come long after the last try, however busy the machine is.
    with use_runtime(VirtualRuntime()):
        place, job = await half_begun(profile)
        place.faults(fault_of_freeze(kind, 5, delay_s=3600.0))
        with pytest.raises(StoreOutcomeUnknownError) as caught:
            await job.commit()
        assert (caught.value.outcome, caught.value.next_step) == ("unchanged", "commit the job again")
        await what_is_late_arrives(place)
        await place.run_task(job, 1, {"a/part-1": b"1"})
        assert (await job.plan()).files == 2
        assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@kinds_of_place
@pytest.mark.parametrize("kind", ["late", "again", "unanswered", "lost"])
@pytest.mark.parametrize("arrives", ["before the task", "after the task"])
async def test_a_freeze_that_comes_when_it_was_undone(
    kind_of_place: str, tmp_path: Path, kind: FaultKind, arrives: str
) -> None:
    place = make_place(kind_of_place, tmp_path)
    job = await open_half(place)
    for _refused in range(2):
        place.faults(fault_of_freeze(kind))
        with pytest.raises(TaskMissingError) as caught:
            await job.commit(tasks=2)
        assert caught.value.outcome == "unchanged"
        if arrives == "before the task":
            await what_is_late_arrives(place)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    await what_is_late_arrives(place)
    assert (await job.plan()).files == 2
    assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
@pytest.mark.parametrize("kind", [None, "again"])
async def test_a_record_that_is_brought_in_comes_once(profile: str, kind: FaultKind | None) -> None:
    """A task committed again beside the frozen records; the rename that brings its record in is served twice.

    It would take the record out of the next commit's sight, or all others.
    """
    place, job = await half_begun(profile)
    await place.run_task(job, 1, {"a/part-1": b"1"})

    async def commit_again(call: Call) -> None:
        frozen = [name for name in place.all_files() if "/manifests-frozen/task_j_m_000000" in name]
        if frozen and call.operation == "list":
            place.store.before_call = None
            name = frozen[0].rpartition("/")[2]
            place.write(in_job(place, "j", f"00/manifests/{name}"), place.all_files()[frozen[0]])

    place.store.before_call = commit_again
    if kind is not None:
        place.faults(Fault(kind=kind, operation="rename_file", path="00/manifests/", delay_s=0.05))
    with pytest.raises(TaskMissingError) as caught:
        await job.commit(tasks=3)
    assert caught.value.outcome == "unchanged"
    assert place.store.before_call is None
    await what_is_late_arrives(place)
    assert (await job.plan()).files == 2
    assert (await job.commit()).files_committed == 2
    assert place.files() == BOTH
    assert place.temporary() == set()


@profiles
async def test_an_attempt_that_did_not_commit_is_told_so_where_a_freeze_was_undone(profile: str) -> None:
    _place, job = await half_begun(profile)
    with pytest.raises(TaskMissingError):
        await job.commit(tasks=2)
    assert (await job.recover_task(0, 0)).task == 0
    with pytest.raises(TaskError):
        await job.recover_task(1, 0)
    await job.abort()


async def _troubled(profile: str, kind: FaultKind, share: Share) -> AsyncIterator[tuple[MemoryPlace, Job, FaultyStore]]:
    """A job whose commit was refused, once for each call from there on that meets trouble."""
    for number in share.counted():
        place, job = await half_begun(profile)
        with pytest.raises(TaskMissingError):
            await job.commit(tasks=2)
        before = place.store.count()
        place.faults(Fault(kind=kind, call=before + number, delay_s=0.05))
        yield place, job, place.store
        if place.store.count() < before + number:
            return
        await job.close()


@profiles
@pytest.mark.parametrize("kind", ["crash_after", "crash_before", "lost", "unanswered", "late", "again"])
async def test_trouble_in_the_commit_after_a_refused_one(profile: str, kind: FaultKind, share: Share) -> None:
    async for place, job, store in _troubled(profile, kind, share):
        options = {"store": FaultyStore(place.space.store())}
        await run_last_task(job, options)
        with suppress(CommitterError, SimulatedCrash):
            await job.commit(tasks=2)
        await _finish(place, job, options)
        assert place.files() == BOTH, store.log()


@profiles
@pytest.mark.parametrize("kind", ["lost", "unanswered", "late", "again"])
async def test_trouble_in_a_second_commit_that_is_refused(profile: str, kind: FaultKind, share: Share) -> None:
    """Where it says that nothing changed, the next one counts the task that commits after it."""
    told = 0
    async for place, job, store in _troubled(profile, kind, share):
        options = {"store": FaultyStore(place.space.store())}
        with pytest.raises(CommitterError) as caught:
            await job.commit(tasks=2)
        if caught.value.outcome != "unchanged":
            continue
        told += 1
        await run_last_task(job, options)
        await _finish(place, job, options)
        assert place.files() == BOTH, store.log()
    assert told or not share.is_whole


async def _finish(place: MemoryPlace, job: Job, options: dict[str, object]) -> None:
    """Another driver commits, once what was under way has come."""
    await what_is_late_arrives(place)
    if "_SUCCESS" not in place.all_files():
        async with committer.attach_job(job.spec, storage_options=options) as again:
            await again.commit()


@profiles
async def test_drivers_that_freeze_and_undo_it_at_once(profile: str) -> None:
    place, job = await half_begun(profile)
    for _round in range(3):
        async with place.attach_job("j") as other:
            results = await asyncio.gather(job.commit(tasks=2), other.commit(tasks=2), return_exceptions=True)
        assert all(isinstance(result, CommitterError) for result in results)
    await place.run_task(job, 1, {"a/part-1": b"1"})
    try:
        await job.commit(tasks=2)
    except CommitterError:
        await place.recover("j")
    assert place.files() == BOTH
