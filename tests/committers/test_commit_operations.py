"""Twin of Hadoop's ITestCommitOperations, and of ITestCommitOperationCost by calls of the store: what commits by uploads
do one by one, on a store that refuses, throttles, or has something in the way.

What else those suites try is proved in `test_magic.py` (the committer by store, records, old files),
`test_magic_ended_uploads.py` (losers, killed executors, neighbours), `test_magic.py` (12 uploads of which the
6th is refused: 5 deletes, 7 aborts; lost answers), `test_pending_sets.py` (records, markers, Hadoop's jobs),
`test_commit_protocol.py` (two attempts of a task that both commit, aborts), `tests/records/test_pending_set.py` (both
shapes of etags), `tests/options/test_config.py` (Hadoop's keys), and on servers in `tests/s3`: `test_commit_operations.py`
(requests, parts that fail), `test_pending_sets.py` (the header of a marker), `test_magic.py` (odd names),
`test_java_jobs.py` (Hadoop itself).

Where this engine differs on purpose: who opens a file decides whether it waits, not its path, so no path is parsed for
its key; no marker is renamed; an abort ends the job's own uploads, never those below a prefix; what an abort cannot
list is an error, after which it can be done again.
"""

from __future__ import annotations

from collections import Counter

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError, StorePermissionError, StoreUploadNotFoundError, TargetExistsError
from committer.flow.runtime import use_runtime
from committer.records.pending_set import decode_pending
from committer.testing.faults import Call, Fault, FaultyStore
from committer.testing.virtual_time import VirtualRuntime
from tests.places import Delivery, MemoryPlace, place_fixture, write_file
from tests.waiting_uploads import pending

place = place_fixture("s3", delivery="message")

BOTH = pytest.mark.parametrize("delivery", ["message", "listing"])
SMALL = {"empty": b"", "a=1/small": b"small"}


def every_other_call(place: MemoryPlace) -> None:
    """Throttles each request once, as long as none is made beside another."""
    made = place.store.count()
    place.faults(*[Fault(kind="throttled", call=made + number) for number in range(1, 400, 2)])


# -- which files wait, and where they go ------------------------------------------------------------------------------


@BOTH
async def test_who_opens_a_file_decides_whether_it_waits(delivery: Delivery, place: MemoryPlace) -> None:
    """A plain stream is as it ever was, beside the job's files and among its records, too."""
    store = place.space.store()
    async with place.open_job(job_id="j", delivery=delivery) as job:
        message = await place.run_task(job, 0, {"waits": b"w"})
        for name in ("plain", "__magic_job-j/job-j/00/tasks/attempt_j_m_000000_0/__base/plain"):
            writer = await store.open_writer(place.space.path(f"table/{name}"))
            await writer.write(b"p")
            await writer.close()
            assert place.read(name) == b"p"
        await store.put(place.space.path("table/put"), b"p")
        assert pending(place) == ["waits"]
        await job.commit([message])
    assert place.files() == {"waits": b"w", "plain": b"p", "put": b"p"}


@BOTH
@pytest.mark.parametrize(
    "name",
    [
        "x",
        "p=1/q=2/x",
        "a b=1/100%+é.csv",
        "__base/x",
        "p=1/__base/q=2/__base/x",
        "p=1/__magic_jobs/__base/x",
        "p=1/_temporary-j/x",
        "p=1/_SUCCESS",
        "x.pending",
        "x.pendingset",
        "p=1/task_j_m_000000.pendingset",
    ],
)
async def test_a_file_goes_where_its_name_says(name: str, delivery: Delivery, place: MemoryPlace) -> None:
    """Hadoop computes it from the path that is written to, from behind the first `__base`; here no path is asked."""
    async with place.open_job(job_id="j", delivery=delivery) as job:
        task = await place.open_task(job.spec, 0)
        await write_file(task, name, b"x")
        assert pending(place) == [name]
        records = {each: data for each, data in place.all_files().items() if each.endswith(".pending")}
        assert len(records) == (delivery == "listing")
        for each, data in records.items():
            assert each.endswith(f"/tasks/attempt_j_m_000000_0/__base/{task.nonce}/{name}.pending")
            assert decode_pending(data, source=each).destinationKey == f"table/{name}"
        await job.commit([await task.commit()])
    assert place.files() == {name: b"x"}
    assert (pending(place), place.temporary()) == ([], set())


@BOTH
async def test_a_file_outside_the_destination_goes_where_its_path_says(delivery: Delivery, place: MemoryPlace) -> None:
    root = f"memory://{place.space.name}/warehouse"
    config = CommitterConfig(absolute_roots=(root,))
    async with place.open_job(job_id="j", delivery=delivery, config=config) as job:
        task = await place.open_task(job.spec, 0)
        for at in (f"{root}/p=1/x", f"{root}/p=1/y"):
            async with task.open_absolute(at) as file:
                await file.write(b"x")
        await write_file(task, "warehouse/p=1/x", b"y")
        everywhere = ["/warehouse/p=1/x", "/warehouse/p=1/y", "warehouse/p=1/x"]
        assert pending(place) == everywhere
        records = [
            decode_pending(data, source=name) for name, data in place.all_files().items() if "/tasks/" in name and data
        ]
        keys = sorted(record.destinationKey for record in records)
        assert keys == (
            ["table/warehouse/p=1/x", "warehouse/p=1/x", "warehouse/p=1/y"] if delivery == "listing" else []
        )
        await job.commit([await task.commit()])
    assert (place.files(), pending(place), place.temporary()) == ({"warehouse/p=1/x": b"y"}, [], set())
    outside = {name: data for name, data in place.space.files().items() if name.startswith("/warehouse/")}
    assert outside == {"/warehouse/p=1/x": b"x", "/warehouse/p=1/y": b"x"}


@BOTH
async def test_records_are_no_output(delivery: Delivery, place: MemoryPlace) -> None:
    """Those of a job that leaves them there: no report counts them, no validation misses them, no job replaces them."""
    config = CommitterConfig(cleanup_skipped=True)
    async with place.open_job(job_id="j", delivery=delivery, config=config) as job:
        message = await place.run_task(job, 0, {"a=1/x": b"x"})
        report = await job.commit([message], tasks=1)
    left = {name: place.read(name) for name in place.temporary()}
    assert any(name.endswith(".pendingset") for name in left) == (delivery == "listing")
    assert report.filenames == [f"{place.dest}/a=1/x"]
    validated = await committer.validate(place.dest, storage_options=place.options)
    assert (validated.ok, validated.files, validated.extra) == (True, 1, [])
    config = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
    async with place.open_job(job_id="k", config=config) as job:
        await job.commit([await place.run_task(job, 0, {"a=2/y": b"y"})])
    assert place.files() == {"a=2/y": b"y"}
    assert {name: place.read(name) for name in place.temporary()} == left


# -- throttling -------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("ending", ["commit", "abort the task", "abort the job"])
async def test_empty_and_small_files_under_throttling(ending: str, delivery: Delivery, place: MemoryPlace) -> None:
    config = CommitterConfig(io_concurrency=1)
    with use_runtime(VirtualRuntime()):
        job = await place.open_job(delivery=delivery, config=config)
        every_other_call(place)
        task = await place.open_task(job.spec, 0)
        for name, data in SMALL.items():
            await write_file(task, name, data)
        if ending == "commit":
            await job.commit([await task.commit()], tasks=1)
        else:
            if ending == "abort the task":
                await task.abort()
                assert pending(place) == []
            await job.abort()
        await job.close()
    throttled = {call.operation for call in place.store.calls if call.fault}
    ended = {"complete_upload"} if ending == "commit" else {"abort_upload", "list_parts"}
    assert throttled >= {"create_upload", "put", "list", "put_part", "list_uploads", "delete_directory"} | ended
    assert place.files() == (SMALL if ending == "commit" else {})
    assert (pending(place), place.temporary()) == ([], set())


async def test_many_files_under_throttling(place: MemoryPlace) -> None:
    """Every file is completed by as many requests as the store refused, and one."""
    files, refused = 300, 200
    with use_runtime(VirtualRuntime()):
        async with place.open_job() as job:
            messages = [
                await place.run_task(job, task, {f"t={task}/{number}": b"x" for number in range(task, files, 6)})
                for task in range(6)
            ]
            place.faults(Fault(kind="throttled", operation="complete_upload", times=refused))
            report = await job.commit(messages, tasks=6)
    assert report.files_committed == len(place.files()) == files
    assert place.store.count("complete_upload") == files + refused
    assert report.statistics.counters["store_io_throttled"] == refused
    assert (pending(place), place.temporary()) == ([], set())


# -- files rolled back -------------------------------------------------------------------------------------------------


async def test_empty_and_small_files_are_taken_back(place: MemoryPlace) -> None:
    """By their stamp and length: an empty file of another program would be the same by its content alone."""

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "last":
            place.write("empty", b"")
            place.write("last", b"another job's")

    place.store.before_call = another_program
    with pytest.raises(TargetExistsError) as caught:
        async with place.open_job(config=CommitterConfig(io_concurrency=1)) as job:
            await job.commit([await place.run_task(job, 0, {**SMALL, "empty-too": b"", "last": b"l"})])
    assert caught.value.outcome == "unchanged"
    assert place.files() == {"empty": b"", "last": b"another job's"}
    assert (pending(place), place.temporary()) == ([], set())


# -- aborts -----------------------------------------------------------------------------------------------------------


@BOTH
async def test_an_abort_of_what_is_not_there(delivery: Delivery, place: MemoryPlace) -> None:
    """A task that never ran, an attempt whose records are gone, a job that is gone."""
    job = await place.open_job(job_id="j", delivery=delivery)
    await job.abort_task(7, 0)
    task = await place.open_task(job.spec, 0)
    await write_file(task, "x", b"x")
    for name in [name for name in place.temporary() if "/uploads/" in name or "/tasks/" in name]:
        place.remove(name)
    await job.abort_task(0, 0)
    assert pending(place) == ["x"]
    # Its writer needs no record.
    await task.abort()
    assert pending(place) == []
    for name in place.temporary():
        place.remove(name)
    with pytest.raises(JobNotFoundError):
        await place.recover("j")
    await job.abort()
    await job.close()
    assert (place.all_files(), await place.states()) == ({}, {})


@BOTH
@pytest.mark.parametrize(
    ("operation", "path"),
    [("list_uploads", "/table"), ("list", "/uploads"), ("list", "/uploads/attempt_j_m_000000_0-"), ("read", "/00001")],
)
async def test_a_listing_that_fails_during_an_abort(
    operation: str, path: str, delivery: Delivery, place: MemoryPlace
) -> None:
    """It says so, the job is decided against, and the next abort ends what this one could not find."""
    job = await place.open_job(job_id="j", delivery=delivery)
    for task in range(2):
        await place.open_task(job.spec, task)
        await write_file(await place.open_task(job.spec, task), f"x{task}", b"x")
    place.faults(Fault(kind="forbidden", operation=operation, path=path))
    with pytest.raises(StorePermissionError) as caught:
        await job.abort()
    assert caught.value.next_step
    assert await place.states() == {"j": "aborted"}
    await job.abort()
    await job.close()
    assert (pending(place), place.all_files()) == ([], {})


# -- attempts and jobs that outlive others ------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["commit", "abort"])
@pytest.mark.parametrize(
    ("delivery", "moment"),
    [("message", "part"), ("message", "commit"), ("listing", "part"), ("listing", "marker"), ("listing", "commit")],
)
async def test_an_attempt_that_is_late(delivery: Delivery, moment: str, ending: str, place: MemoryPlace) -> None:
    """HADOOP-16632: nothing of it is seen, its upload is ended, and what it still writes of records can be cleaned up."""
    job = await place.open_job(job_id="j", delivery=delivery)
    winner = await place.run_task(job, 1, {"winner": b"w"})
    late, ended = FaultyStore(place.space.store()), False

    async def end() -> None:
        nonlocal ended
        if not ended:
            ended = True
            await (job.commit([winner]) if ending == "commit" else job.abort())

    async def before(call: Call) -> None:
        if (moment == "part" and call.operation == "put_part") or (moment == "marker" and "/__base/" in str(call.path)):
            await end()

    late.before_call = before
    with pytest.raises((StoreUploadNotFoundError, JobNotFoundError)) as caught:
        async with committer.open_task(job.spec, task=0, storage_options={"store": late}) as task:
            await write_file(task, "late", b"l")
            await end()
    # Once its record stands, nobody knows whether a driver read that before the job was gone.
    assert caught.value.outcome == ("unchanged" if moment == "part" else "unknown")
    await job.close()
    seen = {"winner": b"w"} if ending == "commit" else {}
    assert (place.files(), pending(place)) == (seen, [])
    # What it wrote after the job's cleanup is no job's.
    assert bool(place.temporary()) == (moment != "part")
    if place.temporary():
        assert await place.states() == {"j": "unknown"}
        with pytest.raises(JobNotFoundError):
            await place.attach_job("j")
        report = await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
        assert (report.removed, report.kept) == (["j"], {})
    assert (place.files(), pending(place), place.temporary()) == (seen, [], set())


@pytest.mark.parametrize("first_ends", ["commit", "abort"])
@pytest.mark.parametrize("deliveries", [("listing", "listing"), ("message", "message"), ("listing", "message")])
async def test_two_jobs_into_one_directory(
    deliveries: tuple[Delivery, Delivery], first_ends: str, place: MemoryPlace
) -> None:
    """HADOOP-17318 and HADOOP-18797: their tasks have the same numbers, and who ends first leaves the other's alone."""
    first, second = [
        await place.open_job(job_id=job_id, delivery=delivery)
        for job_id, delivery in zip(("job", "job-2"), deliveries, strict=True)
    ]
    begun = [await place.open_task(job.spec, 0) for job in (first, second)]
    for number, task in enumerate(begun):
        await write_file(task, f"p=1/x{number}", b"%d" % number)
    messages = [await begun[0].commit()]
    if first_ends == "commit":
        await first.commit(messages, tasks=1)
    else:
        await first.abort()
    assert pending(place) == ["p=1/x1"]
    assert await place.states() == {"job-2": "open"}
    report = await second.commit([await begun[1].commit(), await place.run_task(second, 1, {"p=1/y": b"y"})], tasks=2)
    assert report.uploads_left == []
    await first.close()
    await second.close()
    own = {"p=1/x0": b"0"} if first_ends == "commit" else {}
    assert place.files() == {**own, "p=1/x1": b"1", "p=1/y": b"y"}
    assert (pending(place), place.temporary()) == ([], set())


# -- parts that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["throttled", "unavailable", "unanswered", "lost", "late", "again"])
async def test_a_part_that_fails_and_is_sent_again(kind: str, place: MemoryPlace) -> None:
    """HADOOP-19221: whatever became of the first request, the file is whole."""
    data = bytes(range(35))
    with use_runtime(VirtualRuntime()):
        async with place.open_job(config=CommitterConfig(multipart_size=10)) as job, job.task_attempt(0) as task:
            place.faults(
                Fault(kind=kind, operation="put_part", path="/x", times=2)  # type: ignore[arg-type]
            )
            async with task.open("x") as file:
                for start in range(0, 35, 7):
                    await file.write(data[start : start + 7])
    assert place.files() == {"x": data}
    assert [call.fault for call in place.store.calls if call.operation == "put_part"].count(kind) == 2
    assert pending(place) == []


# -- what operations cost ---------------------------------------------------------------------------------------------


async def calls_of(place: MemoryPlace, delivery: Delivery, tasks: int, files: int) -> tuple[Counter[str], ...]:
    """The calls that writing, committing tasks, and committing the job take."""
    phases = []

    def phase() -> None:
        phases.append(place.store.counts())
        place.store.calls.clear()

    async with place.open_job(delivery=delivery) as job:
        place.store.calls.clear()
        attempts = [await place.open_task(job.spec, number) for number in range(tasks)]
        for number, attempt in enumerate(attempts):
            for each in range(files):
                await write_file(attempt, f"{number}-{each}", b"x")
        phase()
        messages = [await attempt.commit() for attempt in attempts]
        phase()
        await job.commit(messages, tasks=tasks)
        phase()
    return tuple(phases)


@BOTH
async def test_calls_of_files_and_tasks(delivery: Delivery) -> None:
    """HADOOP-17833: no file is looked for before, while, or after it is written, and none is probed or deleted."""

    async def costs(tasks: int, files: int) -> tuple[Counter[str], ...]:
        return await calls_of(MemoryPlace("s3"), delivery, tasks, files)

    base, more_files, more_tasks = await costs(4, 2), await costs(4, 5), await costs(14, 2)
    listing = delivery == "listing"
    # Begun, listed, its job looked at, sent; and, for Hadoop's abort, a marker and a record.
    file = Counter({"create_upload": 1, "put": 3 if listing else 1, "list": 1, "put_part": 1})
    writing, committing, publishing = [after - before for before, after in zip(base, more_files, strict=True)]
    assert writing == {name: 12 * calls for name, calls in file.items()}
    assert committing == {}
    assert publishing == {"complete_upload": 12}

    writing, committing, publishing = [after - before for before, after in zip(base, more_tasks, strict=True)]
    # The directory of an attempt, which costs nothing on S3, and a look at its job; another one beside its record.
    task = Counter({"list": 1, "make_directory": 1})
    assert writing == {name: 10 * calls for name, calls in (file + file + task).items()}
    assert committing == {"put": 10, "list": 10, **({"delete_directory": 10} if listing else {})}
    # One of its uploads is looked for; a record under the task's name is read, and its copy shares a file with others.
    assert publishing == {"complete_upload": 20, "list_parts": 10, **({"read": 10} if listing else {})}
