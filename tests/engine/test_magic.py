"""A job whose files wait in uploads: what is seen when, what is ended by whom, and what is never touched."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from itertools import count

import pytest

import committer
from committer import CommitterConfig
from committer.errors import (
    InvalidPathError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    OutcomeUnknownError,
    PreflightError,
    StoreConflictError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    TargetExistsError,
    TaskError,
    UnsupportedError,
)
from committer.stores.memory import MemoryStore
from committer.stores.uploads import UploadPart
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.engine.places import MemoryPlace

LONG_ID = "0b6d7c1e-5a4f-4c36-9a55-2b1d8f0c9e11"


@pytest.fixture
def place() -> MemoryPlace:
    """A memory space that is like a bucket."""
    return MemoryPlace("s3")


def pending(place: MemoryPlace) -> list[str]:
    """The paths of pending uploads, relative to the destination where they lie below it."""
    return sorted(upload.path.path.removeprefix("/table/") for upload in place.space.uploads)


async def committing(place: MemoryPlace, names: list[str], **arguments: object) -> committer.JobReport:
    """Commits a job of one task that writes these names."""
    async with place.open_job(**arguments) as job:
        message = await place.run_task(job, 0, {name: name.encode() for name in names})
        return await job.commit([message], tasks=1)


# -- what is seen when ----------------------------------------------------------------------------------------------


async def test_nothing_is_seen_before_the_job_commits_and_all_of_it_after(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        messages = [
            await place.run_task(job, 0, {"a=1/p-0.csv": b"zero", "a=2/p-0.csv": b""}),
            await place.run_task(job, 1, {"a=1/p-1.csv": b"one"}),
        ]
        assert place.files() == {}
        assert pending(place) == ["a=1/p-0.csv", "a=1/p-1.csv", "a=2/p-0.csv"]
        report = await job.commit(messages, tasks=2)
    assert place.files() == {"a=1/p-0.csv": b"zero", "a=1/p-1.csv": b"one", "a=2/p-0.csv": b""}
    assert (report.committer, report.files_committed, report.bytes_committed) == ("magic", 3, 7)
    assert json.loads(place.read("_SUCCESS"))["jobId"] == job.job_id
    assert pending(place) == []
    assert place.temporary() == set()


async def test_a_file_is_stamped_with_who_wrote_it(place: MemoryPlace) -> None:
    async with place.open_job(job_id="j") as job:
        message = await place.run_task(job, 7, {"x": b"x"}, attempt=2)
        await job.commit([message])
    status = await place.space.store().status(place.space.path("table/x"))
    assert status.stamp == f"j/7/2/{message.nonce}"


async def test_a_file_costs_four_calls_of_its_task_and_one_of_the_commit() -> None:
    async def calls(files: int) -> int:
        place = MemoryPlace("s3")
        await committing(place, [f"f-{number}" for number in range(files)])
        return len(place.store.calls)

    # Begun, listed, the job looked at, sent; completed.
    assert await calls(40) - await calls(20) == 20 * 5


async def test_the_committer_and_its_delivery_follow_from_the_store(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        assert (job.spec.committer, job.spec.delivery) == ("magic", "message")
        await job.commit([])
    async with MemoryPlace("local").open_job() as job:
        assert (job.spec.committer, job.spec.delivery) == ("manifest", "listing")


async def test_magic_is_refused_where_there_are_no_uploads() -> None:
    local = MemoryPlace("local")
    with pytest.raises(UnsupportedError, match="withhold the completion of an upload"):
        await local.open_job(committer="magic")
    assert local.temporary() == set()


async def test_delivery_by_listing_takes_the_last_commit_of_a_task(place: MemoryPlace) -> None:
    async with place.open_job(delivery="listing") as job:
        await place.run_task(job, 0, {"x": b"first", "only-first": b"1"}, attempt=0)
        await place.run_task(job, 0, {"x": b"second"}, attempt=1)
    assert place.files() == {"x": b"second"}
    assert pending(place) == []


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("delivery", ["message", "listing"])
async def test_a_name_is_as_long_as_the_store_can_hold_what_tells_of_it(
    absolute: bool, delivery: str, place: MemoryPlace
) -> None:
    """A key has up to 1,024 bytes: that of the file and, by listing, those of what Hadoop is told until it commits."""
    root = f"/{'r' * 990 if absolute else 'r'}"
    config = CommitterConfig(absolute_roots=(root,))
    async with place.open_job(job_id="j", delivery=delivery, config=config) as job, job.task_attempt(0) as task:
        above = "table/"
        if absolute:
            above = f"{root[1:]}/"
        elif delivery == "listing":
            above += f"__magic_job-j/job-j/00/tasks/attempt_j_m_000000_0/__base/{task.nonce}/.pending"
        longest = "é" * ((1024 - len(above)) // 2) + "x" * (len(above) % 2)
        name = f"{root}/{longest}" if absolute else longest
        open_file = task.open_absolute if absolute else task.open
        with pytest.raises(InvalidPathError, match="path is longer"):
            open_file(f"{name}x")
        async with open_file(name) as file:
            await file.write(b"x")
    assert [len(path.encode()) for path in place.space.files() if "_SUCCESS" not in path] == [
        1025 if absolute or delivery == "message" else len(f"/table/{longest}".encode())
    ]


async def test_what_tells_of_a_file_elsewhere_must_fit_below_the_destination(place: MemoryPlace) -> None:
    dest, options = f"{place.dest}/{'d' * 925}", {"store": place.store}
    config = CommitterConfig(absolute_roots=("/r",))
    for delivery in ("message", "listing"):
        async with committer.open_job(
            dest, job_id="j", delivery=delivery, config=config, storage_options=options
        ) as job:
            async with job.task_attempt(0) as task:
                if delivery == "message":
                    async with task.open_absolute("/r/x") as file:
                        await file.write(b"x")
                    continue
                with pytest.raises(InvalidPathError, match="until its job commits, the path is longer"):
                    task.open_absolute("/r/y")


async def test_a_record_that_the_store_cannot_hold_fails_its_task_and_leaves_nothing(place: MemoryPlace) -> None:
    """It was never sent, so nobody can have read it: attempt and job are aborted."""
    dest, options = f"{place.dest}/{'d' * 880}", {"store": place.store}
    with pytest.raises(InvalidPathError) as caught:
        async with committer.open_job(dest, job_id=LONG_ID, storage_options=options) as job:
            async with job.task_attempt(0) as task, task.open("x") as file:
                await file.write(b"x")
    assert (caught.value.outcome, getattr(caught.value, "__notes__", [])) == ("unchanged", [])
    assert (place.space.files(), pending(place)) == ({}, [])


# -- attempts that do not win ---------------------------------------------------------------------------------------


async def test_uploads_of_an_attempt_that_lost_are_ended_with_the_job(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {"x": b"loser"}, attempt=0)
        winner = await place.run_task(job, 0, {"x": b"winner"}, attempt=1)
        await job.commit([winner], tasks=1)
    assert place.files() == {"x": b"winner"}
    assert pending(place) == []


async def test_a_file_that_is_given_up_is_no_part_of_the_attempt(place: MemoryPlace) -> None:
    async with place.open_job() as job, job.task_attempt(0) as task:
        with pytest.raises(ZeroDivisionError):
            async with task.open("gone") as file:
                await file.write(b"half")
                raise ZeroDivisionError
        assert pending(place) == []
        async with task.open("kept") as file:
            await file.write(b"whole")
    assert place.files() == {"kept": b"whole"}


async def test_an_attempt_that_fails_ends_its_uploads_those_never_closed_too(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        with pytest.raises(ZeroDivisionError):
            async with place.open_task(job.spec, 0) as task:
                async with task.open("closed") as file:
                    await file.write(b"1")
                await task.open("open").write(b"2")
                raise ZeroDivisionError
        assert pending(place) == []
        await job.commit([])


async def killed(place: MemoryPlace, spec: committer.JobSpec, *, operation: str = "put_part") -> None:
    """An executor that dies while it writes its second file."""
    store = FaultyStore(place.space.store(), [Fault(kind="crash_after", operation=operation, path="second")])
    with pytest.raises(SimulatedCrash):
        async with committer.open_task(spec, task=0, storage_options={"store": store}) as task:
            for name in ("first", "second"):
                async with task.open(name) as file:
                    await file.write(b"x")


async def test_uploads_of_a_killed_executor_are_ended_by_its_ids_alone(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        await killed(place, job.spec)
        other = await place.run_task(job, 0, {"first": b"y"}, attempt=1)
        assert pending(place) == ["first", "first", "second"]
        await job.abort_task(0, 0)
        assert pending(place) == ["first"]
        await job.commit([other], tasks=1)
    assert place.files() == {"first": b"y"}


@pytest.mark.parametrize("ending", ["commit", "abort", "cleanup"])
async def test_uploads_of_a_killed_executor_end_with_the_job(ending: str, place: MemoryPlace) -> None:
    job = await place.open_job(job_id="j")
    await killed(place, job.spec)
    if ending == "commit":
        await job.commit([])
    elif ending == "abort":
        await job.abort()
    else:
        await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
    await job.close()
    assert pending(place) == []
    assert place.temporary() == set()


@pytest.mark.parametrize("ending", ["commit", "abort"])
async def test_an_executor_that_outlives_its_job_sends_nothing_of_what_it_lists_then(
    ending: str, place: MemoryPlace
) -> None:
    job = await place.open_job(job_id="j")

    async def end(call: Call) -> None:
        # Just before the list is written: whoever ends the job cannot find it.
        if call.operation == "put" and "/uploads/" in call.path.path:
            await (job.commit([]) if ending == "commit" else job.abort())

    faults = [Fault(kind="crash_after", operation="put_part")]
    store = FaultyStore(place.space.store(), faults, before_call=end)
    with pytest.raises(JobNotFoundError):
        async with committer.open_task(job.spec, task=0, storage_options={"store": store}) as task:
            async with task.open("x") as file:
                await file.write(b"x")
    await job.close()
    assert store.count("put_part") == 0
    assert pending(place) == []


async def test_uploads_end_where_cleanup_is_left_out(place: MemoryPlace) -> None:
    async with place.open_job(config=CommitterConfig(cleanup_skipped=True)) as job:
        await killed(place, job.spec)
        await job.commit([])
    assert pending(place) == []
    assert place.temporary()


async def test_an_upload_whose_id_nobody_learned_is_found_by_the_token_in_its_name(place: MemoryPlace) -> None:
    config = CommitterConfig(unique_names=True)
    async with place.open_job(job_id=LONG_ID, config=config) as job:
        await killed(place, job.spec, operation="create_upload")
        assert pending(place) == [f"first-{LONG_ID}", f"second-{LONG_ID}"]
        await job.commit([])
    assert pending(place) == []


@pytest.mark.parametrize(
    "name",
    ["x.csv", f"x-{LONG_ID}0.csv", f"x-{LONG_ID}-1.csv", f"{LONG_ID}.csv", f"{LONG_ID}/x.csv", f"x-{LONG_ID[:-1]}.csv"],
    ids=["no token", "longer", "longer by a word", "no stem", "directory", "shorter"],
)
async def test_an_upload_that_cannot_be_told_is_left_alone(name: str, place: MemoryPlace) -> None:
    async with place.open_job(job_id=LONG_ID) as job:
        await place.space.store().create_upload(place.space.path(f"table/{name}"), stamp="somebody")
        message = await place.run_task(job, 0, {"y": b"y"})
        report = await job.commit([message])
    assert pending(place) == [name]
    assert report.uploads_left == [str(place.space.path(f"table/{name}"))]


@pytest.mark.parametrize("job_id", ["nightly-orders-2026-01-01", "job_202601010000_0001"])
async def test_an_id_that_another_job_may_have_in_its_names_tells_nothing(job_id: str, place: MemoryPlace) -> None:
    name = f"x-{job_id}.csv"
    async with place.open_job(job_id=job_id, config=CommitterConfig(unique_names=True)) as job:
        await place.space.store().create_upload(place.space.path(f"table/{name}"), stamp="somebody")
        await job.commit([])
    assert pending(place) == [name]


@pytest.mark.parametrize("other_id", [f"again-{LONG_ID}", f"{LONG_ID}.2", f"{LONG_ID}-c2"])
async def test_a_job_whose_id_holds_the_whole_id_of_another_keeps_its_uploads(
    other_id: str, place: MemoryPlace
) -> None:
    config = CommitterConfig(unique_names=True)
    async with place.open_job(job_id=other_id, config=config) as other:
        message = await place.run_task(other, 0, {"theirs.csv": b"t"})
        async with place.open_job(job_id=LONG_ID, config=config) as job:
            await killed(place, job.spec, operation="create_upload")
            report = await job.commit([])
        assert pending(place) == [f"theirs-{other_id}.csv"]
        assert report.uploads_left == [str(place.space.path(f"table/theirs-{other_id}.csv"))]
        await other.commit([message])
    assert place.files() == {f"theirs-{other_id}.csv": b"t"}


@pytest.mark.parametrize("other_id", [LONG_ID, f"{LONG_ID}.2", f"{LONG_ID}-c2"])
@pytest.mark.parametrize("nested", ["theirs", "ours"])
async def test_jobs_of_like_ids_at_two_destinations_keep_their_uploads(
    nested: str, other_id: str, place: MemoryPlace
) -> None:
    config, below = CommitterConfig(unique_names=True), f"{place.dest}/a=1"
    here, there, name = (place.dest, below, "x.csv") if nested == "theirs" else (below, place.dest, "a=1/x.csv")
    options = place.options
    async with committer.open_job(there, job_id=other_id, config=config, storage_options=options) as other:
        message = await place.run_task(other, 0, {name: b"t"})
        async with committer.open_job(here, job_id=LONG_ID, config=config, storage_options=options) as job:
            await job.commit([await place.run_task(job, 0, {"y.csv": b"y"})])
        assert pending(place) == [f"a=1/x-{other_id}.csv"]
        await other.commit([message])
    assert place.all_files()[f"a=1/x-{other_id}.csv"] == b"t"


async def test_names_tell_nothing_to_a_role_that_sees_the_destination_alone(place: MemoryPlace) -> None:
    async def forbidden(call: Call) -> None:
        if call.path.path == "/_temporary":
            raise StorePermissionError("injected", operation=call.operation, path=call.path)

    config = CommitterConfig(unique_names=True)
    async with place.open_job(job_id=LONG_ID, config=config) as job:
        await killed(place, job.spec, operation="create_upload")
        place.store.before_call = forbidden
        report = await job.commit([])
    assert len(report.uploads_left) == len(pending(place)) == 1


async def test_an_older_upload_is_not_the_jobs_whatever_its_name(place: MemoryPlace) -> None:
    name = f"x-{LONG_ID}.csv"
    place.space.uploads.create(place.space.path(f"table/{name}"), "earlier")
    (upload_id,) = place.space.uploads._pending
    old = place.space.uploads._pending[upload_id]
    old.status = type(old.status)(old.status.path, upload_id, old.status.initiated - 60.0)
    report = await committing(place, ["y"], job_id=LONG_ID)
    assert pending(place) == [name]
    assert report.uploads_left == []


async def test_uploads_beside_the_destination_and_of_other_jobs_stay(place: MemoryPlace) -> None:
    store = place.space.store()
    for name in ("table10/x", "other/y"):
        await store.create_upload(place.space.path(name), stamp="somebody")
    other = await place.open_job(job_id="other")
    message = await place.run_task(other, 0, {"theirs": b"t"})
    await committing(place, ["mine"], job_id="mine")
    job = await place.open_job(job_id="doomed")
    await place.run_task(job, 0, {"doomed": b"d"})
    await job.abort()
    assert pending(place) == ["/other/y", "/table10/x", "theirs"]
    await other.commit([message])
    assert place.files() == {"mine": b"mine", "theirs": b"t"}


# -- refusals and rollback ------------------------------------------------------------------------------------------


async def test_the_sixth_of_twelve_is_refused_five_are_deleted_and_seven_aborted(place: MemoryPlace) -> None:
    names = [f"f{number:02d}" for number in range(12)]
    before: list[Call] = []

    async def somebody_else(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "f05" and not before:
            before.append(call)
            place.write("f05", b"somebody's")

    place.store.before_call = somebody_else
    with pytest.raises(TargetExistsError) as caught:
        await committing(place, names, config=CommitterConfig(io_concurrency=1))
    assert caught.value.outcome == "unchanged"
    assert place.files() == {"f05": b"somebody's"}
    assert pending(place) == []
    counts = place.store.counts()
    assert (counts["complete_upload"], counts["delete_file_if"], counts["abort_upload"]) == (6, 5, 7)
    assert place.temporary() == set()


async def test_an_earlier_success_marker_comes_back_with_a_rollback(place: MemoryPlace) -> None:
    await committing(place, ["old"], job_id="earlier")
    marker = place.read("_SUCCESS")

    async def somebody_else(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "b" and "b" not in place.files():
            assert "_SUCCESS" not in place.all_files()
            place.write("b", b"somebody's")

    place.store.before_call = somebody_else
    with pytest.raises(TargetExistsError):
        await committing(place, ["a", "b"], config=CommitterConfig(io_concurrency=1))
    assert place.read("_SUCCESS") == marker
    assert place.files() == {"old": b"old", "b": b"somebody's"}


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
        assert place.read("_SUCCESS") == marker
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


async def test_one_destination_of_two_tasks_is_refused(place: MemoryPlace) -> None:
    with pytest.raises(PreflightError, match="x is written by"):
        async with place.open_job() as job:
            await job.commit([await place.run_task(job, task, {"x": b"x"}) for task in (0, 1)])
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
    place.write("a", b"somebody's")
    await committer.recover(place.dest, "j", rollback=True, storage_options={"store": place.space.store()})
    assert place.files() == {"a": b"somebody's"}
    assert pending(place) == []


# -- answers that are lost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers_again", [False, True])
async def test_a_completion_whose_answer_is_lost_is_found_done(answers_again: bool, place: MemoryPlace) -> None:
    place.space.uploads.answers_again = answers_again
    place.faults(Fault(kind="lost", operation="complete_upload"))
    report = await committing(place, ["a", "b"])
    assert report.files_committed == 2
    assert place.store.count("complete_upload") == 2


async def test_whoever_recovers_finds_what_was_completed(place: MemoryPlace) -> None:
    place.faults(Fault(kind="crash_after", operation="complete_upload", path="/table/b"))
    with pytest.raises(SimulatedCrash):
        await committing(place, ["a", "b", "c"], job_id="j", config=CommitterConfig(io_concurrency=1))
    assert place.files() == {"a": b"a", "b": b"b"}
    report = await committer.recover(place.dest, "j", storage_options={"store": place.space.store()})
    assert report.success
    assert place.files() == {"a": b"a", "b": b"b", "c": b"c"}
    assert pending(place) == []


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
    place.write("_temporary/over/00/superseded/_SUCCESS", b"{}")
    report = await committer.cleanup(place.dest, older_than=3600.0, storage_options=place.options)
    assert report.kept == {"over": "it is younger"}
    report = await committer.cleanup(place.dest, older_than=0.0, storage_options=place.options)
    assert (report.removed, place.temporary()) == (["over"], set())


# -- old files ------------------------------------------------------------------------------------------------------


async def test_old_files_go_after_the_outcome_and_before_the_marker(place: MemoryPlace) -> None:
    place.write("a=1/old", b"old")
    seen: list[str] = []

    async def watch(call: Call) -> None:
        stands = [name for name in ("a=1/old", "a=1/new", "_SUCCESS") if name in place.all_files()]
        outcome = any(name.endswith("/outcome") for name in place.all_files())
        seen.append(f"{'+'.join(stands)}{' ended' if outcome else ''}")

    place.store.before_call = watch
    await committing(place, ["a=1/new"], config=CommitterConfig(conflict_mode="replace"))
    order = list(dict.fromkeys(seen))
    assert order[:4] == ["a=1/old", "a=1/old+a=1/new", "a=1/old+a=1/new ended", "a=1/new ended"]
    assert place.files() == {"a=1/new": b"a=1/new"}


async def test_a_directory_at_a_files_target_that_is_gone_already_does_not_stop_a_recovery(place: MemoryPlace) -> None:
    place.write("x/inner", b"old")
    store = FaultyStore(place.space.store(), [Fault(kind="crash_after", operation="put", path="table/_SUCCESS")])
    config = CommitterConfig(existing_target="replace")
    with pytest.raises(SimulatedCrash):
        async with committer.open_job(place.dest, job_id="j", config=config, storage_options={"store": store}) as job:
            await job.commit([await place.run_task(job, 0, {"x": b"new"})])
    report = await place.recover("j")
    assert report.success
    assert place.files() == {"x": b"new"}
    assert place.temporary() == set()


async def test_of_a_directory_at_a_files_target_only_what_stood_there_goes(place: MemoryPlace) -> None:
    """A bucket has no directories: what somebody puts below that name meanwhile is another file."""
    place.write("x/old", b"old")
    place.write("x/changed", b"old")

    async def somebody_else(call: Call) -> None:
        if call.operation == "complete_upload":
            place.write("x/changed", b"somebody's")
            place.write("x/_temporary/other/setup", b"{}")

    place.store.before_call = somebody_else
    await committing(place, ["x"], config=CommitterConfig(existing_target="replace"))
    assert place.files() == {"x": b"x", "x/changed": b"somebody's", "x/_temporary/other/setup": b"{}"}


@pytest.mark.parametrize("delivery", ["message", "listing"])
async def test_a_directory_that_another_job_runs_into_is_never_taken_away(delivery: str, place: MemoryPlace) -> None:
    options = place.options
    nested = await committer.open_job(f"{place.dest}/x/y", job_id="other", delivery=delivery, storage_options=options)
    with pytest.raises(TargetExistsError, match=r"x/y/(_temporary/|__magic_job-)other") as caught:
        await committing(place, ["x"], config=CommitterConfig(existing_target="replace"))
    assert "x/y', 'other')" in caught.value.next_step
    await nested.commit([await place.run_task(nested, 0, {"z": b"z"})])
    assert place.read("x/y/z") == b"z"


async def test_an_old_file_that_somebody_changed_since_stays(place: MemoryPlace) -> None:
    place.write("a=1/old", b"old")
    place.write("a=1/older", b"older")

    async def somebody_else(call: Call) -> None:
        if call.operation == "complete_upload":
            place.write("a=1/old", b"somebody's")

    place.store.before_call = somebody_else
    await committing(place, ["a=1/new"], config=CommitterConfig(conflict_mode="replace"))
    assert place.files() == {"a=1/new": b"a=1/new", "a=1/old": b"somebody's"}


async def test_a_job_that_replaced_a_file_goes_forward_only(place: MemoryPlace) -> None:
    place.write("a", b"old")
    place.faults(Fault(kind="crash_before", operation="complete_upload", path="/table/b"))
    config = CommitterConfig(existing_target="replace", io_concurrency=1)
    with pytest.raises(SimulatedCrash):
        await committing(place, ["a", "b"], job_id="j", config=config)
    options = {"store": place.space.store()}
    with pytest.raises(JobStateError, match="can only go forward"):
        await committer.recover(place.dest, "j", rollback=True, force=True, storage_options=options)
    assert (await committer.recover(place.dest, "j", storage_options=options)).success
    assert place.files() == {"a": b"a", "b": b"b"}


# -- streams --------------------------------------------------------------------------------------------------------


def small_parts(**more: object) -> CommitterConfig:
    return CommitterConfig(multipart_size=10, multipart_in_flight=3, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "parts"), [(0, 1), (9, 1), (10, 1), (11, 2), (30, 3), (31, 4)])
async def test_a_stream_is_cut_into_parts(size: int, parts: int, place: MemoryPlace) -> None:
    data = bytes(range(size))
    async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task:
        async with task.open("x") as file:
            for start in range(0, size, 7):
                await file.write(data[start : start + 7])
        assert file.tell() == size
    assert place.files() == {"x": data}
    assert place.store.count("put_part") == parts


async def test_no_more_parts_are_under_way_than_allowed(place: MemoryPlace) -> None:
    under_way = most = 0
    inner = place.store.inner.put_part

    async def slow(path, upload_id, number, data):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _turn in range(50):
            await asyncio.sleep(0)
        under_way -= 1
        return await inner(path, upload_id, number, data)

    place.store.inner.put_part = slow
    async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task, task.open("x") as file:
        await file.write(bytes(200))
    assert most == 3
    assert place.files() == {"x": bytes(200)}


async def test_a_part_that_cannot_be_sent_fails_the_file_and_the_upload_is_ended(place: MemoryPlace) -> None:
    async with place.open_job(config=small_parts()) as job:
        place.faults(Fault(kind="forbidden", operation="put_part", times=None))
        with pytest.raises(committer.CommitterError):
            async with place.open_task(job.spec, 0) as task, task.open("x") as file:
                for _ in range(20):
                    await file.write(bytes(10))
        assert pending(place) == []
        await job.commit([])


async def test_more_parts_than_the_store_takes_are_refused() -> None:
    place = MemoryPlace("s3", max_parts=3)
    with pytest.raises(TaskError, match="more than 3 parts of 10 bytes"):
        async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task, task.open("x") as file:
            await file.write(bytes(41))
    assert pending(place) == []


async def test_parts_are_as_long_as_the_store_asks_for() -> None:
    place = MemoryPlace("s3", min_part_bytes=25)
    async with place.open_job(config=small_parts()) as job, job.task_attempt(0) as task, task.open("x") as file:
        await file.write(bytes(60))
    assert place.store.count("put_part") == 3
    assert place.files() == {"x": bytes(60)}


async def test_a_long_stream_takes_the_memory_of_two_parts_and_those_under_way(place: MemoryPlace) -> None:
    part = 1 << 20

    async def forgetful(path, upload_id, number, data):
        size = len(data)
        for _turn in range(20):
            await asyncio.sleep(0)
        return UploadPart(number, "etag", size)

    # The counting store keeps copies of its own.
    store = place.store.inner
    store.put_part = forgetful
    config = CommitterConfig(multipart_size=part, multipart_in_flight=3)
    job = await committer.open_job(place.dest, config=config, storage_options={"store": store})
    task = await job.task_attempt(0)
    chunk = bytes(part)
    tracemalloc.start()
    try:
        async with task.open("x") as file:
            for _ in range(128):
                await file.write(chunk)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    await job.abort()
    # What the caller hands over is counted by the caller.
    assert 3 * part < peak < (2 + 3) * part


# -- records --------------------------------------------------------------------------------------------------------


async def test_a_record_names_its_uploads_and_a_list_stands_before_the_first_byte(place: MemoryPlace) -> None:
    async def listed(call: Call) -> None:
        if call.operation == "put_part":
            lists = [data for name, data in place.all_files().items() if "/uploads/" in name]
            assert any(
                json.loads(one)["uploads"] == [{"name": call.path.name, "id": ids[call.path.name]}] for one in lists
            )

    ids: dict[str, str] = {}
    inner = place.store.inner.create_upload

    async def create(path, *, stamp):
        ids[path.name] = await inner(path, stamp=stamp)
        return ids[path.name]

    place.store.inner.create_upload = create
    place.store.before_call = listed
    async with place.open_job() as job:
        message = await place.run_task(job, 0, {"x": b"x", "y": b"y"})
        record = json.loads(message.inline)
        assert [entry["u"]["id"] for entry in record["files"]] == [ids["x"], ids["y"]]
        assert all("e" not in entry for entry in record["files"])
        await job.commit([message])


@pytest.mark.parametrize("name", ["../elsewhere/x", "_temporary/other/setup", "/elsewhere/x", "", None])
async def test_a_list_that_names_what_is_not_the_jobs_ends_nothing(
    name: str | None, place: MemoryPlace, caplog: pytest.LogCaptureFixture
) -> None:
    store = place.space.store()
    upload_id = await store.create_upload(place.space.path("elsewhere/x"), stamp="somebody")
    job = await place.open_job(job_id="j")
    record = {"type": "committer.uploads", "version": 1, "job_id": "j", "task_attempt": "a"}
    record["uploads"] = [{"name": name, "id": upload_id}]
    place.write("_temporary/j/00/uploads/a-1/00001", json.dumps(record).encode())
    await job.abort()
    await job.close()
    assert pending(place) == ["/elsewhere/x"]
    assert "stay" in caplog.text
    assert place.temporary() == set()


async def test_a_record_without_uploads_is_refused_before_the_decision(place: MemoryPlace) -> None:
    with pytest.raises(PreflightError, match="are gone"):
        async with place.open_job() as job:
            message = await place.run_task(job, 0, {"x": b"x"})
            record = json.loads(message.inline)
            del record["files"][0]["u"]
            data = json.dumps(record).encode()
            store = place.space.store()
            path = job._context.layout.attempt_record(0, 0, message.nonce)
            await store.put(path, data)
            forged = type(message)(
                **{
                    **{name: getattr(message, name) for name in message.__struct_fields__},
                    "digest": committer.records.task_commit.digest_of(data),
                    "length": len(data),
                    "inline": None,
                }
            )
            await job.commit([forged])
    assert place.store.count("complete_upload") == 0


def test_a_manifest_of_files_that_wait_in_no_upload_is_hadoops_to_the_letter() -> None:
    from committer.records.manifest import FileEntry, TaskManifest, encode_task_manifest

    data = encode_task_manifest(TaskManifest(files=[FileEntry(s="file:///a", d="file:///b", z=1)]))
    assert set(json.loads(data)["files"][0]) == {"s", "d", "z"}


async def test_the_space_is_found_by_name() -> None:
    """Two stores of one bucket share its uploads, as two processes do."""
    place = MemoryPlace("s3")
    async with place.open_job() as job:
        options = {"store": MemoryStore(place.space.name)}
        async with committer.open_task(job.spec, task=0, storage_options=options) as task, task.open("x") as file:
            await file.write(b"x")
        await job.commit([task.task_commit])
    assert place.files() == {"x": b"x"}
