"""Jobs of uploads that are refused, taken back, or get no answer."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    JobNotFoundError,
    JobRolledBackError,
    OutcomeUnknownError,
    PreflightError,
    StoreConflictError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    TargetExistsError,
)
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.engine.places import MemoryPlace, place_fixture
from tests.engine.uploads import committing, pending
from tests.job_paths import in_job

place = place_fixture("s3", delivery="message")


# -- refusals and rollback --------------------------------------------------------------------------------------------


async def test_the_sixth_of_twelve_is_refused_five_are_deleted_and_seven_aborted(place: MemoryPlace) -> None:
    names = [f"f{number:02d}" for number in range(12)]
    before: list[Call] = []

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "f05" and not before:
            before.append(call)
            place.write("f05", b"another job's")

    place.store.before_call = another_program
    with pytest.raises(TargetExistsError) as caught:
        await committing(place, names, config=CommitterConfig(io_concurrency=1))
    assert caught.value.outcome == "unchanged"
    assert place.files() == {"f05": b"another job's"}
    assert pending(place) == []
    counts = Counter(call.operation for call in place.store.calls if "_temporary" not in call.path.path)
    assert (counts["complete_upload"], counts["delete_file_if"], counts["abort_upload"]) == (6, 5, 7)
    assert place.temporary() == set()


async def test_an_earlier_success_marker_comes_back_with_a_rollback(place: MemoryPlace) -> None:
    await committing(place, ["old"], job_id="earlier")
    marker = place.read("_SUCCESS")

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "b" and "b" not in place.files():
            assert "_SUCCESS" not in place.all_files()
            place.write("b", b"another job's")

    place.store.before_call = another_program
    with pytest.raises(TargetExistsError):
        await committing(place, ["a", "b"], config=CommitterConfig(io_concurrency=1))
    assert place.read("_SUCCESS").rstrip(b" ") == marker
    assert place.files() == {"old": b"old", "b": b"another job's"}


@pytest.mark.parametrize(
    ("operation", "path"),
    [("put", "/decision"), ("put", "/superseded/_SUCCESS"), ("delete_file_if", "/_SUCCESS"), ("complete_upload", "/a")],
)
async def test_an_earlier_success_marker_outlives_a_request_to_delete_it_that_comes_late(
    operation: str, path: str, place: MemoryPlace
) -> None:
    await committing(place, ["old"], job_id="earlier")
    marker, plain = place.read("_SUCCESS"), place.space.store()
    # Twice, as it is sent back by another way each time.
    for kind in (operation, "complete_upload"):
        before = (await plain.status(place.space.path("table/_SUCCESS"))).identity
        assert before is not None
        fault = Fault(kind="crash_after", operation=kind, path=path if kind == operation else "/a")
        store = FaultyStore(place.space.store(), [fault])
        with pytest.raises(SimulatedCrash):
            async with committer.open_job(place.dest, job_id="j", storage_options={"store": store}) as job:
                await job.commit([await place.run_task(job, 0, {"a": b"a"})])
        await committer.recover(place.dest, "j", rollback=True, storage_options=place.options)
        with pytest.raises(StorePreconditionError):
            await plain.delete_file_if(place.space.path("table/_SUCCESS"), identity=before)
        assert place.read("_SUCCESS").rstrip(b" ") == marker
        assert place.files() == {"old": b"old"}
        assert pending(place) == []
        assert place.temporary() == set()


async def test_what_stands_there_is_refused_before_anything_is_published(place: MemoryPlace) -> None:
    place.write("x", b"old")
    with pytest.raises(TargetExistsError, match="a file stands at x"):
        await committing(place, ["x", "y"])
    assert place.store.count("complete_upload") == 0
    assert place.files() == {"x": b"old"}
    assert pending(place) == []


async def test_uploads_that_a_lifecycle_rule_ended_are_missed_before_the_decision(place: MemoryPlace) -> None:
    with pytest.raises(PreflightError, match="a lifecycle rule"):
        async with place.open_job() as job:
            message = await place.run_task(job, 0, {"x": b"x"})
            place.space.uploads.clear()
            await job.commit([message])
    assert place.files() == {}


async def test_an_upload_that_is_gone_after_the_decision_is_unknown_and_can_be_taken_back(place: MemoryPlace) -> None:
    async def rule(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "b":
            for upload in list(place.space.uploads):
                place.space.uploads.abort(upload.path, upload.upload_id)

    place.store.before_call = rule
    job = await place.open_job(job_id="j", config=CommitterConfig(io_concurrency=1))
    message = await place.run_task(job, 0, {"a": b"a", "b": b"b"})
    with pytest.raises(OutcomeUnknownError, match="its upload is gone") as caught:
        await job.commit([message])
    assert "lifecycle rule" in caught.value.next_step
    assert place.files() == {"a": b"a"}
    with pytest.raises(OutcomeUnknownError):
        await place.recover("j")
    assert not (await place.recover("j", rollback=True)).success
    assert place.files() == {}
    assert place.temporary() == set()


async def test_a_rollback_needs_no_word_that_the_driver_is_dead_and_stops_one_that_lives(place: MemoryPlace) -> None:
    rolled_back = False

    async def operator(call: Call) -> None:
        nonlocal rolled_back
        if call.operation == "complete_upload" and call.path.name == "b" and not rolled_back:
            rolled_back = True
            options = {"store": place.space.store()}
            report = await committer.recover(place.dest, "j", rollback=True, storage_options=options)
            assert not report.success

    place.store.before_call = operator
    with pytest.raises((JobRolledBackError, JobNotFoundError)):
        await committing(place, ["a", "b", "c"], job_id="j", config=CommitterConfig(io_concurrency=1))
    assert place.files() == {}
    assert pending(place) == []


async def test_a_rollback_that_stops_half_way_says_so(place: MemoryPlace) -> None:
    dying = FaultyStore(place.space.store(), [Fault(kind="crash_after", operation="complete_upload", path="/a")])
    job = await place.open_job(job_id="j")
    message = await place.run_task(job, 0, {"a": b"a", "b": b"b"})
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(job.spec, storage_options={"store": dying}) as driver:
            await driver.commit([message])
    place.faults(Fault(kind="forbidden", operation="delete_file_if", path="/a"))
    with pytest.raises(StorePermissionError) as caught:
        await place.recover("j", rollback=True)
    assert caught.value.outcome == "partial"
    assert "rollback=True" in caught.value.next_step
    await place.recover("j", rollback=True)
    assert (place.files(), place.temporary(), pending(place)) == ({}, set(), [])


async def test_a_rollback_leaves_what_others_put_in_a_files_place(place: MemoryPlace) -> None:
    place.store.faults.append(Fault(kind="crash_before", operation="complete_upload", path="/table/c"))
    with pytest.raises(SimulatedCrash):
        await committing(place, ["a", "b", "c"], job_id="j", config=CommitterConfig(io_concurrency=1))
    place.write("a", b"another job's")
    await committer.recover(place.dest, "j", rollback=True, storage_options={"store": place.space.store()})
    assert place.files() == {"a": b"another job's"}
    assert pending(place) == []


# -- answers that are lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers_again", [False, True])
async def test_a_completion_whose_answer_is_lost_is_found_done(answers_again: bool, place: MemoryPlace) -> None:
    place.space.uploads.answers_again = answers_again
    place.faults(Fault(kind="lost", operation="complete_upload"))
    report = await committing(place, ["a", "b"])
    assert report.files_committed == 2
    assert place.store.count("complete_upload") == 2


async def test_a_conflict_whose_upload_stays_is_tried_again(place: MemoryPlace) -> None:
    conflicts = count()
    inner = place.store.inner.complete_upload

    async def conflicting(path, upload_id, parts, *, exclusive=False):
        if next(conflicts) < 2:
            raise StoreConflictError("injected", operation="complete_upload", path=path)
        return await inner(path, upload_id, parts, exclusive=exclusive)

    place.store.inner.complete_upload = conflicting
    assert (await committing(place, ["a"])).success
    assert place.files() == {"a": b"a"}


async def test_a_conflict_that_cost_the_upload_takes_the_job_back(place: MemoryPlace) -> None:
    inner = place.store.inner.complete_upload

    async def conflicting(path, upload_id, parts, *, exclusive=False):
        if path.name != "b" or not place.space.uploads.abort(path, upload_id):
            return await inner(path, upload_id, parts, exclusive=exclusive)
        # S3: after a 409 the upload may be gone, and its file has to be sent anew.
        raise StoreConflictError("injected", operation="complete_upload", path=path)

    place.store.inner.complete_upload = conflicting
    with pytest.raises(TargetExistsError) as caught:
        await committing(place, ["a", "b", "c"], config=CommitterConfig(io_concurrency=1))
    assert caught.value.outcome == "unchanged"
    assert place.files() == {}
    assert pending(place) == []


async def test_an_unanswered_beginning_of_a_file_fails_the_task_and_leaves_nothing(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        place.faults(Fault(kind="unanswered", operation="create_upload"))
        with pytest.raises(StoreOutcomeUnknownError):
            await place.run_task(job, 0, {"a": b"a"})
        message = await place.run_task(job, 0, {"a": b"a"}, attempt=1)
        await job.commit([message], tasks=1)
    assert place.files() == {"a": b"a"}
    assert pending(place) == []


async def test_a_list_that_cannot_be_written_fails_the_file_before_anything_is_sent(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        place.faults(Fault(kind="forbidden", operation="put", path="/uploads/"))
        with pytest.raises(committer.CommitterError):
            await place.run_task(job, 0, {"a": b"a"})
        assert place.store.count("put_part") == 0
        assert pending(place) == []
        await job.commit([])


@pytest.mark.parametrize("failing", ["list", "record", "caller"])
async def test_what_cannot_be_ended_hides_no_first_error(failing: str, place: MemoryPlace) -> None:
    """A role that may send and not abort, for example; the job's end says what it leaves."""
    where = {"list": "/uploads/", "record": "x.pending", "caller": "nowhere"}[failing]
    job = await place.open_job(delivery="listing" if failing == "record" else "message")
    task = await place.open_task(job.spec, 0)
    place.faults(
        Fault(kind="forbidden", operation="put", path=where), Fault(kind="forbidden", operation="abort_upload")
    )
    with pytest.raises((StorePermissionError, ValueError)) as caught:
        async with task.open("x") as file:
            await file.write(b"x")
            if failing == "caller":
                raise ValueError("the caller's own")
    assert getattr(caught.value, "operation", "caller") == ("caller" if failing == "caller" else "put")
    await task.abort()
    await job.abort()
    assert pending(place) == []


async def test_a_copy_that_comes_when_its_job_is_over_is_cleaned_up_by_age(place: MemoryPlace) -> None:
    place.write(in_job(place, "over", "drivers-1/superseded/_SUCCESS"), b"{}")
    report = await committer.cleanup(place.dest, older_than=3600.0, storage_options=place.options)
    assert report.kept == {"over": "it is younger"}
    report = await committer.cleanup(place.dest, older_than=0.0, storage_options=place.options)
    assert (report.removed, place.temporary()) == (["over"], set())
