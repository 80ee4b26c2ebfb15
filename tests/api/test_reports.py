"""Reports: `_SUCCESS`, the summary report on any store and on failure, records kept for diagnostics."""

from __future__ import annotations

import asyncio
import getpass
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from committer import CommitterConfig
from committer.committers import opened_store
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobNotFoundError,
    JobRolledBackError,
    PreflightError,
    TargetExistsError,
    TaskMissingError,
)
from committer.events import names
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest
from committer.records.success import SUCCESS_NAME, SuccessData, decode_success
from committer.stores.base import Store
from committer.stores.memory import MemorySpace, MemoryStore
from committer.stores.registry import find_store as registry_find_store
from committer.testing.faults import Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.job_paths import in_job
from tests.places import Place

_numbers = count()


@pytest.fixture
def elsewhere() -> MemorySpace:
    """Another store."""
    return MemoryStore.space(f"reports-{next(_numbers)}")


def reporting(space: MemorySpace, **more: object) -> CommitterConfig:
    return CommitterConfig(summary_report_directory=f"memory://{space.name}/reports", **more)  # type: ignore[arg-type]


def summary(space: MemorySpace, job_id: str) -> SuccessData:
    return decode_success(space.files()[f"/reports/summary-{job_id}.json"], source="summary")


async def test_success_says_what_happened(place: Place) -> None:
    report = await place.run_job({"a=1/part-0": b"abc"}, {"a=1/b=2/part-1": b"de"}, {}, job_id="job_20260101_0001")
    marker = decode_success(place.read("_SUCCESS"), source="")
    assert (marker.name, marker.success, marker.jobId, marker.jobIdSource) == (
        SUCCESS_NAME, True, "job_20260101_0001", "JobID",
    )  # fmt: skip
    assert marker.diagnostics["principal"] == getpass.getuser()
    counters = marker.statistics().counters
    assert counters[names.COMMITTER_FILES_COMMITTED] == 2
    assert counters[names.COMMITTER_BYTES_COMMITTED] == 5
    assert counters[names.COMMITTER_TASKS_COMPLETED] == 3
    assert counters[names.COMMITTER_TASK_FILE_COUNT] == 2
    destination = place.layout("job").destination
    assert sorted(zip(marker.filenames, marker.lengths or [], strict=True)) == [
        ((destination / "a=1/b=2/part-1").uri, 2),
        ((destination / "a=1/part-0").uri, 3),
    ]
    assert report.statistics.counters[names.COMMITTER_TASKS_COMPLETED] == 3


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_statistics_of_tasks_are_counted_once(place: Place, delivery: str) -> None:
    """Also where the commit has to look twice because it replaces files after all."""
    place.write("part-0", b"old")
    async with place.open_job(delivery=delivery, config=CommitterConfig(existing_target="replace")) as job:
        messages = [await place.run_task(job, number, {f"part-{number}": b"new"}) for number in range(3)]
        report = await job.commit(messages if delivery == "message" else None)
    counters = report.statistics.counters
    assert counters[names.COMMITTER_TASKS_COMPLETED] == 3
    assert counters[names.COMMITTER_TASK_FILE_COUNT] == 3
    assert counters[names.COMMITTER_FILES_COMMITTED] == 3
    assert counters[names.COMMITTER_BYTES_COMMITTED] == 9


async def test_no_marker_when_it_is_off(place: Place) -> None:
    off = CommitterConfig(mark_successful_jobs=False)
    await place.run_job({"part-0": b"x"}, config=off)
    assert "_SUCCESS" not in place.all_files()
    place.write("_SUCCESS", b"an old one is left alone")
    await place.run_job({"part-1": b"x"}, config=off)
    assert place.read("_SUCCESS") == b"an old one is left alone"
    assert sorted(place.files()) == ["part-0", "part-1"]


async def test_a_summary_of_its_own_speaks_for_a_job_that_failed_before_the_success_of_a_later_setup(
    place: Place, elsewhere: MemorySpace
) -> None:
    """Both have one id: the marker is of the later one, and says nothing of the other."""
    first = await place.open_job(job_id="job-1", config=reporting(elsewhere))
    await place.run_task(first, 0, {"same": b"x"})
    await place.run_task(first, 1, {"same": b"x"})
    async with place.attach_job("job-1", config=reporting(elsewhere)) as slow:
        with pytest.raises(PreflightError):
            await first.commit()
        await first.abort()
        await place.run_job({"part-0": b"y"}, job_id="job-1")
        with pytest.raises(JobRolledBackError):
            await slow.commit()


@pytest.mark.parametrize("where", ["another store", "the output's store", "a disk"])
async def test_where_a_summary_goes(place: Place, elsewhere: MemorySpace, tmp_path: Path, where: str) -> None:
    config = reporting(elsewhere)
    if where != "another store":
        directory = f"{place.dest}/_reports/deep" if where == "the output's store" else str(tmp_path / "r")
        config = CommitterConfig(summary_report_directory=directory)
    await place.run_job({"part-0": b"x"}, job_id="job-1", config=config)
    if where == "another store":
        found = summary(elsewhere, "job-1")
    else:
        name = "summary-job-1.json"
        data = (tmp_path / "r" / name).read_bytes() if where == "a disk" else place.read(f"_reports/deep/{name}")
        found = decode_success(data, source="")
    assert (found.success, found.jobId) == (True, "job-1")
    assert len(found.filenames) == 1
    assert found.statistics().counters[names.COMMITTER_FILES_COMMITTED] == 1


async def test_summary_of_a_refused_commit(place: Place, elsewhere: MemorySpace) -> None:
    job = await place.open_job(job_id="job-1", config=reporting(elsewhere))
    await place.run_task(job, 0, {"same": b"x"})
    await place.run_task(job, 1, {"same": b"x"})
    with pytest.raises(PreflightError):
        await job.commit()
    found = summary(elsewhere, "job-1")
    assert not found.success
    assert "PreflightError" in found.diagnostics["exception"]
    assert "Traceback" in found.diagnostics["stacktrace"]
    assert found.diagnostics["stage"] == "job_stage_preflight"
    # An abort must not hide why the commit failed.
    await job.abort()
    assert "PreflightError" in summary(elsewhere, "job-1").diagnostics["exception"]


async def test_summary_of_every_failure(place: Place, elsewhere: MemorySpace) -> None:
    job = await place.open_job(job_id="missing", config=reporting(elsewhere))
    with pytest.raises(TaskMissingError):
        await job.commit(tasks=1)
    assert "TaskMissingError" in summary(elsewhere, "missing").diagnostics["exception"]
    await job.abort()

    place.write("there", b"old")
    with pytest.raises(TargetExistsError):
        await place.run_job({"there": b"new"}, job_id="target", config=reporting(elsewhere))
    assert "TargetExistsError" in summary(elsewhere, "target").diagnostics["exception"]

    by_files = reporting(elsewhere).replace(promote_directories=False)
    job = await place.open_job(job_id="half", config=by_files)
    await place.run_task(job, 0, {f"half/part-{number}": b"x" for number in range(5)})
    place.faults(Fault(kind="forbidden", operation="rename_file", path="half/part-2"))
    with pytest.raises(CommitterError):
        await job.commit()
    found = summary(elsewhere, "half")
    assert (found.success, found.diagnostics["stage"]) == (False, "job_stage_rename_files")
    await place.recover("half", config=reporting(elsewhere))
    assert summary(elsewhere, "half").success


async def test_summary_of_a_cancelled_commit(place: Place, elsewhere: MemorySpace) -> None:
    job = await place.open_job(job_id="job-1", config=reporting(elsewhere))
    await place.run_task(job, 0, {f"part-{number}": b"x" for number in range(5)})
    reached = asyncio.Event()

    async def hold(call: object) -> None:
        if getattr(call, "operation", "") == "rename_file" and "part-" in str(getattr(call, "path", "")):
            reached.set()
            await asyncio.Event().wait()

    place.store.before_call = hold
    running = asyncio.create_task(job.commit())
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    place.store.before_call = None
    assert "CancelledError" in summary(elsewhere, "job-1").diagnostics["exception"]
    await place.recover("job-1")
    assert len(place.files()) == 5


async def test_summary_that_cannot_be_saved_breaks_nothing(
    place: Place, elsewhere: MemorySpace, caplog: pytest.LogCaptureFixture
) -> None:
    """The directory was writable when the job was set up."""
    job = await place.open_job(config=reporting(elsewhere))
    message = await place.run_task(job, 0, {"part-0": b"x"})
    await elsewhere.store().delete_directory(elsewhere.path("reports"), recursive=True)
    elsewhere.write("/reports", b"a file exists where the directory goes")
    await job.commit([message] if job.spec.delivery == "message" else None, tasks=1)
    assert place.files() == {"part-0": b"x"}
    assert "summary" in caplog.text


@pytest.mark.parametrize("field", ["summary_report_directory", "file_list_directory"])
@pytest.mark.parametrize("where", ["a file", "below a file", "no store", "no credentials", "no path", "closed"])
async def test_a_place_of_reports_that_cannot_be_written_is_refused(
    place: Place, elsewhere: MemorySpace, monkeypatch: pytest.MonkeyPatch, where: str, field: str
) -> None:
    elsewhere.write("/taken", b"a file exists where the directory goes")
    store = FaultyStore(elsewhere.store(), [Fault(kind="forbidden", operation="put", times=None)])

    async def find_store(path: StorePath, options: object = None) -> Store:
        return store if path.path == "/closed" else await registry_find_store(path, None)

    monkeypatch.setattr(opened_store, "find_store", find_store)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    text = {
        "a file": f"memory://{elsewhere.name}/taken",
        "below a file": f"memory://{elsewhere.name}/taken/reports",
        "no store": "nostore://x/y",
        "no credentials": "s3://bucket/reports",
        "no path": "s3:reports",
        "closed": f"memory://{elsewhere.name}/closed",
    }[where]
    with pytest.raises(ConfigurationError, match="cannot be written to") as caught:
        await place.open_job(job_id="job-1", config=CommitterConfig(**{field: text}))
    assert (caught.value.outcome, field in str(caught.value)) == ("unchanged", True)
    assert f"leave {field} out" in caught.value.next_step
    assert place.all_files() == {}
    assert place.temporary() == set()


@pytest.mark.parametrize("kind", ["crash_before", "crash_after", "lost_after"])
@pytest.mark.parametrize("operation", ["put", "delete_file"])
async def test_the_trial_of_a_place_of_reports_stops_no_later_job(
    place: Place, elsewhere: MemorySpace, monkeypatch: pytest.MonkeyPatch, kind: FaultKind, operation: str
) -> None:
    faults = [Fault(kind=kind, operation=operation)]

    async def find_store(path: StorePath, options: object = None) -> Store:
        return FaultyStore(elsewhere.store(), faults)

    with monkeypatch.context() as patched:
        patched.setattr(opened_store, "find_store", find_store)
        with suppress(SimulatedCrash):
            await place.open_job(job_id="job-1", config=reporting(elsewhere))
    await place.run_job({"part-0": b"x"}, job_id="job-2", config=reporting(elsewhere))
    assert summary(elsewhere, "job-2").success
    assert len(elsewhere.files()) <= 2


async def test_summary_answers_for_a_job_that_is_long_gone(place: Place, elsewhere: MemorySpace) -> None:
    config = reporting(elsewhere)
    first = await place.run_job({"part-0": b"abc", "d/part-1": b""}, job_id="job-1", config=config)
    await place.run_job({"part-2": b"x"}, job_id="job-2", config=config)
    with pytest.raises(JobNotFoundError):
        await place.recover("job-1")
    again = await place.recover("job-1", config=config)
    assert (again.success, again.files_committed, again.bytes_committed, again.directories_created) == (
        True, first.files_committed, first.bytes_committed, first.directories_created,
    )  # fmt: skip
    assert summary(elsewhere, "job-1").success


async def test_summary_answers_without_any_marker(place: Place, elsewhere: MemorySpace) -> None:
    config = reporting(elsewhere, mark_successful_jobs=False)
    await place.run_job({"part-0": b"abc"}, job_id="job-1", config=config)
    assert (await place.recover("job-1", config=config)).files_committed == 1
    with pytest.raises(JobNotFoundError):
        await place.recover("job-1")


async def test_failed_job_that_is_gone_is_not_reported_as_committed(place: Place, elsewhere: MemorySpace) -> None:
    config = reporting(elsewhere)
    place.write("there", b"old")
    with pytest.raises(TargetExistsError):
        await place.run_job({"there": b"new"}, job_id="job-1", config=config)
    with pytest.raises(JobRolledBackError, match="is over and was not committed") as caught:
        await place.recover("job-1", config=config)
    assert caught.value.outcome == "unchanged"
    report = await place.recover("job-1", rollback=True, config=config)
    assert (report.success, report.files_committed) == (False, 0)
    assert not summary(elsewhere, "job-1").success


async def test_an_aborted_job_is_not_reported_as_recovered(place: Place, elsewhere: MemorySpace) -> None:
    config = reporting(elsewhere)
    job = await place.open_job(job_id="job-1", config=config)
    await place.run_task(job, 0, {"part-0": b"x"})
    await job.abort()
    assert (summary(elsewhere, "job-1").success, summary(elsewhere, "job-1").diagnostics.get("exception")) == (
        False,
        None,
    )
    with pytest.raises(JobRolledBackError, match="was aborted, or rolled back"):
        await place.recover("job-1", config=config)
    assert not (await place.recover("job-1", rollback=True, config=config)).success


# -- records kept ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_records_are_kept_for_diagnostics(place: Place, elsewhere: MemorySpace, delivery: str) -> None:
    config = CommitterConfig(diagnostics_manifest_directory=f"memory://{elsewhere.name}/kept")
    directory = f"/kept/{place.layout('job-1').unique_name}"
    elsewhere.write(f"{directory}/another job's", b"file")
    await place.run_job({"part-0": b"x"}, {"part-1": b"y"}, job_id="job-1", delivery=delivery, config=config)  # type: ignore[arg-type]
    kept = {name.removeprefix(f"{directory}/"): data for name, data in elsewhere.files().items()}
    # Hadoop empties the directory first, also of another job's files.
    assert kept.pop("another job's") == b"file"
    assert len(kept) == 2
    for name, data in kept.items():
        assert name.endswith("-manifest.json")
        assert len(decode_task_manifest(data, source=name).files) == 1


async def test_records_kept_at_the_destination(place: Place) -> None:
    config = CommitterConfig(diagnostics_manifest_directory=f"{place.dest}/_kept")
    await place.run_job({"part-0": b"x"}, job_id="job-1", config=config)
    assert (
        len([name for name in place.all_files() if name.startswith(f"_kept/{place.layout('job-1').unique_name}/")]) == 1
    )


async def test_records_that_cannot_be_kept_break_nothing(place: Place, elsewhere: MemorySpace) -> None:
    elsewhere.write("/kept", b"a file")
    for number, directory in enumerate((f"memory://{elsewhere.name}/kept", "nostore://x/y")):
        await place.run_job({f"part-{number}": b"x"}, config=CommitterConfig(diagnostics_manifest_directory=directory))
    assert len(place.files()) == 2
    assert place.temporary() == set()


# -- cleanup options ---------------------------------------------------------------------------------------------


async def test_cleanup_skipped_leaves_everything(place: Place) -> None:
    await place.run_job({"part-0": b"x"}, job_id="job-1", config=CommitterConfig(cleanup_skipped=True))
    left = place.temporary()
    assert {in_job(place, "job-1", record) for record in ("opened", "decision", "outcome")} <= left
    assert await place.states() == {"job-1": "committed"}
    assert place.files() == {"part-0": b"x"}


async def test_failing_cleanup_raises_with_outcome_committed(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    renames = place.store.capabilities.atomic_directory_rename
    operation, path = ("rename_directory", ".removed") if renames else ("delete_directory", "job-1~")
    place.faults(Fault(kind="forbidden", operation=operation, times=None, path=path))
    if renames:
        with pytest.raises(CommitterError) as caught:
            await place.run_job({"part-0": b"x"}, job_id="job-1")
        assert caught.value.outcome == "committed"
        assert "recover" in caught.value.next_step
    else:
        # Once the setup record is deleted the job is over, and another driver may be doing the rest: it is warned of.
        await place.run_job({"part-0": b"x"}, job_id="job-1")
        assert "could not remove all of job job-1" in caplog.text
    assert place.files() == {"part-0": b"x"}
    assert "_SUCCESS" in place.all_files()
    assert await place.states() == {"job-1": "committed"}
    place.store.faults.clear()
    report = await place.recover("job-1")
    assert report.files_committed == 1
    assert place.temporary() == set()


@pytest.mark.parametrize("kind", ["lost", "unanswered", "late", "again"])
async def test_a_directory_stays_where_the_answer_to_its_rename_is_lost(place: Place, kind: FaultKind) -> None:
    place.faults(Fault(kind=kind, operation="rename_directory", path="/work", delay_s=0.05))
    report = await place.run_job({"part-0": b"x"}, job_id="job-1", config=CommitterConfig(cleanup_skipped=True))
    for request in list(place.store.under_way):
        await request
    assert report.success
    assert place.files() == {"part-0": b"x"}
    if place.store.capabilities.directories:
        assert in_job(place, "job-1", "work") not in place.directories()
    assert (await place.recover("job-1")).success


async def test_success_counts_what_javas_counts(place: Place) -> None:
    """Each stage that Hadoop's `_SUCCESS` counts, as often: Hadoop counts one when it begins."""
    await place.run_job({"a=1/part-0": b"abc"}, {"part-1": b"de"}, job_id="job_20260101_0001")
    counters = decode_success(place.read("_SUCCESS"), source="").statistics().counters
    wanted = {
        names.COMMITTER_COMMIT_JOB: 1,
        names.JOB_STAGE_SETUP: 1,
        names.JOB_STAGE_LOAD_MANIFESTS: 1,
        names.OP_LOAD_ALL_MANIFESTS: 1,
        names.TASK_STAGE_SETUP: 2,
        names.TASK_STAGE_COMMIT: 2,
        names.TASK_STAGE_SAVE_MANIFEST: 2,
    }
    assert {name: counters.get(name) for name in wanted} == wanted
