"""A job whose files wait in uploads: what is seen when, what its records say, what becomes of old files."""

from __future__ import annotations

import json

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import InvalidPathError, JobStateError, PreflightError, TargetExistsError
from committer.records.task_commit import digest_of
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.engine.places import MemoryPlace, place_fixture
from tests.engine.uploads import committing, pending
from tests.job_paths import in_job, in_magic

place = place_fixture("s3", delivery="message")


# -- what is seen when ------------------------------------------------------------------------------------------------


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


async def test_the_committer_follows_from_the_store_and_delivery_does_not(place: MemoryPlace) -> None:
    async with committer.open_job(place.dest, storage_options=place.options) as job:
        assert (job.spec.committer, job.spec.delivery) == ("magic", "listing")
        await job.commit([])
    async with MemoryPlace("local").open_job() as job:
        assert (job.spec.committer, job.spec.delivery) == ("manifest", "listing")


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
    """It was never sent, so no executor can have read it: attempt and job are aborted."""
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
