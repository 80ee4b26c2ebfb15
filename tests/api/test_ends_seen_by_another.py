"""Errors and reports for a caller whose job another driver, or an earlier call, has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.api.task import TaskAttempt
from committer.api.task_files import TaskFile
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    StorePermissionError,
    StorePreconditionError,
    TargetExistsError,
    TaskError,
)
from committer.paths import StorePath
from committer.records.success import SuccessData, decode_success, encode_success
from committer.testing.faults import Call, FaultyStore, SimulatedCrash
from committer_testing.virtual_loop import virtual_loop
from tests.few_facts import list_in_side_files
from tests.job_paths import in_job
from tests.neighbours.meeting import Connection, Table, writes_success
from tests.places import MemoryPlace, Place, place_fixture

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


async def test_abort_that_meets_what_a_late_task_left_removes_it() -> None:
    """The job is over, and its task attempt makes the directory again where a write makes its parents."""
    place = MemoryPlace("adls")
    job = await place.open_job(job_id="j")
    other = await place.attach_job("j")
    await job.abort()
    place.write(in_job(place, "j", "00/tasks/attempt_j_m_000000_0-abc/part-0"), b"late")
    await other.abort()
    assert place.files() == {}


# -- many jobs end at once: a driver whose conditional put of `_SUCCESS` finds another job's marker tries again,  -------


@pytest.mark.parametrize("profile", ["gcs", "s3"])
@pytest.mark.parametrize("lost", [12, 29, 30])
def test_a_commit_goes_on_after_lost_races(profile: str, lost: int) -> None:
    async def commit() -> tuple[float, int]:
        table = Table(profile)
        party = await table.job("late", {"p=0/part": b"x"})
        races = 0

        async def another_is_first(call: Call) -> None:
            nonlocal races
            if writes_success(call) and races < lost:
                races += 1
                table.write("_SUCCESS", encode_success(SuccessData(success=True, jobId=f"other-{races}")))

        party.store.before_call = another_is_first
        began = loop.time()
        await party.commit()
        took = loop.time() - began
        if lost < 30:
            assert party.error is None, party.error
            assert decode_success(table.all_files()["_SUCCESS"], source="_SUCCESS").jobId == "late"
            assert table.temporary() == set()
        else:
            assert isinstance(party.error, StorePreconditionError)
            assert party.error.outcome == "committed"
        return took, races

    with virtual_loop() as loop:
        took, races = loop.run_until_complete(commit())
    assert races == lost
    assert 0.0 < took < 60.0


# -- a driver that was to take its job back finds that another driver did, and cleaned up, a moment ago -----------------


OLD_FILES = {f"p/{number}": b"old" for number in range(6)}


@pytest.mark.parametrize("listed", ["in the decision", "in side files"])
async def test_it_tells_why_the_job_was_taken_back(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of files at its targets is deleted with the job's directory, and no driver reads it any more."""
    if listed == "in side files":
        list_in_side_files(monkeypatch)
    place = MemoryPlace("local")
    await place.run_job(OLD_FILES, job_id="before")
    job = await place.open_job(job_id="J", config=CommitterConfig(existing_target="replace"))
    await place.run_task(job, 0, {**dict.fromkeys(OLD_FILES, b"new"), "p/other": b"new"})
    ended = taken_back = False

    async def before(call: Call) -> None:
        nonlocal ended, taken_back
        path = str(call.path)
        if call.operation == "rename_file" and "/tasks/" in path:
            place.write("p/other", b"another writer's")
        if ended and not taken_back and ("/superseded" in path or "/plan-" in path):
            taken_back = True
            assert not (await place.recover("J", rollback=True)).success
        ended = ended or (call.operation == "put" and path.endswith("/outcome"))

    place.store.before_call = before
    with pytest.raises(TargetExistsError, match=r"p/other, where J publishes a file") as caught:
        await job.commit(tasks=1)
    # It may be another job's output, which nothing but a look at who wrote it lets a user remove.
    assert caught.value.next_step.startswith("find out whether another job committed it")
    assert taken_back
    assert place.files() == {**OLD_FILES, "p/other": b"another writer's"}
    assert not place.temporary()


# -- a recovery that begins while the job's driver cleans up must not take what is left for an open job of Hadoop's -----


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_job_that_is_cleaned_up_while_it_is_looked_up(flat: MemoryPlace, rollback: bool) -> None:
    """The listing still shows the setup record, which is gone when it is read; a late task made its directory again."""
    job = await flat.open_job(job_id="j", delivery="message", config=CommitterConfig(mark_successful_jobs=False))
    message = await flat.run_task(job, 0, {"part-0": b"data"})
    operator = FaultyStore(flat.store.inner)
    over = False

    async def before(call: Call) -> None:
        nonlocal over
        if call.operation == "read" and call.path is not None and call.path.name == "setup" and not over:
            over = True
            await job.commit([message])
            flat.write(in_job(flat, "j", "00/tasks/attempt_j_m_000000_1-3048fef4dfa7/part-0"), b"late")

    operator.before_call = before
    with pytest.raises(JobNotFoundError):
        await committer.recover(flat.dest, "j", rollback=rollback, storage_options={"store": operator})
    assert over
    assert flat.read("part-0") == b"data"


# -- of two changes made at once, the one that fails does not cut the other short: a request that was sent arrives ------


T = TypeVar("T")


class SlowWire(Connection):
    """A process whose making of one directory is under way for a while; who waits for it may give up, it does not."""

    async def run(
        self, operation: str, effect: Callable[[], Awaitable[T]], path: StorePath, destination: StorePath | None = None
    ) -> T:
        """Makes a call."""
        sent = asyncio.ensure_future(self._sent(operation, effect, path, destination))
        return await asyncio.shield(sent)

    async def _sent(
        self, operation: str, effect: Callable[[], Awaitable[T]], path: StorePath, destination: StorePath | None
    ) -> T:
        if operation == "make_directory" and path.name == "new=1":
            await asyncio.sleep(10)
        return await super().run(operation, effect, path, destination)


async def refused_beside_a_directory(table: Table) -> None:
    """Commits a job that may not set the old `_SUCCESS` aside, rolls it back, and looks what is left of it."""
    async with committer.open_job(table.dest, job_id="first", storage_options=table.options) as job:
        async with job.task_attempt(task=0) as task, task.open("old") as file:
            await file.write(b"old")
    before = table.all_files()
    party = await table.job("second", {"new=1/a": b"a"})
    party.driver = await committer.attach_job(
        party.driver.spec, storage_options={"store": (wire := SlowWire(table.space))}
    )

    async def refuse(call: Call) -> None:
        if call.operation == "rename_file" and call.path.name == "_SUCCESS":
            raise StorePermissionError("no right", operation=call.operation, path=call.path)

    wire.before_call = refuse
    with pytest.raises(CommitterError):
        await party.driver.commit()
    await committer.recover(table.dest, "second", rollback=True, storage_options=table.options)
    await asyncio.sleep(60)
    assert table.all_files() == before
    assert not any(name.endswith("/new=1") for name in table.space.directories())


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
def test_no_directory_comes_when_the_job_was_taken_back(profile: str) -> None:
    with virtual_loop() as loop:
        loop.run_until_complete(refused_beside_a_directory(Table(profile)))


# -- a file that a task attempt is writing when its job ends, or when it is aborted: the error says which it was --------


# Stores on which what a task writes goes with its directory.
place = place_fixture("disk", "local", "hdfs", "adls", delivery="message")

SIZES = pytest.mark.parametrize("size", [1, 5 << 20])


async def _goes_on(task: TaskAttempt, file: TaskFile, size: int) -> CommitterError | None:
    """Writes on, closes the file and commits the attempt; returns the first error."""
    try:
        await file.write(bytes(size))
        await file.close()
        await task.commit()
    except CommitterError as error:
        return error
    finally:
        await task.abort()
    return None


@SIZES
@pytest.mark.parametrize("nested", [False, True])
async def test_a_file_of_a_job_that_ended_says_that_its_job_is_over(place: Place, size: int, nested: bool) -> None:
    job = await place.open_job()
    task = await place.open_task(job.spec, 0)
    file = await task.open("a=1/part-0" if nested else "part-0").__aenter__()
    await file.write(b"x")
    await job.commit([], tasks=0)
    error = await _goes_on(task, file, size)
    assert isinstance(error, JobNotFoundError)
    assert error.next_step
    assert place.files() == {}


async def test_a_file_of_a_job_whose_outcome_is_kept_says_that_it_is_decided(place: Place) -> None:
    job = await place.open_job(config=CommitterConfig(outcome_kept=True))
    task = await place.open_task(job.spec, 0)
    file = await task.open("part-0").__aenter__()
    await job.commit([], tasks=0)
    error = await _goes_on(task, file, 1)
    assert isinstance(error, JobDecidedError | JobNotFoundError)


@SIZES
async def test_a_file_of_an_attempt_that_was_aborted_says_so(place: Place, size: int) -> None:
    async with place.open_job() as job:
        task = await place.open_task(job.spec, 0)
        file = await task.open("part-0").__aenter__()
        await file.write(b"x")
        await job.abort_task(0, 0)
        error = await _goes_on(task, file, size)
        if error is not None:
            assert isinstance(error, TaskError)
            assert "was aborted" in error.message
        message = await place.run_task(job, 0, {"part-0": b"y"}, attempt=1)
        await job.commit([message], tasks=1)
    assert place.files() == {"part-0": b"y"}
