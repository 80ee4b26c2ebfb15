"""What an operator does: list_jobs, recover, cleanup, attach_job, load_record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationNotFoundError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    RecordError,
    StoreNotFoundError,
)
from committer.flow.runtime import use_runtime
from committer.paths import StorePath
from committer.records.job_state import Decision, Entry, Intent, JobOpened, JobOutcome, JobSetup
from committer.records.manifest import TaskManifest
from committer.records.success import SuccessData
from committer.testing.faults import Fault
from committer.testing.virtual_time import VirtualRuntime
from tests.job_paths import in_job
from tests.places import MemoryPlace, Place

KEPT = CommitterConfig(cleanup_skipped=True)


async def half_committed(place: Place, job_id: str, config: CommitterConfig | None = None) -> committer.Job:
    """A decided job whose driver stopped in the middle."""
    by_files = (config or CommitterConfig()).replace(promote_directories=False)
    job = await place.open_job(job_id=job_id, config=by_files)
    await place.run_task(job, 0, {f"{job_id}/part-{number}": b"x" for number in range(6)})
    place.faults(Fault(kind="forbidden", operation="rename_file", path=f"{job_id}/part-4"))
    with pytest.raises(CommitterError) as caught:
        await job.commit()
    assert caught.value.outcome == "partial"
    assert "recover" in caught.value.next_step
    return job


async def every_state(place: Place) -> None:
    await place.open_job(job_id="open")
    await half_committed(place, "committing")
    await place.run_job({"committed/part-0": b"x"}, job_id="committed", config=KEPT)
    aborted = await place.open_job(job_id="aborted", config=KEPT)
    await aborted.abort()
    await half_committed(place, "rolled-back", KEPT)
    await place.recover("rolled-back", rollback=True, force=True)
    place.write(in_job(place, "unknown", "decision"), b"not json")


STATES = {state: state for state in ("open", "committing", "committed", "aborted", "rolled-back", "unknown")}


async def test_list_jobs_shows_every_state(place: Place) -> None:
    await every_state(place)
    jobs = await committer.list_jobs(place.dest, storage_options=place.options)
    assert {job.job_id: job.state for job in jobs} == STATES
    assert [job.job_id for job in jobs] == sorted(STATES)
    by_id = {job.job_id: job for job in jobs}
    assert (by_id["open"].delivery, by_id["open"].committer) == ("listing", "manifest")
    assert by_id["open"].files is None
    assert by_id["committing"].files == 6
    assert by_id["committed"].files == 1
    for job in jobs:
        if job.job_id != "unknown":
            assert job.updated is not None
            # Of a job that ended and left cleanup out the setup record is gone.
            assert job.started is None or abs(job.updated - job.started) < timedelta(minutes=5)


async def test_a_destination_that_does_not_exist(place: Place) -> None:
    """A path that was mistyped is no destination without jobs, where the two can be told apart."""
    asked = [
        lambda: committer.list_jobs(place.dest, storage_options=place.options),
        lambda: committer.cleanup(place.dest, older_than=0, storage_options=place.options),
    ]
    for ask in asked:
        if place.store.capabilities.directories:
            with pytest.raises(DestinationNotFoundError) as caught:
                await ask()
            assert (caught.value.path, caught.value.outcome) == (str(StorePath.of(place.dest)), "unchanged")
        else:
            await ask()
    kind = DestinationNotFoundError if place.store.capabilities.directories else JobNotFoundError
    with pytest.raises(kind):
        await committer.validate(place.dest, storage_options=place.options)


async def test_the_destination_is_looked_for_only_where_nothing_is_found(place: Place) -> None:
    await place.open_job(job_id="open")
    place.store.calls.clear()
    await committer.list_jobs(place.dest, storage_options=place.options)
    assert ("status", StorePath.of(place.dest)) not in [(call.operation, call.path) for call in place.store.calls]


async def test_list_jobs_where_there_is_nothing(place: Place) -> None:
    place.write("of-others", b"x")
    assert await committer.list_jobs(place.dest, storage_options=place.options) == []
    await place.run_job({"part-0": b"x"})
    assert await committer.list_jobs(place.dest, storage_options=place.options) == []


async def test_list_jobs_shows_hadoops_jobs(place: Place) -> None:
    place.write("_temporary/job_202601010000_0001/00/manifests/task-manifest.json", b"{}")
    [job] = await committer.list_jobs(place.dest, storage_options=place.options)
    assert (job.job_id, job.state, job.delivery, job.committer) == ("job_202601010000_0001", "open", None, None)


# -- recover -----------------------------------------------------------------------------------------------------


async def test_recover_finishes_a_decided_job(place: Place) -> None:
    await half_committed(place, "job-1")
    report = await place.recover("job-1")
    assert report.success
    assert (report.job_id, report.files_committed, report.bytes_committed, report.directories_created) == (
        "job-1", 6, 6, 1,
    )  # fmt: skip
    assert len(place.files()) == 6
    assert place.temporary() == set()


async def test_recover_of_a_finished_job_returns_its_report(place: Place) -> None:
    first = await place.run_job({"part-0": b"abc", "a=1/part-1": b""}, job_id="job-1")
    again = await place.recover("job-1")
    assert (again.success, again.job_id, again.files_committed, again.bytes_committed, again.directories_created) == (
        True, "job-1", first.files_committed, first.bytes_committed, first.directories_created,
    )  # fmt: skip
    assert sorted(again.filenames) == sorted(first.filenames)
    assert place.temporary() == set()


async def test_recover_of_a_finished_job_with_cleanup_skipped(place: Place) -> None:
    await place.run_job({"part-0": b"abc"}, job_id="job-1", config=KEPT)
    for _again in range(2):
        report = await place.recover("job-1")
        assert (report.files_committed, report.bytes_committed) == (1, 3)
    assert await place.states() == {"job-1": "committed"}


async def test_recover_of_an_open_job_says_what_to_do(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    before = place.all_files()
    with pytest.raises(JobUndecidedError) as caught:
        await place.recover("job-1")
    assert caught.value.outcome == "unchanged"
    assert "commit" in caught.value.next_step
    assert place.all_files() == before
    async with place.attach_job("job-1") as again:
        await again.commit()
    assert place.files() == {"part-0": b"x"}


async def test_recover_with_force_commits_what_a_listing_finds(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    report = await place.recover("job-1", force=True)
    assert report.files_committed == 1
    assert place.files() == {"part-0": b"x"}


async def test_recover_with_force_does_not_guess_messages(place: Place) -> None:
    job = await place.open_job(job_id="job-1", delivery="message")
    await place.run_task(job, 0, {"part-0": b"x"})
    with pytest.raises(JobUndecidedError):
        await place.recover("job-1", force=True)
    assert place.files() == {}


async def test_rollback_of_an_open_job_aborts_it(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    report = await place.recover("job-1", rollback=True)
    assert (report.success, report.files_committed) == (False, 0)
    assert place.all_files() == {}
    assert place.temporary() == set()


async def test_rollback_takes_everything_back(place: Place) -> None:
    place.write("old", b"old")
    await half_committed(place, "job-1")
    assert len(place.files()) > 1
    if not place.store.capabilities.atomic_directory_rename:
        with pytest.raises(JobStateError, match="fence") as caught:
            await place.recover("job-1", rollback=True)
        assert "force=True" in caught.value.next_step
    report = await place.recover("job-1", rollback=True, force=True)
    assert (report.success, report.files_committed) == (False, 0)
    assert place.all_files() == {"old": b"old"}
    assert place.directories() == set()
    with pytest.raises(JobNotFoundError):
        await place.recover("job-1")


async def test_rollback_of_a_committed_job_is_refused(place: Place) -> None:
    await place.run_job({"part-0": b"x"}, job_id="job-1", config=KEPT)
    with pytest.raises(JobStateError) as caught:
        await place.recover("job-1", rollback=True, force=True)
    assert caught.value.outcome == "committed"
    assert place.files() == {"part-0": b"x"}


async def test_old_driver_of_a_job_that_was_rolled_back(place: Place) -> None:
    job = await half_committed(place, "job-1", KEPT)
    await place.recover("job-1", rollback=True, force=True)
    with pytest.raises(JobRolledBackError):
        await job.commit()
    with pytest.raises(JobRolledBackError):
        await place.recover("job-1")
    report = await place.recover("job-1", rollback=True, force=True)
    assert not report.success
    assert place.files() == {}


async def test_recover_of_a_job_that_never_was(place: Place) -> None:
    with pytest.raises(JobNotFoundError) as caught:
        await place.recover("missing")
    assert caught.value.outcome == "unchanged"
    await place.run_job({"part-0": b"x"}, job_id="job-1")
    with pytest.raises(JobNotFoundError):
        await place.recover("missing")
    with pytest.raises(ConfigurationError):
        await place.recover("no/body")


async def test_recover_of_a_finished_job_after_a_later_one(place: Place) -> None:
    """`_SUCCESS` speaks only for the job id inside it."""
    await place.run_job({"part-0": b"x"}, job_id="job-1")
    await place.run_job({"part-1": b"x"}, job_id="job-2")
    assert (await place.recover("job-2")).files_committed == 1
    with pytest.raises(JobNotFoundError):
        await place.recover("job-1")


# -- cleanup -----------------------------------------------------------------------------------------------------


async def clean(place: Place, **arguments: object):
    return await committer.cleanup(place.dest, storage_options=place.options, **arguments)


@pytest.mark.parametrize("age", [-1, float("nan"), timedelta(seconds=-1)])
async def test_cleanup_by_what_is_no_age_removes_nothing(memory: MemoryPlace, age: float | timedelta) -> None:
    await memory.open_job(job_id="job-1")
    with pytest.raises(ConfigurationError, match="is no age"):
        await committer.cleanup(memory.dest, older_than=age, storage_options=memory.options)
    assert await memory.states() == {"job-1": "open"}


async def test_cleanup_wants_to_know_what(place: Place) -> None:
    with pytest.raises(ValueError, match="job_id or older_than"):
        await clean(place)
    with pytest.raises(ValueError, match="job_id or older_than"):
        await clean(place, force=True)


@pytest.mark.parametrize("job_id", ["open", "committed", "aborted", "rolled-back"])
async def test_cleanup_of_one_job_leaves_the_others(place: Place, job_id: str) -> None:
    await every_state(place)
    files = place.files()
    report = await clean(place, job_id=job_id)
    assert report.removed == [job_id]
    assert await place.states() == {name: state for name, state in STATES.items() if name != job_id}
    assert place.files() == files


async def test_cleanup_never_takes_a_decided_job_without_force(place: Place) -> None:
    await half_committed(place, "job-1")
    before = place.all_files()
    with pytest.raises(JobDecidedError) as caught:
        await clean(place, job_id="job-1")
    assert "recover" in caught.value.next_step
    assert place.all_files() == before
    report = await clean(place, older_than=0)
    assert list(report.kept) == ["job-1"]
    assert place.all_files() == before
    report = await clean(place, job_id="job-1", force=True)
    assert report.removed == ["job-1"]
    assert place.temporary() == set()


async def test_cleanup_of_an_open_job_decides_first(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    await clean(place, job_id="job-1")
    assert place.temporary() == set()
    with pytest.raises(JobNotFoundError):
        await job.commit()
    assert place.files() == {}


async def test_cleanup_of_nothing(place: Place) -> None:
    place.write("of-others", b"x")
    with pytest.raises(JobNotFoundError):
        await clean(place, job_id="missing")
    report = await clean(place, older_than=0)
    assert (report.removed, report.kept) == ([], {})


async def test_cleanup_by_age(memory: MemoryPlace) -> None:
    place = memory
    runtime = VirtualRuntime(start=datetime(2026, 3, 1, tzinfo=UTC))
    with use_runtime(runtime):
        await place.open_job(job_id="old")
        running = await place.open_job(job_id="running")
        await half_committed(place, "decided")
        await runtime.advance(3600)
        await place.run_task(running, 0, {"part-0": b"x"})
        await place.open_job(job_id="young")
        await runtime.advance(60)
        report = await clean(place, older_than=timedelta(minutes=30))
        assert report.removed == ["old"]
        assert sorted(report.kept) == ["decided", "running", "young"]
        report = await clean(place, older_than=timedelta(minutes=30), force=True)
        assert report.removed == ["decided"]
        report = await clean(place, older_than=30)
        assert report.removed == ["running", "young"]
    assert place.temporary() == set()


async def test_cleanup_by_id_and_age(memory: MemoryPlace) -> None:
    runtime = VirtualRuntime(start=datetime(2026, 3, 1, tzinfo=UTC))
    with use_runtime(runtime):
        await memory.open_job(job_id="job-1")
        report = await clean(memory, job_id="job-1", older_than=60)
        assert list(report.kept) == ["job-1"]
        await runtime.advance(61)
        report = await clean(memory, job_id="job-1", older_than=60)
        assert report.removed == ["job-1"]


# -- attach_job --------------------------------------------------------------------------------------------------


async def test_attach_by_spec_and_by_destination(place: Place) -> None:
    config = CommitterConfig(validate_output=True, io_concurrency=3)
    job = await place.open_job(job_id="job-1", delivery="message", config=config)
    message = await place.run_task(job, 0, {"part-0": b"x"})
    async with place.attach_job("job-1") as by_destination:
        assert by_destination.spec == job.spec
    spec = JobSpec.decode(job.spec.encode())
    assert spec == job.spec
    async with committer.attach_job(spec, storage_options=place.options) as by_spec:
        assert by_spec.spec == job.spec
        await by_spec.commit([message], tasks=1)
    assert place.files() == {"part-0": b"x"}


async def test_attach_to_what_is_not_there(place: Place) -> None:
    with pytest.raises(JobNotFoundError):
        await place.attach_job("missing")
    job = await place.open_job(job_id="job-1")
    await job.abort()
    with pytest.raises(JobNotFoundError):
        await committer.attach_job(job.spec, storage_options=place.options)
    with pytest.raises(ConfigurationError):
        committer.attach_job(place.dest, storage_options=place.options)


async def test_attach_to_hadoops_job(place: Place) -> None:
    place.write("_temporary/job_202601010000_0001/00/manifests/.keep", b"")
    place.write("_temporary/job_202601010000_0001/01/manifests/.keep", b"")
    can = place.store.capabilities
    if not can.refuses_late_writes:
        # What a late task left of a job that is over looks the same there.
        ours = "attempt_202601010000_0001_m_000000_0-0123456789ab"
        place.write(f"_temporary/job_202601010000_0001/01/tasks/{ours}/part-0", b"late")
        with pytest.raises(JobNotFoundError, match="no record speaks of one"):
            await place.attach_job("job_202601010000_0001")
    # Every task attempt of Hadoop's makes itself a directory.
    place.write("_temporary/job_202601010000_0001/01/tasks/attempt_202601010000_0001_m_000000_0/.keep", b"")
    if can.directories:
        async with place.attach_job("job_202601010000_0001") as job:
            assert job.spec.hadoop
            assert job.spec.job_attempt == 1
    else:
        # Nothing is a directory there, so the user says that it is Hadoop's.
        with pytest.raises(JobNotFoundError, match="no record speaks of one"):
            await place.attach_job("job_202601010000_0001")
    spec = JobSpec.for_hadoop(place.dest, "job_202601010000_0001")
    async with committer.attach_job(spec, storage_options=place.options) as job:
        assert job.spec.job_attempt == 0
        await place.run_task(spec, 0, {"part-0": b"x"})
        report = await job.commit(tasks=1)
    assert report.files_committed == 1
    assert place.files() == {"part-0": b"x"}


# -- load_record -------------------------------------------------------------------------------------------------


async def test_load_record_of_everything(place: Place) -> None:
    await half_committed(place, "half")
    await place.run_job({"part-0": b"x"}, job_id="done", config=KEPT)
    found: dict[type, int] = {}
    for name in place.all_files():
        if "part-" in name or name.rpartition("/")[2].startswith("plan-"):
            continue
        record = await committer.load_record(f"{place.dest}/{name}", storage_options=place.options)
        found[type(record)] = found.get(type(record), 0) + 1
    assert found == {
        JobSetup: 1, JobOpened: 2, Intent: 2, Decision: 2, JobOutcome: 1, TaskManifest: 2, SuccessData: 1, Entry: 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"{}", b"[]", b"null", b'{"type":"other"}', b'{"name":"other/1"}',
        b'{"type":"committer.decision","version":2,"job_id":"j","decision":"commit","driver":"d","created":""}',
    ],
)  # fmt: skip
async def test_load_record_of_what_is_none(place: Place, data: bytes) -> None:
    place.write("record", data)
    with pytest.raises(RecordError) as caught:
        await committer.load_record(f"{place.dest}/record", storage_options=place.options)
    assert "record" in caught.value.path


async def test_load_record_of_nothing_and_of_too_much(place: Place) -> None:
    with pytest.raises(StoreNotFoundError):
        await committer.load_record(f"{place.dest}/record", storage_options=place.options)
    place.write("record", b" " * 101)
    with pytest.raises(RecordError):
        await committer.load_record(
            f"{place.dest}/record", storage_options=place.options, config=CommitterConfig(record_size_limit=100)
        )


async def test_a_job_that_is_kept_because_a_right_is_missing_says_to_what(memory: MemoryPlace) -> None:
    await memory.open_job(job_id="job-1")
    memory.faults(Fault(kind="forbidden", operation="put", path="decision"))
    report = await clean(memory, older_than=0)
    assert (report.removed, report.failed) == ([], ["job-1"])
    assert memory.layout("job-1").decision.uri in report.kept["job-1"]


async def test_a_job_of_the_future_is_kept_and_says_why(memory: MemoryPlace) -> None:
    """Another machine's clock is ahead."""
    with use_runtime(VirtualRuntime(start=datetime(2026, 3, 2, tzinfo=UTC))):
        await memory.open_job(job_id="job-1")
    with use_runtime(VirtualRuntime(start=datetime(2026, 3, 1, tzinfo=UTC))):
        report = await clean(memory, older_than=0)
        assert "of the future" in report.kept["job-1"]
        assert (await clean(memory, job_id="job-1")).removed == ["job-1"]
