"""What arrives late, after its driver died or its job was cleaned up, is no job, blocks none and decides nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import committer
from committer import CommitterConfig, JobSpec, TaskCommit
from committer.api.cleanup import Cleaning, clean_directory
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError
from committer.layout import DirectoryName
from committer.paths import StorePath
from committer.stages.load import load_records, planned_files
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.api.test_forced_cleanup import revive
from tests.job_paths import entries_at
from tests.places import Delivery, MemoryPlace, Place, write_file

FILES = {"a=1/part-0": b"x"}
BOTH = pytest.mark.parametrize("delivery", ["listing", "message"])


async def kept_while_committing(
    place: Place, job: committer.Job, ending: str, messages: list[TaskCommit] | None = None
) -> bytes:
    """Commits a job; the record of that name which stood meanwhile, as a late request would bring it back."""
    kept = b""

    async def before(call: Call) -> None:
        nonlocal kept
        for name, data in place.all_files().items():
            if ending in name:
                kept = data

    place.store.before_call = before
    await job.commit(messages)
    place.store.before_call = None
    assert kept
    return kept


@BOTH
@pytest.mark.parametrize("stop", ["decision", "part-0"])
async def test_record_frozen_before_it_was_sent_again(memory: MemoryPlace, delivery: Delivery, stop: str) -> None:
    """Its answer was lost, and a job commit counts the record: the task may not delete what it speaks of."""
    job = await memory.open_job(job_id="j", delivery=delivery)
    executor = FaultyStore(memory.space.store(), [Fault(kind="lost", operation="put", path="manifest.json")])
    again, over = asyncio.Event(), asyncio.Event()

    async def before_put(call: Call) -> None:
        if call.operation == "put" and executor.counts()["put"] == 2:
            again.set()
            await over.wait()

    executor.before_call = before_put

    async def run() -> CommitterError | None:
        try:
            async with committer.open_task(job.spec, task=0, storage_options={"store": executor}) as task:
                await write_file(task, "a=1/part-0", b"x")
        except CommitterError as error:
            return error
        return None

    running = asyncio.create_task(run())
    await again.wait()
    driver = FaultyStore(memory.space.store())

    async def before(call: Call) -> None:
        if not over.is_set() and stop in (call.path.name, call.destination and call.destination.name):
            over.set()
            await asyncio.wait({running})

    driver.before_call = before
    messages = None
    if delivery == "message":
        messages = [await job.recover_task(0, 0)]
    async with committer.attach_job(job.spec, storage_options={"store": driver}) as other:
        report = await other.commit(messages)
    assert report.files_committed == 1
    error = await running
    assert error is None or error.outcome == "unknown"
    assert memory.files() == {"a=1/part-0": b"x"}


@BOTH
@pytest.mark.parametrize("by", ["recover", "cleanup"])
async def test_records_after_the_removal_speak_of_nothing(flat: MemoryPlace, delivery: Delivery, by: str) -> None:
    """Where directories are not real nothing refuses a delayed request, nor a task that outlives its job."""
    job = await flat.open_job(job_id="j", delivery=delivery)
    message = await flat.run_task(job, 0, FILES)
    layout = job.spec.layout
    directory = layout.job_directory.relative_to(layout.destination)
    kept = await kept_while_committing(flat, job, f"{directory}/decision", [message])
    records = "manifests" if delivery == "listing" else "attempts"
    flat.write(f"{directory}/00/{records}/of-a-late-task-manifest.json", b"late")
    flat.write(f"{directory}/decision", kept)
    assert await flat.states() == {"j": "unknown"}
    if by == "recover":
        assert (await flat.recover("j")).success
    else:
        report = await committer.cleanup(flat.dest, job_id="j", storage_options=flat.options)
        assert report.removed == ["j"]
    assert flat.files() == FILES
    assert flat.temporary() == set()


async def test_decision_about_a_job_of_hadoops_stands_without_setup_record(flat: MemoryPlace) -> None:
    flat.write("_temporary/job_202601010000_0001/00/manifests/.keep", b"")
    spec = JobSpec.for_hadoop(flat.dest, "job_202601010000_0001")
    await flat.run_task(spec, 0, FILES)
    flat.faults(Fault(kind="forbidden", operation="rename_file", path=lambda path: path.name == "part-0"))
    async with committer.attach_job(spec, storage_options=flat.options) as job:
        with pytest.raises(CommitterError):
            await job.commit(tasks=1)
    flat.store.faults.clear()
    with pytest.raises(JobDecidedError):
        await committer.cleanup(flat.dest, job_id=spec.job_id, storage_options=flat.options)
    assert (await flat.recover(spec.job_id)).files_committed == 1
    assert flat.files() == FILES


async def test_late_driver_puts_back_what_it_moved_aside_of_a_job_that_was_rolled_back(flat: MemoryPlace) -> None:
    """It could not be fenced off, and finds its job gone."""
    await flat.run_job({"a=1/old": b"old"}, job_id="before")
    before = flat.all_files()
    job = await flat.open_job(job_id="j", config=CommitterConfig(conflict_mode="replace", io_concurrency=1))
    await flat.run_task(job, 0, FILES)
    store = FaultyStore(flat.space.store())
    late = await committer.attach_job(job.spec, storage_options={"store": store})
    rolled_back = False

    async def before_call(call: Call) -> None:
        nonlocal rolled_back
        if call.operation == "rename_file" and call.path.name == "_SUCCESS" and not rolled_back:
            rolled_back = True
            await flat.recover("j", rollback=True, force=True)

    store.before_call = before_call
    with pytest.raises(CommitterError):
        await late.commit()
    assert rolled_back
    assert flat.all_files() == before


async def test_what_a_zombie_writes_after_the_cleanup_is_no_job(flat: MemoryPlace) -> None:
    """Where directories are not real nothing refuses it, and it looks as if Hadoop had set a job up."""
    job = await flat.open_job(job_id="j")
    zombie = await flat.open_task(job.spec, 0)
    driver = await flat.attach_job("j")
    await job.abort()
    await write_file(zombie, "part-0", b"x")
    assert flat.temporary()
    with pytest.raises(JobNotFoundError):
        await flat.attach_job("j")
    with pytest.raises(JobNotFoundError):
        await driver.commit()
    assert await flat.states() == {"j": "unknown"}
    with pytest.raises(JobNotFoundError):
        await flat.recover("j", force=True)
    assert flat.all_files() == {}


async def test_a_task_whose_job_ends_before_its_last_check_does_not_say_that_nothing_happened(
    memory: MemoryPlace,
) -> None:
    """The driver publishes its record as soon as that stands; what looks for the job beside the save comes later."""
    job = await memory.open_job(job_id="j", delivery="listing")
    executor = FaultyStore(memory.space.store())
    over = asyncio.Event()

    async def before(call: Call) -> None:
        if call.operation == "status" and call.path.name.startswith("attempt_"):
            await over.wait()

    executor.before_call = before

    async def run() -> None:
        async with committer.open_task(job.spec, task=0, storage_options={"store": executor}) as task:
            await write_file(task, "a=1/part-0", b"x")

    running = asyncio.create_task(run())
    while not any(name.endswith("-manifest.json") for name in memory.all_files()):
        await asyncio.sleep(0)
    await job.commit()
    over.set()
    with pytest.raises(JobNotFoundError) as caught:
        await running
    assert caught.value.outcome == "unknown"
    assert memory.files() == FILES


async def test_intent_that_arrived_after_a_cleanup_blocks_no_job(flat: MemoryPlace) -> None:
    job = await flat.open_job(job_id="j")
    layout = job.spec.layout
    directory = layout.job_directory.relative_to(layout.destination)
    kept = await kept_while_committing(flat, job, f"{directory}/intent-")
    flat.write(f"{directory}/intent-0123456789ab", kept)
    await flat.run_job(FILES, config=CommitterConfig(conflict_mode="replace"))
    assert flat.files() == FILES
    with pytest.raises(JobNotFoundError):
        await flat.recover("j")


@pytest.mark.parametrize("profile", ["adls", "gcs", "s3"])
async def test_a_setup_record_and_a_decision_that_come_when_their_job_is_over_are_removed(profile: str) -> None:
    """No driver opened that directory, so its records have no effect."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="j")
    came: dict[str, bytes] = {}

    async def before(call: Call) -> None:
        for name, data in place.all_files().items():
            if name.endswith(("/setup", "/decision")) and ".removed/" not in name:
                came[name] = data

    place.store.before_call = before
    await job.abort()
    place.store.before_call = None
    assert len(came) == 2
    for name, data in came.items():
        place.write(name, data)
    await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
    assert place.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
async def test_a_cleanup_of_a_directory_being_made_leaves_the_entry_of_its_job(profile: str) -> None:
    """The cleanup is slow after its listing. Without the entry a replacing job would not detect the other job."""
    place = MemoryPlace(profile)
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    place.faults(Fault(kind="crash_after", operation="put", path="/decision"))
    with pytest.raises(SimulatedCrash):
        await job.commit()
    place.store.crashed = False
    entries = entries_at(place, "j")
    assert entries
    name, asked = DirectoryName("j", place.layout("j").setup_name, ".new"), Cleaning(None, force=False, dry=False)
    with suppress(CommitterError):
        await clean_directory(place.store.inner, StorePath.of(place.dest), name, CommitterConfig(), asked, [])
    assert entries_at(place, "j") == entries
    assert (await place.recover("j")).success


# -- a job by listing rests on copies of what was listed: what tasks commit later changes nothing -----------------------


FIRST = {"a/part-0": b"0"}
MANY = [{f"a/part-{task}": b"x"} for task in range(5)]


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
async def test_what_tasks_commit_while_their_job_commits_is_not_part_of_it(place: Place, dies: bool) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FIRST)
    again, late = await place.open_task(job.spec, task=0, attempt=1), await place.open_task(job.spec, task=1)
    for attempt, name in ((again, "a/part-0"), (late, "a/late")):
        await write_file(attempt, name, b"late")

    async def commit_late(call: Call) -> None:
        if call.operation == "put" and call.path.name == "decision":
            place.store.before_call = None
            await again.commit()
            await late.commit()

    place.store.before_call = commit_late
    if dies:
        place.faults(Fault(kind="crash_after", operation="put", path="/decision"))
        with pytest.raises(SimulatedCrash):
            await job.commit()
        revive(place)
        assert (await place.recover("j")).files_committed == 1
    else:
        assert (await job.commit()).files_committed == 1
    assert place.store.before_call is None
    assert place.files() == FIRST
    assert place.temporary() == set()


async def test_a_recovery_reads_the_copies_of_many_records(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some side files hold several records, and the last one the rest."""
    job = await place.open_job(job_id="j")
    lengths = [(await place.run_task(job, number, files)).length for number, files in enumerate(MANY)]
    monkeypatch.setattr(load_records, "BYTES_OF_COPIES", sum(lengths) // 2)
    monkeypatch.setattr(planned_files, "BYTES_IN_A_RUN", lengths[0])
    place.faults(Fault(kind="crash_after", operation="put", path="/decision"))
    with pytest.raises(SimulatedCrash):
        await job.commit()
    revive(place)
    assert 1 < len([name for name in place.all_files() if "/plan-" in name]) < len(MANY)
    assert (await place.recover("j")).files_committed == len(MANY)
    assert place.files() == {name: data for files in MANY for name, data in files.items()}
