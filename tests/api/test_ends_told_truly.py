"""What a driver, an operator or a task is told about a job is how it really ended, also beside others at work."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, ConfigurationError, JobStateError, RecordError
from committer.paths import StorePath
from committer.stages.remove.removal import CleanupJob
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore
from tests.job_paths import in_job
from tests.places import MemoryPlace, Place, make_place

FILES = {"a=1/part-0": b"x"}


async def test_abort_of_complete_output_changes_no_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    with monkeypatch.context() as patch:

        async def refuse(self: CleanupJob, value: None) -> None:
            raise CommitterError("cleanup failed")

        patch.setattr(CleanupJob, "execute", refuse)
        with pytest.raises(CommitterError) as caught:
            await job.commit()
    assert caught.value.outcome == "committed"
    await job.abort()
    report = await job.commit()
    assert report.success
    assert place.files() == FILES


@pytest.mark.parametrize("cleaned", [True, False])
async def test_rollback_of_a_job_that_is_committed_meanwhile(place: Place, cleaned: bool) -> None:
    """It was undecided when the operator looked; it must not be taken for rolled back, and run again."""
    job = await place.open_job(job_id="j", config=CommitterConfig(cleanup_skipped=not cleaned))
    await place.run_task(job, 0, FILES)
    operator = FaultyStore(place.store.inner)
    committed = False

    async def before(call: Call) -> None:
        nonlocal committed
        if call.operation == "put" and call.path.name == "decision" and not committed:
            committed = True
            await job.commit()

    operator.before_call = before
    try:
        report = await committer.recover(place.dest, "j", rollback=True, storage_options={"store": operator})
    except JobStateError as error:
        assert error.outcome == "committed"
    else:
        assert report.success
    assert committed
    assert place.files() == FILES


async def test_ignored_cleanup_failure_leaves_the_fate_of_the_job(place: Place) -> None:
    job = await place.open_job(job_id="j", config=CommitterConfig(cleanup_failures_ignored=True))
    await place.run_task(job, 0, FILES)
    place.faults(Fault(kind="forbidden", operation="delete_directory", times=None))
    place.faults(Fault(kind="forbidden", operation="delete_file", path="manifest.json", times=None))
    assert (await job.commit()).success
    place.store.faults.clear()
    (found,) = await committer.list_jobs(place.dest, storage_options=place.options)
    assert found.state in ("committed", "unknown")
    assert (await place.recover("j")).success
    assert place.files() == FILES
    assert place.temporary() == set()


async def test_abort_of_what_a_dying_cleanup_leaves_decides_nothing(place: Place) -> None:
    """Only the last directories are left of a committed job; it must not be found as an aborted one."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    other = FaultyStore(place.store.inner, [Fault(kind="crash_after", operation="put", path="decision")])
    late = await committer.attach_job(place.dest, job_id="j", storage_options={"store": other})
    aborted = False

    async def before(call: Call) -> None:
        nonlocal aborted
        if (
            call.operation == "delete_directory"
            and call.path in (job.spec.layout.job_directory, job.spec.layout.removed)
            and not aborted
        ):
            aborted = True
            await late.abort()
            assert other.count("put") == 0

    place.store.before_call = before
    try:
        report = await job.commit()
    finally:
        place.store.before_call = None
    assert report.success
    assert aborted
    assert place.temporary() == set()


async def test_cancelled_again_while_it_aborts(memory: MemoryPlace) -> None:
    """A second cancellation does not stop the abort that the first one set off."""
    entered = asyncio.Event()

    async def work() -> None:
        async with memory.open_job(job_id="j") as job:
            await memory.run_task(job, 0, FILES)
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    cancelled = 0

    async def before(call: Call) -> None:
        nonlocal cancelled
        cancelled += 1
        task.cancel()

    memory.store.before_call = before
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    memory.store.before_call = None
    assert cancelled > 3
    assert memory.all_files() == {}
    assert memory.temporary() == set()


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls", "gcs"])
@pytest.mark.parametrize("identity", [True, False])
async def test_replacing_under_another_spelling_on_a_store_that_folds_names(profile: str, identity: bool) -> None:
    place = MemoryPlace(profile, case_folding=True, identity=identity)
    place.write("a=1/P.csv", b"old")
    place.write("a=1/other.csv", b"old")
    config = CommitterConfig(conflict_mode="replace", existing_target="replace")
    await place.run_job({"a=1/p.csv": b"new"}, config=config)
    assert {name.lower(): data for name, data in place.files().items()} == {"a=1/p.csv": b"new"}


async def test_jobs_at_once_into_an_empty_destination_do_not_disown_each_other(place: Place) -> None:
    async def one(number: int) -> None:
        await place.run_job({f"a={number}/part": b"x"}, job_id=f"j{number}")

    await asyncio.gather(*(one(number) for number in range(3)))
    report = await committer.validate(place.dest, storage_options=place.options)
    assert report.ok, report


async def test_other_committers_directories_are_left_alone(place: Place) -> None:
    """The classic file output committer works in `_temporary/0`."""
    place.write("_temporary/0/_temporary/attempt_1_0001_m_000000_0/part-0", b"running")
    place.write("_temporary/0/task_1_0001_m_000001/part-1", b"done")
    before = place.all_files()
    (found,) = await committer.list_jobs(place.dest, storage_options=place.options)
    assert found.state == "unknown"
    for chosen in ({"older_than": 0}, {"job_id": "0"}):
        report = await committer.cleanup(place.dest, storage_options=place.options, **chosen)  # type: ignore[arg-type]
        assert report.removed == []
        assert "another committer" in report.kept["0"]
        assert place.all_files() == before
    report = await committer.cleanup(place.dest, job_id="0", force=True, storage_options=place.options)
    assert report.removed == ["0"]
    assert place.all_files() == {}


@pytest.mark.parametrize("what", ["list_jobs", "validate", "recover", "load_record", "cleanup"])
async def test_what_operators_call_outlasts_a_throttled_store(memory: MemoryPlace, what: str) -> None:
    await memory.run_job(FILES, job_id="j", config=CommitterConfig(cleanup_skipped=True))
    memory.faults(Fault(kind="throttled"))
    options = memory.options
    if what == "list_jobs":
        assert len(await committer.list_jobs(memory.dest, storage_options=options)) == 1
    elif what == "validate":
        assert (await committer.validate(memory.dest, storage_options=options)).ok
    elif what == "recover":
        assert (await committer.recover(memory.dest, "j", storage_options=options)).success
    elif what == "load_record":
        record = await committer.load_record(f"{memory.dest}/_SUCCESS", storage_options=options)
        assert record.jobId == "j"  # type: ignore[union-attr]
    else:
        assert (await committer.cleanup(memory.dest, job_id="j", storage_options=options)).removed == ["j"]
    assert [call.fault for call in memory.store.calls].count("throttled") == 1


async def test_uri_of_a_record_is_read_as_records_spell_it(place: Place) -> None:
    dest = f"{place.dest} 100%"
    async with committer.open_job(dest, job_id="j", storage_options=place.options) as job:
        async with job.task_attempt(0) as task:
            pass
        record = await committer.load_record(task.task_commit.record, storage_options=place.options)
        assert record.taskID == job.spec.layout.task_id(0)  # type: ignore[union-attr]
        assert job.spec.layout.destination.name.endswith(" 100%")


@pytest.mark.parametrize("below", ["", "/reports", "/_temporary/reports"])
async def test_reports_among_the_output_are_refused(place: Place, below: str) -> None:
    for name in ("summary_report_directory", "diagnostics_manifest_directory"):
        config = CommitterConfig(**{name: f"{place.dest}{below}"})
        with pytest.raises(ConfigurationError, match=name):
            await place.open_job(config=config)
    assert place.temporary() == set()


async def test_a_directory_in_the_place_of_a_decision_is_one_jobs_trouble(place: Place) -> None:
    await place.open_job(job_id="damaged")
    await place.open_job(job_id="fine")
    place.write(in_job(place, "damaged", "decision/x"), b"\0junk")
    if place.store.capabilities.directories:
        assert await place.states() == {"damaged": "unknown", "fine": "open"}
        with pytest.raises(CommitterError):
            await place.recover("damaged")
        report = await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
        assert (report.removed, report.kept.keys()) == (["fine"], {"damaged"})
    report = await committer.cleanup(place.dest, job_id="damaged", force=True, storage_options=place.options)
    assert report.removed == ["damaged"]
    await place.run_job(FILES, config=CommitterConfig(conflict_mode="replace"))
    assert place.files() == FILES


async def test_record_of_another_job_is_refused(place: Place) -> None:
    async with place.open_job(job_id="theirs") as theirs:
        await place.run_task(theirs, 0, FILES)
        of_theirs = in_job(place, "theirs")
        record = place.read(in_job(place, "theirs", f"00/manifests/{theirs.spec.layout.task_id(0)}-manifest.json"))
    job = await place.open_job(job_id="ours")
    stolen = record.replace(of_theirs.encode(), in_job(place, "ours").encode())
    place.write(in_job(place, "ours", "00/manifests/task_x-manifest.json"), stolen)
    with pytest.raises(RecordError, match="one of job theirs") as caught:
        await job.commit()
    assert caught.value.field == "jobId"


async def test_recovered_job_reports_what_its_tasks_counted(place: Place) -> None:
    """G7: whichever driver finishes it, the report is as of one undisturbed run."""
    job = await place.open_job(job_id="j")
    for number in range(3):
        await place.run_task(job, number, {f"part-{number}": b"x"})
    place.faults(Fault(kind="forbidden", operation="rename_file", path="part-1"))
    with pytest.raises(CommitterError):
        await job.commit()
    report = await place.recover("j")
    assert report.statistics.counters["committer_tasks_completed"] == 3
    assert report.statistics.counters["committer_files_committed"] == 3


@pytest.mark.parametrize("profile", ["local", "gcs"])
@pytest.mark.parametrize("kind", ["lost", "unanswered"])
async def test_claim_without_an_answer_leaves_the_id_free(profile: str, kind: FaultKind) -> None:
    undisturbed = MemoryPlace(profile)
    await _open_and_close(undisturbed)
    for number in range(1, len(undisturbed.store.calls) + 1):
        place = MemoryPlace(profile)
        place.faults(Fault(kind=kind, call=number))
        try:
            await _open_and_close(place)
        except CommitterError:
            # Lost answers are looked into, but for those of the probe's calls.
            assert place.temporary() == set(), number
            await _open_and_close(place)


async def _open_and_close(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await job.close()


async def test_jobs_that_open_while_others_end(tmp_path: Path) -> None:
    """`_temporary` goes with the last job in it, at any moment of another one's setup."""
    place = make_place("disk", tmp_path)

    async def jobs(name: str) -> None:
        for number in range(25):
            async with committer.open_job(place.dest, job_id=f"{name}-{number}"):
                pass

    await asyncio.gather(*(jobs(name) for name in "abc"))
    assert place.temporary() == set()


async def test_block_of_a_job_that_was_aborted_ends_quietly_though_an_operator_cleaned_it_up(place: Place) -> None:
    async with place.open_job(job_id="j") as job:
        await place.run_task(job, 0, FILES)
        await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
        await job.abort()
    assert job.report is None
    assert place.all_files() == {}


async def test_old_file_whose_place_aside_is_taken_is_no_success(tmp_path: Path) -> None:
    """Else an overwrite would keep old rows, and call itself whole."""
    place = make_place("disk", tmp_path)
    place.write("a=1/old", b"old")
    job = await place.open_job(job_id="j", config=CommitterConfig(conflict_mode="replace"))
    await place.run_task(job, 0, FILES)
    place.write(in_job(place, "j", f"{job.spec.layout.work.name}/superseded/00000000"), b"another job's")
    with pytest.raises(JobStateError, match="taken by something else") as caught:
        await job.commit()
    assert caught.value.outcome == "partial"
    await job.close()
    aside = Path(caught.value.path.removeprefix("file:"))
    assert str(aside) in caught.value.next_step
    aside.unlink()
    assert (await place.recover("j")).success
    assert place.files() == FILES


async def test_job_that_vanished_while_it_was_published_is_never_told_unchanged(tmp_path: Path) -> None:
    place = make_place("disk", tmp_path)
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)

    async def before(call: Call) -> None:
        if call.operation == "put" and call.path.name == "outcome" and not place.store.faults:
            await asyncio.to_thread(shutil.rmtree, StorePath.of(place.dest).path + "/_temporary")
            place.faults(Fault(kind="forbidden", operation="read", path="_SUCCESS", times=None))

    place.store.before_call = before
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert place.files() == FILES
    assert caught.value.outcome == "unknown"
    assert "committer.recover(" in caught.value.next_step
