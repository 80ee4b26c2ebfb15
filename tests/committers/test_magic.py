"""A job whose files wait in uploads: what is seen when, records, old files, parts, refusals, and lost answers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import count

import msgspec
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
)
from committer.records.task_commit import digest_of
from committer.stores.uploads import UploadPart
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.job_paths import in_job, in_magic
from tests.places import MemoryPlace, place_fixture
from tests.waiting_uploads import committing, peak_of_a_stream, pending

place = place_fixture("s3", delivery="message")


# -- what is seen when ------------------------------------------------------------------------------------------------


async def test_a_file_is_stamped_with_who_wrote_it(place: MemoryPlace) -> None:
    async with place.open_job(job_id="j") as job:
        message = await place.run_task(job, 7, {"x": b"x"}, attempt=2)
        await job.commit([message])
    status = await place.space.store().status(place.space.path("table/x"))
    assert status.stamp == f"j/7/2/{message.nonce}"


async def test_the_committer_follows_from_the_store_and_delivery_does_not(place: MemoryPlace) -> None:
    async with committer.open_job(place.dest, storage_options=place.options) as job:
        assert (job.spec.committer, job.spec.delivery) == ("magic", "listing")
        await job.commit([])
    async with MemoryPlace("local").open_job() as job:
        assert (job.spec.committer, job.spec.delivery) == ("manifest", "listing")


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("delivery", ["message", "listing"])
async def test_a_name_is_as_long_as_the_store_can_hold_what_tells_of_it(
    absolute: bool, delivery: str, place: MemoryPlace
) -> None:
    """Keys have up to 1,024 bytes: the file's and, by listing, those of Hadoop's records of it."""
    root = f"/{'r' * 950 if absolute else 'r'}"
    config = CommitterConfig(absolute_roots=(root,))
    async with place.open_job(job_id="j", delivery=delivery, config=config) as job, job.task_attempt(0) as task:
        above = "table/"
        if absolute:
            above = f"{root[1:]}/"
        elif delivery == "listing":
            above += in_magic(place, "j", f"tasks/attempt_j_m_000000_0/__base/{task.nonce}/.pending")
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
    dest, options = f"{place.dest}/{'d' * 880}", {"store": place.store}
    config = CommitterConfig(absolute_roots=("/r",))
    for delivery in ("message", "listing"):
        async with (
            committer.open_job(dest, job_id="j", delivery=delivery, config=config, storage_options=options) as job,
            job.task_attempt(0) as task,
        ):
            if delivery == "message":
                async with task.open_absolute("/r/x") as file:
                    await file.write(b"x")
                continue
            with pytest.raises(InvalidPathError, match="until its job commits, the path is longer"):
                task.open_absolute("/r/y")


async def test_a_record_that_the_store_cannot_hold_fails_its_task_and_leaves_nothing(place: MemoryPlace) -> None:
    """The record was never sent, so no driver can have read it: attempt and job are aborted."""
    dest, options = f"{place.dest}/{'d' * 880}", {"store": place.store}
    with pytest.raises(InvalidPathError) as caught:
        async with committer.open_job(dest, job_id="j" * 36, delivery="message", storage_options=options) as job:
            async with job.task_attempt(0) as task, task.open("x") as file:
                await file.write(b"x")
    assert (caught.value.outcome, getattr(caught.value, "__notes__", [])) == ("unchanged", [])
    assert (place.space.files(), pending(place)) == ({}, [])


# -- old files --------------------------------------------------------------------------------------------------------


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
    """A bucket has no directories: what another program puts below that name meanwhile is another file."""
    place.write("x/old", b"old")
    place.write("x/changed", b"old")

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload":
            place.write("x/changed", b"another job's")
            place.write("x/_temporary/other/setup", b"{}")

    place.store.before_call = another_program
    await committing(place, ["x"], config=CommitterConfig(existing_target="replace"))
    assert place.files() == {"x": b"x", "x/changed": b"another job's", "x/_temporary/other/setup": b"{}"}


@pytest.mark.parametrize("delivery", ["message", "listing"])
async def test_a_directory_that_another_job_runs_into_is_never_taken_away(delivery: str, place: MemoryPlace) -> None:
    options = place.options
    nested = await committer.open_job(f"{place.dest}/x/y", job_id="other", delivery=delivery, storage_options=options)
    with pytest.raises(TargetExistsError, match=r"x/y/(_temporary/|__magic_job-)other") as caught:
        await committing(place, ["x"], config=CommitterConfig(existing_target="replace"))
    assert "x/y', 'other'" in caught.value.next_step
    await nested.commit([await place.run_task(nested, 0, {"z": b"z"})])
    assert place.read("x/y/z") == b"z"


async def test_an_old_file_that_another_program_changed_since_stays(place: MemoryPlace) -> None:
    place.write("a=1/old", b"old")
    place.write("a=1/older", b"older")

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload":
            place.write("a=1/old", b"another job's")

    place.store.before_call = another_program
    await committing(place, ["a=1/new"], config=CommitterConfig(conflict_mode="replace"))
    assert place.files() == {"a=1/new": b"a=1/new", "a=1/old": b"another job's"}


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


# -- records ----------------------------------------------------------------------------------------------------------


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
    upload_id = await store.create_upload(place.space.path("elsewhere/x"), stamp="another-program")
    job = await place.open_job(job_id="j")
    record = {"type": "committer.api.uploads", "version": 1, "job_id": "j", "task_attempt": "a"}
    record["uploads"] = [{"name": name, "id": upload_id}]
    place.write(in_job(place, "j", "00/uploads/a-1/00001"), json.dumps(record).encode())
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
            await place.space.store().put(job._context.layout.attempt_record(0, 0, message.nonce), data)
            forged = {"digest": digest_of(data), "length": len(data), "inline": None}
            await job.commit([msgspec.structs.replace(message, **forged)])
    assert place.store.count("complete_upload") == 0


# -- files that are sent part by part while they are written ------------------------------------------------------------


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
    peak = await peak_of_a_stream(task, bytes(part), 128)
    await job.abort()
    assert 3 * part < peak < (2 + 3) * part


# -- jobs of uploads that are refused, rolled back, or get no answer -----------------------------------------------------


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
    with pytest.raises(TargetExistsError, match="a file exists at x"):
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
