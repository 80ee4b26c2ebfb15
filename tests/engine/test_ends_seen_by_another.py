"""What a caller is told where another driver ended the job, or an earlier call did."""

from __future__ import annotations

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobRolledBackError,
    StorePermissionError,
    TargetExistsError,
)
from committer.testing.faults import Call, FaultyStore, SimulatedCrash
from tests.engine.places import MemoryPlace
from tests.job_paths import in_job

FILES = {"a=1/part-0": b"x", "part-1": b"y"}
HADOOP = "job_202601010000_0001"


async def _decided(place: MemoryPlace) -> None:
    """A job whose driver dies when everything is published."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)

    async def before(call: Call) -> None:
        if call.path.name == "outcome":
            raise SimulatedCrash

    place.store.before_call = before
    with pytest.raises(SimulatedCrash):
        await job.commit()
    place.store.before_call = None


def _overtaken_after_outcome(place: MemoryPlace) -> FaultyStore:
    """The store of a driver that writes `outcome`, and undoes; then another one does the rest, and its call fails."""
    store = FaultyStore(place.space.store())
    stood = False

    async def before(call: Call) -> None:
        nonlocal stood
        stands = any(name.endswith("/outcome") for name in place.all_files())
        if stands and not stood and call.operation == "rename_file":
            stood = True
            with pytest.raises(JobRolledBackError):
                await committer.recover(place.dest, "j", storage_options={"store": FaultyStore(place.space.store())})
            raise StorePermissionError("refused", operation=call.operation, path=call.path)

    store.before_call = before
    return store


async def test_rollback_that_another_driver_carries_to_its_end_says_that_it_went_well(memory: MemoryPlace) -> None:
    await _decided(memory)
    operator = _overtaken_after_outcome(memory)
    report = await committer.recover(memory.dest, "j", rollback=True, storage_options={"store": operator})
    assert not report.success
    assert memory.files() == {}
    assert memory.temporary() == set()


async def test_refused_commit_that_another_driver_takes_back_tells_the_refusal(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="j")
    await memory.run_task(job, 0, FILES)
    driver = _overtaken_after_outcome(memory)
    inner = driver.before_call

    async def before(call: Call) -> None:
        if call.operation == "rename_file" and "part-1" not in memory.files():
            memory.write("part-1", b"another job's")
        await inner(call)

    driver.before_call = before
    async with committer.attach_job(job.spec, storage_options={"store": driver}) as other:
        with pytest.raises(TargetExistsError) as refused:
            await other.commit()
    assert refused.value.outcome == "unchanged"
    assert memory.files() == {"part-1": b"another job's"}


async def test_recovery_that_meets_a_late_decision_alone_says_that_there_is_no_job(flat: MemoryPlace) -> None:
    """A request repeated it after the job was cleaned up: nothing of it was published by anyone but that job."""
    job = await flat.open_job(job_id="j", delivery="message")
    message = await flat.run_task(job, 0, FILES)
    kept = b""

    async def before(call: Call) -> None:
        nonlocal kept
        for name, data in flat.all_files().items():
            if name.endswith("/decision"):
                kept = data

    flat.store.before_call = before
    await job.commit([message])
    flat.store.before_call = None
    flat.remove("_SUCCESS")
    flat.write(in_job(flat, "j", "decision"), kept)
    with pytest.raises(JobNotFoundError) as caught:
        await flat.recover("j")
    assert caught.value.outcome == "unchanged"
    assert flat.temporary() == set()
    assert flat.files() == FILES


async def test_second_abort_goes_by_what_its_caller_wants_cleaned(memory: MemoryPlace) -> None:
    """The first one was to leave the job's directory."""
    memory.write(f"_temporary/{HADOOP}/00/tasks/attempt_202601010000_0001_m_000000_0/part-0", b"x")
    kept = JobSpec.for_hadoop(memory.dest, HADOOP, config=CommitterConfig(cleanup_skipped=True))
    async with committer.attach_job(kept, storage_options=memory.options) as job:
        await job.abort()
    assert f"_temporary/{HADOOP}/decision" in memory.temporary()
    async with committer.attach_job(JobSpec.for_hadoop(memory.dest, HADOOP), storage_options=memory.options) as job:
        await job.abort()
    assert memory.temporary() == set()


async def test_undo_that_fails_advises_the_rollback_that_was_asked_for(memory: MemoryPlace) -> None:
    await _decided(memory)

    async def before(call: Call) -> None:
        if call.operation == "rename_file" and any(name.endswith("/outcome") for name in memory.all_files()):
            raise StorePermissionError("refused", operation=call.operation, path=call.path)

    memory.store.before_call = before
    with pytest.raises(CommitterError) as caught:
        await memory.recover("j", rollback=True)
    memory.store.before_call = None
    assert caught.value.outcome == "partial"
    assert "rollback=True" in caught.value.next_step
    assert not (await memory.recover("j", rollback=True)).success
    assert memory.files() == {}


async def test_abort_that_meets_what_a_late_task_left_removes_it(place_of_late_writes: MemoryPlace) -> None:
    """The job is over, and its task attempt makes the directory again where a write makes its parents."""
    place = place_of_late_writes
    job = await place.open_job(job_id="j")
    other = await place.attach_job("j")
    await job.abort()
    place.write(in_job(place, "j", "00/tasks/attempt_j_m_000000_0-abc/part-0"), b"late")
    await other.abort()
    assert place.files() == {}


@pytest.fixture
def place_of_late_writes() -> MemoryPlace:
    """A memory space whose writes make their parents."""
    return MemoryPlace("adls")
