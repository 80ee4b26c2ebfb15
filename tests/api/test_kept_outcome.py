"""`outcome_kept`: a committed job leaves its outcome, and nothing else, so that anyone can ask whether it committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

import committer
from committer import CommitterConfig
from committer.api.cleanup import clean_and_report
from committer.errors import CommitterError, JobExistsError, JobStateError, JobUndecidedError, OutcomeKeptError
from committer.records.job_state import JobOutcome
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.job_paths import has_in_job, in_job, kept_of
from tests.places import MemoryPlace, Place

KEPT = CommitterConfig(outcome_kept=True)


def left(place: Place) -> set[str]:
    """What stands in `_temporary`; a store without directories shows those that hold something all the same."""
    return place.temporary() | {"_temporary", in_job(place, "job-1")} if place.temporary() else set()


async def committed(place: Place, config: CommitterConfig = KEPT) -> committer.JobReport:
    return await place.run_job({"a=1/part-0": b"abc", "part-1": b"de"}, job_id="job-1", config=config)


async def test_only_the_outcome_is_left(place: Place) -> None:
    report = await committed(place)
    assert report.success
    assert left(place) == kept_of(place, "job-1")
    outcome = await committer.load_record(
        f"{place.dest}/{in_job(place, 'job-1', 'kept')}", storage_options=place.options
    )
    assert isinstance(outcome, JobOutcome)
    assert (outcome.outcome, outcome.files, outcome.size) == ("committed", 2, 5)
    [info] = await committer.list_jobs(place.dest, storage_options=place.options)
    assert (info.job_id, info.state, info.files, info.kept) == ("job-1", "committed", 2, True)


@pytest.mark.parametrize("marker", ["its own", "a later job's", "none"])
async def test_recover_tells_that_it_committed(place: Place, marker: str) -> None:
    first = await committed(place)
    if marker == "a later job's":
        await place.run_job({"part-9": b"x"}, job_id="job-2")
    elif marker == "none":
        place.remove("_SUCCESS")
    before = place.all_files()
    for _again in range(2):
        report = await place.recover("job-1")
        assert (report.success, report.job_id, report.files_committed, report.bytes_committed) == (True, "job-1", 2, 5)
        assert (sorted(report.filenames) == sorted(first.filenames)) == (marker == "its own")
    async with place.attach_job("job-1") as job:
        assert (await job.commit()).files_committed == 2
    assert place.all_files() == before


async def test_it_cannot_be_rolled_back_or_aborted(place: Place) -> None:
    await committed(place)
    before = place.all_files()
    with pytest.raises(JobStateError) as caught:
        await place.recover("job-1", rollback=True, force=True)
    assert caught.value.outcome == "committed"
    async with place.attach_job("job-1") as job:
        await job.abort()
    assert place.all_files() == before


@pytest.mark.parametrize("beside", [False, True])
async def test_cleanup_by_name_refuses_it_unless_forced(place: Place, beside: bool) -> None:
    """A stream that repeats the job would write it again, or stop at its files; so nothing is changed."""
    await committed(place)
    if beside:
        place.write(in_job(place, "job-1", "intent-late"), b"{}")
    before = place.all_files()
    with pytest.raises(OutcomeKeptError, match="kept for a stream") as caught:
        await committer.cleanup(place.dest, job_id="job-1", storage_options=place.options)
    assert (caught.value.outcome, place.all_files()) == ("committed", before)
    assert "force=True" in caught.value.next_step
    planned = await clean_and_report(place.dest, dry=True, job_id="job-1", storage_options=place.options)
    assert list(planned.kept) == ["job-1"]
    report = await committer.cleanup(place.dest, job_id="job-1", force=True, storage_options=place.options)
    assert (report.removed, report.kept, place.temporary()) == (["job-1"], {}, set())
    assert len(place.files()) == 2


async def test_forgetting_takes_an_outcome_and_no_decision(place: Place) -> None:
    await committed(place)
    report = await clean_and_report(place.dest, job_id="job-1", forgets=True, storage_options=place.options)
    assert (report.removed, place.temporary()) == (["job-1"], set())
    job = await place.open_job(job_id="job-2", config=KEPT)
    await place.run_task(job, 0, {"part-9": b"abc"})
    place.faults(Fault(kind="crash_before", operation="rename_file", path="part-9"))
    with pytest.raises(SimulatedCrash):
        await job.commit()
    place.store = FaultyStore(place.space.store()) if isinstance(place, MemoryPlace) else FaultyStore(LocalStore())
    report = await clean_and_report(place.dest, job_id="job-2", forgets=True, storage_options=place.options)
    assert "recover" in report.kept["job-2"]
    assert (await place.recover("job-2")).success


async def test_its_id_stays_taken_until_it_is_cleaned_up_by_name(place: Place) -> None:
    await committed(place)
    with pytest.raises(JobExistsError):
        await place.open_job(job_id="job-1", config=KEPT)
    await committer.cleanup(place.dest, job_id="job-1", force=True, storage_options=place.options)
    await place.run_job({"part-2": b"x"}, job_id="job-1", config=KEPT)
    assert len(place.files()) == 3


async def test_cleanup_by_age_keeps_it_unless_forced(place: Place) -> None:
    await committed(place)
    report = await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
    assert report.removed == []
    assert "outcome is kept" in report.kept["job-1"]
    assert left(place) == kept_of(place, "job-1")
    report = await committer.cleanup(place.dest, older_than=0, force=True, storage_options=place.options)
    assert report.removed == ["job-1"]
    assert place.temporary() == set()


async def test_cleanup_by_age_takes_all_else_of_it(place: Place) -> None:
    await committed(place, KEPT.replace(cleanup_skipped=True))
    assert len(place.temporary()) > len(kept_of(place, "job-1"))
    place.write(in_job(place, "job-1", "intent-late"), b"{}")
    await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
    assert left(place) == kept_of(place, "job-1")
    assert (await place.recover("job-1")).files_committed == 2


async def test_recover_removes_what_came_late(place: Place) -> None:
    await committed(place)
    place.write(in_job(place, "job-1", "intent-late"), b"{}")
    place.write(in_job(place, "job-1", "00/attempts/late"), b"{}")
    assert (await place.recover("job-1")).success
    assert left(place) == kept_of(place, "job-1")


@pytest.mark.parametrize("decided", [False, True], ids=["aborted", "rolled back"])
async def test_a_job_that_did_not_commit_leaves_nothing_and_its_id_free(place: Place, decided: bool) -> None:
    job = await place.open_job(job_id="job-1", config=KEPT)
    await place.run_task(job, 0, {"part-0": b"x", "part-1": b"y"})
    if decided:
        place.faults(Fault(kind="forbidden", operation="rename_file", path="table/part-1", times=1))
        with pytest.raises(CommitterError):
            await job.commit()
        await place.recover("job-1", rollback=True, force=True)
    else:
        await job.abort()
    assert place.temporary() == set()
    await committed(place)
    assert len(place.files()) == 2


@pytest.mark.parametrize("profile", ["local", "gcs"])
@pytest.mark.parametrize("kind", ["crash_before", "crash_after"])
async def test_killed_at_any_call_of_its_commit_it_ends_the_same(profile: str, kind: FaultKind) -> None:
    for number in range(1, 200):
        place = MemoryPlace(profile)
        job = await place.open_job(job_id="job-1", config=KEPT)
        await place.run_task(job, 0, {"part-0": b"abc"})
        place.store.calls.clear()
        place.faults(Fault(kind=kind, call=number))
        try:
            await job.commit()
            break
        except SimulatedCrash:
            place.store = FaultyStore(place.space.store())
        try:
            report = await place.recover("job-1")
        except JobUndecidedError:
            continue
        assert (report.success, report.files_committed) == (True, 1)
        assert place.files() == {"part-0": b"abc"}
        assert left(place) == kept_of(place, "job-1"), number
    assert 10 < number < 199


# -- others come in between ----------------------------------------------------------------------------------------


async def at(place: Place, fits: Callable[[Call], bool], act: Callable[[], Awaitable[object]]) -> None:
    """Has `act` done right before the first call that fits, by others who do not pass through it."""

    async def before(call: Call) -> None:
        if fits(call):
            place.store.before_call = None
            await act()

    place.store.before_call = before


def creates(name: str) -> Callable[[Call], bool]:
    """Calls that bring a record of this name into place."""

    def fits(call: Call) -> bool:
        reached = call.destination or call.path
        return call.operation in {"put", "rename_file"} and reached.name == name

    return fits


async def test_a_driver_whose_outcome_another_one_finished_by_leaves_it(place: Place) -> None:
    """Between creating the outcome and looking again for the decision, a recoverer does all the rest."""
    job = await place.open_job(job_id="job-1", config=KEPT)
    await place.run_task(job, 0, {"part-0": b"abc"})

    def looks_again(call: Call) -> bool:
        ended = has_in_job(place, "job-1", "outcome")
        return ended and call.operation == "read" and call.path.name == "decision"

    await at(place, looks_again, lambda: place.recover("job-1"))
    assert (await job.commit()).files_committed == 1
    assert left(place) == kept_of(place, "job-1")
    assert (await place.recover("job-1")).success


async def test_a_driver_that_writes_what_is_kept_last_leaves_it(place: Place) -> None:
    """When it comes to write the copy that is kept, a recoverer has done so and cleaned up."""
    job = await place.open_job(job_id="job-1", config=KEPT)
    await place.run_task(job, 0, {"part-0": b"abc"})

    await at(place, creates("kept"), lambda: place.recover("job-1"))
    assert (await job.commit()).files_committed == 1
    assert place.store.before_call is None
    assert left(place) == kept_of(place, "job-1")


@pytest.mark.parametrize("record", ["intent", "decision", "outcome"])
async def test_a_driver_that_comes_late_finds_the_job_committed(place: Place, record: str) -> None:
    async with place.open_job(job_id="job-1", delivery="message", config=KEPT) as job:
        message = await place.run_task(job, 0, {"part-0": b"abc"})

        async def commit_too() -> None:
            async with place.attach_job("job-1") as other:
                await other.commit([message])

        await at(place, creates(record), commit_too)
        report = await job.commit([message])
    assert (report.success, report.files_committed) == (True, 1)
    assert place.files() == {"part-0": b"abc"}
    assert left(place) == kept_of(place, "job-1")


@pytest.mark.parametrize("how", ["abort", "cleanup by name", "cleanup by age"])
async def test_an_abort_that_comes_late_does_not_undo_the_outcome(place: Place, how: str) -> None:
    """A driver that looked while the job was open, and decides against it only now, finds that it committed."""
    job = await place.open_job(job_id="job-1", config=KEPT)
    await place.run_task(job, 0, {"part-0": b"abc"})

    await at(place, creates("decision"), job.commit)
    if how == "abort":
        async with place.attach_job("job-1") as other:
            await other.abort()
    elif how == "cleanup by name":
        with pytest.raises(OutcomeKeptError):
            await committer.cleanup(place.dest, job_id="job-1", storage_options=place.options)
    else:
        report = await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
        assert list(report.kept) == ["job-1"]
    assert left(place) == kept_of(place, "job-1")
    assert (await place.recover("job-1")).success


async def test_an_abort_that_died_before_it_took_its_decision_back(place: Place) -> None:
    job = await place.open_job(job_id="job-1", config=KEPT)
    other = await place.open_job(job_id="job-2", config=KEPT)
    for aborted in (job, other):
        await place.run_task(aborted, 0, {f"part-{aborted.job_id}": b"abc"})
    stolen: list[bytes] = []

    async def steal() -> None:
        stolen.append(place.read(in_job(place, "job-2", "decision")))

    await at(place, lambda call: has_in_job(place, "job-2", "decision"), steal)
    await other.abort()
    await job.commit()
    place.write(in_job(place, "job-1", "decision"), stolen[0].replace(b"job-2", b"job-1"))
    assert await place.states() == {"job-1": "committed"}
    assert (await place.recover("job-1")).files_committed == 1
    assert left(place) == kept_of(place, "job-1")


async def test_who_sets_the_id_up_at_the_last_moment_is_refused(place: Place) -> None:
    """Both saw the id free; one sets up, commits and cleans up before the other's record arrives."""
    await at(place, creates("setup"), lambda: committed(place))
    with pytest.raises(JobExistsError) as caught:
        await place.open_job(job_id="job-1", config=KEPT)
    assert caught.value.state == "committed"
    assert left(place) == kept_of(place, "job-1")


async def test_a_replacing_job_minds_no_kept_outcome(place: Place) -> None:
    await committed(place)
    await place.run_job({"a=1/part-0": b"new"}, job_id="job-2", config=CommitterConfig(conflict_mode="replace"))
    assert place.files() == {"a=1/part-0": b"new", "part-1": b"de"}
    assert left(place) == kept_of(place, "job-1")
