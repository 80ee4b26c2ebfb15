"""Uploads of attempts that do not win: ended by whom, told by what, and never those of others."""

from __future__ import annotations

from typing import Any

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError, StorePermissionError
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.job_paths import in_job, in_magic
from tests.places import Delivery, MemoryPlace, place_fixture, write_file
from tests.waiting_uploads import committing, end_job, pending

LONG_ID = "0b6d7c1e-5a4f-4c36-9a55-2b1d8f0c9e11"

place = place_fixture("s3", delivery="message")


async def test_uploads_of_an_attempt_that_lost_are_ended_with_the_job(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {"x": b"loser"}, attempt=0)
        winner = await place.run_task(job, 0, {"x": b"winner"}, attempt=1)
        await job.commit([winner], tasks=1)
    assert place.files() == {"x": b"winner"}
    assert pending(place) == []


async def test_an_attempt_that_fails_ends_its_uploads_those_never_closed_too(place: MemoryPlace) -> None:
    async with place.open_job() as job:
        with pytest.raises(ZeroDivisionError):
            async with place.open_task(job.spec, 0) as task:
                await write_file(task, "closed", b"1")
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
                await write_file(task, name, b"x")


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
    await end_job(place, job, ending)
    assert pending(place) == []
    assert place.temporary() == set()


@pytest.mark.parametrize("ending", ["commit", "abort"])
async def test_an_executor_that_outlives_its_job_sends_nothing_it_lists_then(ending: str, place: MemoryPlace) -> None:
    job = await place.open_job(job_id="j")

    async def end(call: Call) -> None:
        # Just before the list is written: the process that ends the job cannot find it.
        if call.operation == "put" and "/uploads/" in call.path.path:
            await (job.commit([]) if ending == "commit" else job.abort())

    faults = [Fault(kind="crash_after", operation="put_part")]
    store = FaultyStore(place.space.store(), faults, before_call=end)
    with pytest.raises(JobNotFoundError):
        async with committer.open_task(job.spec, task=0, storage_options={"store": store}) as task:
            await write_file(task, "x", b"x")
    await job.close()
    assert store.count("put_part") == 0
    assert pending(place) == []


async def test_late_attempt_leaves_no_upload_to_the_job_that_has_its_id_by_now(place: MemoryPlace) -> None:
    """By message it lists them elsewhere than the tasks of a job by listing do, and that job deletes the lists."""
    first = await place.open_job(job_id="j")
    late = await place.open_task(first.spec, 0)
    await first.abort()
    await first.close()
    async with place.open_job(job_id="j", delivery="listing") as second:
        with pytest.raises(JobNotFoundError):
            await write_file(late, "late", b"x")
        await place.run_task(second, 0, {"new": b"y"})
        await second.commit(tasks=1)
    assert place.files() == {"new": b"y"}
    assert pending(place) == []
    await committer.cleanup(place.dest, older_than=0, storage_options=place.options)
    assert place.temporary() == set()


async def test_uploads_end_where_cleanup_is_left_out(place: MemoryPlace) -> None:
    async with place.open_job(config=CommitterConfig(cleanup_skipped=True)) as job:
        await killed(place, job.spec)
        await job.commit([])
    assert pending(place) == []
    assert place.temporary()


async def test_an_upload_whose_id_no_process_learned_is_found_by_the_token_in_its_name(place: MemoryPlace) -> None:
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
        await place.space.store().create_upload(place.space.path(f"table/{name}"), stamp="another-program")
        message = await place.run_task(job, 0, {"y": b"y"})
        report = await job.commit([message])
    assert pending(place) == [name]
    assert report.uploads_left == [str(place.space.path(f"table/{name}"))]


@pytest.mark.parametrize("job_id", ["nightly-orders-2026-01-01", "job_202601010000_0001"])
async def test_an_id_that_another_job_may_have_in_its_names_tells_nothing(job_id: str, place: MemoryPlace) -> None:
    name = f"x-{job_id}.csv"
    async with place.open_job(job_id=job_id, config=CommitterConfig(unique_names=True)) as job:
        await place.space.store().create_upload(place.space.path(f"table/{name}"), stamp="another-program")
        await job.commit([])
    assert pending(place) == [name]


@pytest.mark.parametrize("other_id", [f"again-{LONG_ID}", f"{LONG_ID}.2", f"{LONG_ID}-c2"])
async def test_a_job_whose_id_holds_the_id_of_another_keeps_its_uploads(other_id: str, place: MemoryPlace) -> None:
    config = CommitterConfig(unique_names=True)
    async with place.open_job(job_id=other_id, config=config) as other:
        async with place.open_job(job_id=LONG_ID, config=config) as job:
            message = await place.run_task(other, 0, {"theirs.csv": b"t"})
            await killed(place, job.spec, operation="create_upload")
            report = await job.commit([])
        assert pending(place) == [f"theirs-{other_id}.csv"]
        assert report.uploads_left == [str(place.space.path(f"table/theirs-{other_id}.csv"))]
        await other.commit([message])
    assert place.files() == {f"theirs-{other_id}.csv": b"t"}


@pytest.mark.parametrize("other_id", [LONG_ID, f"{LONG_ID}.2", f"{LONG_ID}-c2"])
@pytest.mark.parametrize("nested", ["theirs", "ours"])
async def test_jobs_of_like_ids_elsewhere_keep_their_uploads(nested: str, other_id: str, place: MemoryPlace) -> None:
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
        await store.create_upload(place.space.path(name), stamp="another-program")
    other = await place.open_job(job_id="other")
    message = await place.run_task(other, 0, {"theirs": b"t"})
    await committing(place, ["mine"], job_id="mine")
    job = await place.open_job(job_id="doomed")
    await place.run_task(job, 0, {"doomed": b"d"})
    await job.abort()
    assert pending(place) == ["/other/y", "/table10/x", "theirs"]
    await other.commit([message])
    assert place.files() == {"mine": b"mine", "theirs": b"t"}


@pytest.mark.parametrize("chosen", [{"job_id": "job"}, {"older_than": 0}], ids=["by name", "by age"])
@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_job_that_lost_its_setup_record_is_cleaned_up_whole(
    place: MemoryPlace, delivery: Delivery, chosen: dict[str, Any]
) -> None:
    """Nothing says any more how its driver learns of task commits, and so where its lists of uploads lie."""
    job = await place.open_job(job_id="job", delivery=delivery)
    await place.run_task(job, 0, {"x": b"1"})
    await killed(place, job.spec)
    await job.close()
    assert len(pending(place)) == 3
    place.remove(in_job(place, "job", "setup"))
    report = await committer.cleanup(place.dest, **chosen, storage_options=place.options)
    assert report.removed == ["job"]
    assert pending(place) == []
    assert place.temporary() == set()


@pytest.mark.parametrize("end", ["-c000.snappy.parquet", ".c001.csv.gz", "_00003.c000.parquet", "_123456.c000.parquet"])
async def test_uploads_of_a_lost_executor_of_spark_are_found_by_their_names(place: MemoryPlace, end: str) -> None:
    """S3A began them, and no list names them."""
    async with place.open_job(job_id=LONG_ID) as job:
        path = place.space.path(f"table/p=1/part-00000-{LONG_ID}{end}")
        await place.space.store().create_upload(path, stamp="none")
        report = await job.commit([])
    assert pending(place) == []
    assert report.uploads_left == []


@pytest.mark.parametrize("ending", ["commit", "abort", "cleanup", "recover"])
async def test_what_tasks_of_s3a_left_beside_a_job_by_message_goes_with_it(ending: str, place: MemoryPlace) -> None:
    job = await place.open_job(job_id="j")
    for of in ("j", "other"):
        place.write(in_magic(place, of, "tasks/attempt/__base/p=1/part"), b"")
    message = await place.run_task(job, 0, {"x": b"1"})
    await end_job(place, job, ending, [message])
    left = [name for name in place.all_files() if name.startswith("__magic")]
    assert left == [in_magic(place, "other", "tasks/attempt/__base/p=1/part")]
