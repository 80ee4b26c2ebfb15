"""A task attempt that is aborted while a job commit reads its record: one of the two gives way, and no file is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import product

import pytest

import committer
from committer import Job, TaskCommit
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError, JobStateError, PreflightError, TaskError
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.job_paths import in_job
from tests.places import Delivery, MemoryPlace, Place, write_file
from tests.waiting_uploads import pending

BOTH = pytest.mark.parametrize("delivery", ["listing", "message"])
FILES = {"part-0": b"0", "d/part-1": b"1"}
OTHERS = {"part-2": b"2"}
# Calls within which a commit has put records back and read them.
RECORDS_READ = 12


async def attached(
    place: MemoryPlace, job: Job, number: int, what: Callable[[], Awaitable[None]]
) -> tuple[Job, FaultyStore]:
    """A Job of another process, in which `what` happens before its call of that number."""
    store = FaultyStore(place.space.store())
    other = await committer.attach_job(job.spec, storage_options={"store": store})
    store.calls.clear()

    async def before(call: Call) -> None:
        if call.number == number:
            await what()

    store.before_call = before
    return other, store


async def race(
    profile: str, delivery: Delivery, *, aborts_first: bool
) -> AsyncIterator[tuple[MemoryPlace, CommitterError | None, CommitterError | None]]:
    """Commits a job, and aborts a task attempt; one comes whole before each call of the other. With what each raised."""
    number = calls = 1
    while number <= calls:
        place = MemoryPlace(profile)
        job = await place.open_job(job_id="job-1", delivery=delivery)
        messages = [await place.run_task(job, 0, FILES), await place.run_task(job, 1, OTHERS)]
        told: dict[str, CommitterError] = {}

        async def run(
            name: str, job: Job, messages: list[TaskCommit] = messages, told: dict[str, CommitterError] = told
        ) -> None:
            try:
                if name == "abort":
                    await job.abort_task(0, 0)
                else:
                    await job.commit(messages if delivery == "message" else None)
            except CommitterError as error:
                told[name] = error

        async def other(place: MemoryPlace = place, job: Job = job) -> None:
            if aborts_first:
                async with place.attach_job("job-1") as attached_too:
                    await run("abort", attached_too)
            else:
                await run("commit", job)

        first, store = await attached(place, job, number, other)
        await run("commit" if aborts_first else "abort", first)
        calls, number = store.count(), number + 1
        if told.get("commit"):
            assert told["commit"].outcome == "unchanged"
            assert place.files() == {}
        yield place, told.get("commit"), told.get("abort")
        if aborts_first and told.get("commit"):
            report = await first.commit(messages[1:] if delivery == "message" else None)
            assert report.files_committed == 1
        assert pending(place) == [] or (told.get("commit") and not aborts_first)


@BOTH
@pytest.mark.parametrize("profile", ["local", "gcs", "s3", "azure-flat"])
@pytest.mark.parametrize("aborts_first", [True, False], ids=["abort in a commit", "commit in an abort"])
async def test_an_abort_beside_a_job_commit(delivery: Delivery, profile: str, aborts_first: bool) -> None:
    """The abort is refused, or the commit is, or the commit goes on without the attempt: never a job that is stuck."""
    seen: set[str] = set()
    async for place, commit, abort in race(profile, delivery, aborts_first=aborts_first):
        assert aborts_first or abort is None or isinstance(abort, JobStateError | JobDecidedError)
        if commit is not None:
            assert abort is None
            seen.add("commit refused")
        elif "part-0" in place.files():
            assert place.files() == {**FILES, **OTHERS}
            seen.add("abort refused" if abort else "abort too late")
        else:
            assert place.files() == OTHERS
            assert abort is None
            seen.add("committed without it")
    assert "abort refused" in seen or not aborts_first
    assert {"commit refused", "committed without it"} & seen


async def switch(place: MemoryPlace, first: str, calls: tuple[int, int]) -> dict[str, CommitterError | None]:
    """Runs an abort and a job commit in turns: so many calls of the first, so many of the other, then each to its end."""
    job = await place.open_job(job_id="job-1", delivery="listing")
    await place.run_task(job, 0, FILES)
    await place.run_task(job, 1, OTHERS)
    told: dict[str, CommitterError | None] = {}
    second = "commit" if first == "abort" else "abort"
    turns = dict(zip((first, second), calls, strict=True))
    begins, ended = asyncio.Event(), {name: asyncio.Event() for name in turns}
    goes_on = asyncio.Event()

    async def give_way() -> None:
        if not begins.is_set():
            begins.set()
            await goes_on.wait()
        else:
            goes_on.set()
            await ended[first].wait()

    async def run(name: str) -> None:
        if name == second:
            await begins.wait()
        driver, _store = await attached(place, job, turns[name], give_way)
        told[name] = None
        try:
            await (driver.abort_task(0, 0) if name == "abort" else driver.commit())
        except CommitterError as error:
            told[name] = error
        ended[name].set()
        begins.set()
        goes_on.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(run("abort"))
        group.create_task(run("commit"))
    return told


@pytest.mark.parametrize("first", ["abort", "commit"])
@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_an_abort_and_a_job_commit_in_turns(profile: str, first: str) -> None:
    """The job has the files of an attempt whose abort was refused, and none of an attempt that was aborted."""
    seen: set[str] = set()
    for turns in product(range(1, 13), range(1, 9)):
        calls = turns if first == "abort" else turns[::-1]
        place = MemoryPlace(profile)
        told = await switch(place, first, calls)
        if told["commit"] is None:
            whole = "part-0" in place.files()
            seen.add("committed with it" if whole else "committed without it")
            assert place.files() == ({**FILES, **OTHERS} if whole else OTHERS), calls
            # An abort finds nothing of a job that has ended, and refuses nothing.
            assert whole or not told["abort"], calls
            assert told["abort"] or not whole or first == "commit", calls
        else:
            assert isinstance(told["commit"], JobStateError | TaskError | PreflightError), (calls, told["commit"])
            assert told["commit"].outcome == "unchanged"
            assert place.files() == {}
            seen.add("commit refused")
            async with place.attach_job("job-1") as again:
                try:
                    await again.commit()
                except PreflightError:
                    # The abort had deleted the files of a record that the commit put back, as the commit's error says.
                    assert "was deleted while it was put back" in told["commit"].message
                    await again.abort_task(0, 0)
                    await again.commit()
            assert place.files() == ({**FILES, **OTHERS} if told["abort"] else OTHERS), calls
    assert {"committed with it", "committed without it"} & seen


@pytest.mark.parametrize("commit_dies_too", [False, True])
@pytest.mark.parametrize("profile", ["local", "s3"])
async def test_an_abort_that_died(profile: str, commit_dies_too: bool) -> None:
    """An attempt is aborted once its record is deleted; a commit or a recovery brings back what was only moved."""
    number, seen = 0, set[bool]()
    store = FaultyStore(MemoryPlace(profile).space.store())
    while not number or store.crashed:
        number += 1
        place = MemoryPlace(profile)
        job = await place.open_job(job_id="job-1", delivery="listing")
        await place.run_task(job, 0, FILES)
        await place.run_task(job, 1, OTHERS)
        store = FaultyStore(place.space.store())
        driver = await committer.attach_job(job.spec, storage_options={"store": store})
        store.calls.clear()
        store.faults = [Fault(kind="crash_before", call=number)]
        with suppress(SimulatedCrash):
            await driver.abort_task(0, 0)
        if commit_dies_too:
            dying = FaultyStore(place.space.store(), [Fault(kind="crash_after", path="intent-")])
            with pytest.raises(SimulatedCrash):
                await (await committer.attach_job(job.spec, storage_options={"store": dying})).commit()
            await place.recover("job-1")
        else:
            await job.commit()
        assert place.files() in (OTHERS, {**FILES, **OTHERS}), number
        seen.add(place.files() == OTHERS)
    assert seen == {False, True}


@pytest.mark.parametrize("kind", ["unanswered", "lost", "forbidden", "crash_before", "crash_after"])
@pytest.mark.parametrize("profile", ["local", "gcs", "s3"])
async def test_a_fault_where_a_commit_puts_a_record_back(profile: str, kind: FaultKind) -> None:
    """An attempt whose abort died before it deleted the record is in the job, perhaps by a second commit."""
    number = 0
    hit = True
    while hit:
        number += 1
        place = MemoryPlace(profile)
        job = await place.open_job(job_id="job-1", delivery="listing")
        await place.run_task(job, 0, FILES)
        moves = "delete_file_if" if profile == "s3" else "rename_file"
        dying = FaultyStore(place.space.store(), [Fault(kind="crash_after", operation=moves, path="m_000000")])
        with pytest.raises(SimulatedCrash):
            await (await committer.attach_job(job.spec, storage_options={"store": dying})).abort_task(0, 0)
        store = FaultyStore(place.space.store())
        driver = await committer.attach_job(job.spec, storage_options={"store": store})
        store.calls.clear()
        store.faults = [Fault(kind=kind, call=number)]
        try:
            await driver.commit()
        except (SimulatedCrash, CommitterError):
            again = await place.attach_job("job-1")
            try:
                await again.commit()
            except JobStateError:
                await place.recover("job-1")
        hit = any(call.fault for call in store.calls[:RECORDS_READ])
        assert place.files() == FILES, number


@BOTH
@pytest.mark.parametrize("profile", ["gcs", "s3", "azure-flat"])
async def test_an_attempt_that_goes_on_after_its_abort_is_refused(delivery: Delivery, profile: str) -> None:
    """The abort took what there was then; what sorts before that was written later, and stands."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="job-1", delivery=delivery)
    task = await place.open_task(job.spec, 0)
    for name in ("written-first", "and-then"):
        await write_file(task, name, b"x")
        if name == "written-first":
            other = await place.attach_job("job-1")
            await other.abort_task(0, 0)
    message = await task.commit()
    with pytest.raises(PreflightError, match="its task attempt was aborted"):
        await job.commit([message] if delivery == "message" else None)
    assert place.files() == {}
    await job.abort()
    assert pending(place) == []


async def test_zombie_whose_look_at_the_job_comes_late_keeps_the_files_a_commit_counts_on() -> None:
    """Its record lands, the job is decided with it, and only then it learns that the job is decided."""
    place = MemoryPlace("gcs")
    job = await place.open_job(job_id="job-1")
    store = FaultyStore(place.space.store())
    task = await committer.open_task(job.spec, task=0, storage_options={"store": store})
    for name, data in FILES.items():
        await write_file(task, name, data)

    async def before(call: Call) -> None:
        if call.operation != "list":
            return
        while not [name for name in place.all_files() if name.endswith("manifest.json")]:
            await asyncio.sleep(0)
        place.faults(Fault(kind="forbidden", operation="rename_file", path="part-1"))
        with pytest.raises(CommitterError):
            await job.commit()
        store.before_call = None

    store.before_call = before
    with pytest.raises(JobDecidedError) as caught:
        async with task:
            pass
    assert caught.value.outcome == "unknown"
    assert any("may have committed" in note for note in caught.value.__notes__)
    with pytest.raises(JobDecidedError):
        await task.abort()
    report = await place.recover("job-1")
    assert report.files_committed == 2
    assert place.files() == FILES


async def test_failed_look_beside_a_saved_record_does_not_take_another_attempts_place(memory: MemoryPlace) -> None:
    """Attempt 1 replaced attempt 0's record; taking it away would lose the task."""
    job = await memory.open_job(job_id="job-1")
    await memory.run_task(job, 0, {"part-0": b"zero"}, attempt=0)
    task = await memory.open_task(job.spec, 0, 1)
    await write_file(task, "part-0", b"one")
    memory.faults(Fault(kind="forbidden", operation="status", path=lambda path: path == task.directory))

    async def save_first(call: Call) -> None:
        if call.operation == "status":
            for _turn in range(5):
                await asyncio.sleep(0)

    memory.store.before_call = save_first
    with pytest.raises(CommitterError) as caught:
        async with task:
            pass
    memory.store.before_call = None
    assert caught.value.outcome == "unknown"
    report = await job.commit(tasks=1)
    assert report.files_committed == 1
    assert memory.files() == {"part-0": b"one"}


async def test_cancelled_task_commit_does_not_take_another_attempts_place(memory: MemoryPlace) -> None:
    job = await memory.open_job(job_id="job-1")
    await memory.run_task(job, 0, {"part-0": b"zero"}, attempt=0)
    reached = asyncio.Event()

    async def hold(call: Call) -> None:
        if call.operation == "status" and reached_task:
            reached.set()
            await asyncio.Event().wait()

    reached_task: list[bool] = []

    async def second() -> None:
        async with memory.open_task(job.spec, 0, 1) as task:
            await write_file(task, "part-0", b"one")
            reached_task.append(True)

    memory.store.before_call = hold
    running = asyncio.create_task(second())
    await reached.wait()
    for _turn in range(10):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    memory.store.before_call = None
    await job.commit(tasks=1)
    assert memory.files() in ({"part-0": b"zero"}, {"part-0": b"one"})


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("place", ["adls", "gcs"], indirect=True)
async def test_job_that_was_cleaned_up_does_not_live_again_by_a_setup_that_arrives_late(
    place: Place, delivery: Delivery, joined: bool
) -> None:
    job = await place.open_job(job_id="job-1", delivery=delivery)
    driver = await place.attach_job("job-1") if joined else job
    name = in_job(place, "job-1")
    setup = place.read(f"{name}/setup")
    await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
    assert place.all_files() == {}
    place.write(f"{name}/setup", setup)
    message = await place.run_task(job, 0, {"part-0": b"x"})
    with pytest.raises(JobNotFoundError) as caught:
        await driver.commit([message], tasks=1)
    assert caught.value.outcome == "unchanged"
    assert place.files() == {}
    assert not {"_SUCCESS", f"{name}/decision"} & set(place.all_files())
    await driver.abort()
    assert place.all_files() == {}
