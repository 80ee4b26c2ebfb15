"""Task commits as S3A's magic committer leaves them: what tasks write, and jobs of which Hadoop did a part."""

from __future__ import annotations

import asyncio
import json
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.cli import main
from committer.committers.pending_sets import composite_etag
from committer.errors import (
    CommitterError,
    DestinationBusyError,
    JobNotFoundError,
    JobUndecidedError,
    PreflightError,
    RecordError,
    TargetExistsError,
)
from committer.records.pending_set import decode_pending, decode_pending_set
from committer.stores.uploads import UploadPart
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.job_paths import in_magic
from tests.places import MemoryPlace, place_fixture, write_file
from tests.waiting_uploads import pending

FIXTURES = Path(__file__).parents[1] / "fixtures" / "java-magic-committer"
JOB = "0b6d7c1e-5a4f-4c36-9a55-2b1d8f0c9e11"
MAGIC = f"__magic_job-{JOB}"
ATTEMPT_DIRECTORY = f"{MAGIC}/job-{JOB}/00"
JAVA_ATTEMPT = "attempt_202401010000_0001_m_{task:06d}_{attempt}"

place = place_fixture("s3", delivery="message")


class JavaJob:
    """What Hadoop 3.5.0 leaves of a job, task by task; Java itself does so in tests/s3.

    Args:
        place: Where.
    """

    def __init__(self, place: MemoryPlace) -> None:
        self.place = place
        self.spec = JobSpec.for_hadoop(place.dest, JOB, committer="magic")

    def setup(self) -> None:
        # Memory keeps no markers of directories, so an empty file stands for the one that S3A makes.
        self.place.write(f"{MAGIC}/marker", b"")

    async def pending(self, name: str, data: bytes, attempt: str = "", **members: Any) -> dict[str, Any]:
        """Sends a file, in two parts; what its record says."""
        store, path = self.place.space.store(), self.place.space.path(f"table/{name}")
        upload_id = await store.create_upload(path, stamp="-")
        parts = [await store.put_part(path, upload_id, number, part) for number, part in ((1, data), (2, b""))]
        return {
            "version": 2,
            "uri": f"s3a://elsewhere/{name}",
            "uploadId": upload_id,
            "bucket": self.place.space.name,
            "destinationKey": path.path[1:],
            "jobId": JOB,
            "taskId": attempt,
            "etags": [{"etag": f'"{part.etag}"', "checksumAlgorithm": None, "checksum": None} for part in parts],
            "length": len(data),
            "partCount": 2,
            **members,
        }

    async def run_task(self, task: int, files: dict[str, bytes], attempt: int = 0, **members: Any) -> None:
        """Runs a task attempt."""
        name = JAVA_ATTEMPT.format(task=task, attempt=attempt)
        commits = [await self.pending(file, data, name) for file, data in files.items()]
        record = {"version": 3, "jobId": JOB, "commits": commits, **members}
        self.place.write(self.record(task), json.dumps(record).encode())

    async def leave(self, task: int, files: dict[str, bytes], attempt: int = 0) -> None:
        """Runs a task attempt up to its commit."""
        base = f"{ATTEMPT_DIRECTORY}/tasks/{JAVA_ATTEMPT.format(task=task, attempt=attempt)}/__base"
        for name, data in files.items():
            self.place.write(f"{base}/{name}", b"")
            self.place.write(f"{base}/{name}.pending", json.dumps(await self.pending(name, data)).encode())

    def record(self, task: int) -> str:
        return f"{ATTEMPT_DIRECTORY}/task_202401010000_0001_m_{task:06d}.pendingset"

    def attach(self) -> Any:
        return committer.attach_job(self.spec, storage_options=self.place.options)

    async def commit(self, **arguments: Any) -> committer.JobReport:
        async with self.attach() as job:
            report: committer.JobReport = await job.commit(**arguments)
            return report


@pytest.fixture
def java(place: MemoryPlace) -> JavaJob:
    job = JavaJob(place)
    job.setup()
    return job


def left(place: MemoryPlace) -> set[str]:
    """What is left of jobs."""
    return {name for name in place.all_files() if name.startswith(("_temporary", "__magic"))}


def visible(place: MemoryPlace) -> dict[str, bytes]:
    """What a reader sees."""
    return {name: data for name, data in place.files().items() if not name.startswith("__magic")}


# -- what tasks write -----------------------------------------------------------------------------------------------


async def test_what_a_task_leaves_while_it_runs_and_once_it_committed(place: MemoryPlace) -> None:
    job = await place.open_job(job_id=JOB, delivery="listing")
    task = await place.open_task(job.spec, 3, 1)
    for name, data in {"p=1/a b.csv": b"hello", "empty": b"", "odd.pending": b"x"}.items():
        await write_file(task, name, data)
    base = f"{in_magic(place, JOB)}/tasks/attempt_{JOB}_m_000003_1/__base/{task.nonce}"
    written = {name.removeprefix(f"{base}/") for name in place.all_files() if name.startswith(base)}
    # A marker of that name would be taken for a record.
    assert written == {"p=1/a b.csv", "p=1/a b.csv.pending", "empty", "empty.pending", "odd.pending.pending"}
    assert place.read(f"{base}/p=1/a b.csv") == b""
    one = decode_pending(place.read(f"{base}/p=1/a b.csv.pending"), source="one")
    assert (one.destinationKey, one.bucket, one.length) == ("table/p=1/a b.csv", place.space.name, 5)
    assert (one.jobId, one.taskId, [part.etag for part in one.etags]) == ("", "", [f'"{md5(b"hello").hexdigest()}"'])
    message = await task.commit()
    assert not any("/tasks/" in name for name in left(place))
    record = decode_pending_set(place.read(in_magic(place, JOB, f"task_{JOB}_m_000003.pendingset")), source="set")
    assert (record.jobId, {one.taskId for one in record.commits}) == (job.spec.unique_id, {f"attempt_{JOB}_m_000003_1"})
    assert sorted(one.destinationKey for one in record.commits) == [
        "table/empty",
        "table/odd.pending",
        "table/p=1/a b.csv",
    ]
    assert visible(place) == {}
    report = await job.commit([message], tasks=1)
    await job.close()
    assert (report.files_committed, report.bytes_committed) == (3, 6)
    assert visible(place) == {"p=1/a b.csv": b"hello", "empty": b"", "odd.pending": b"x"}
    assert (left(place), pending(place)) == (set(), [])


async def test_etags_are_texts_for_a_hadoop_that_knows_no_others(place: MemoryPlace) -> None:
    config = CommitterConfig(pending_etags="texts")
    async with place.open_job(job_id=JOB, delivery="listing", config=config) as job:
        await place.run_task(job, 0, {"x": b"x"})
        (record,) = json.loads(place.read(in_magic(place, JOB, f"task_{JOB}_m_000000.pendingset")))["commits"]
        assert record["etags"] == [f'"{md5(b"x").hexdigest()}"']
    assert visible(place) == {"x": b"x"}


async def test_success_is_in_the_form_of_s3a(place: MemoryPlace) -> None:
    await place.run_job({"p=1/a b.csv": b"hello"}, job_id=JOB)
    marker = json.loads(place.read("_SUCCESS"))
    assert marker["filenames"] == ["/table/p=1/a b.csv"]
    assert (marker["committer"], marker["jobIdSource"]) == ("magic", "lake-committer")
    assert marker["iostatistics"]["counters"]["committer_commits_completed"] == 1
    assert marker["metrics"]["op_create"] > 0
    assert marker["date"].split(" ")[-2] == "UTC"
    report = await committer.validate(place.dest, storage_options=place.options)
    assert (report.ok, report.files, report.complete) == (True, 1, True)
    place.write("p=1/more.csv", b"x")
    report = await committer.validate(place.dest, storage_options=place.options)
    assert report.extra == [f"{place.dest}/p=1/more.csv"]
    recovered = await committer.recover(place.dest, JOB, storage_options=place.options)
    assert recovered.filenames == [f"{place.dest}/p=1/a%20b.csv"]


async def test_what_javas_success_says(place: MemoryPlace) -> None:
    """S3A's own `_SUCCESS` of Hadoop 3.5.0, and the report that it amounts to."""
    marker = FIXTURES / "hadoop-3.5.0" / "_SUCCESS"
    place.write("_SUCCESS", marker.read_bytes())
    place.write("a=1/x y.csv", b"hello")
    report = await committer.validate(place.dest, storage_options=place.options)
    assert (report.ok, report.files, report.missing) == (False, 2, [f"{place.dest}/ü/e"])
    place.write("ü/e", b"")
    assert (await committer.validate(place.dest, storage_options=place.options)).ok
    ended = await place.recover(json.loads(marker.read_bytes())["jobId"])
    assert (ended.success, ended.files_committed, ended.bytes_committed) == (True, 2, 5)
    assert sorted(ended.filenames) == [f"{place.dest}/a=1/x%20y.csv", f"{place.dest}/ü/e"]


@pytest.mark.parametrize(("kind", "committer_of_store"), [("s3", "magic"), ("hdfs", "manifest"), ("gcs", "manifest")])
async def test_a_job_of_hadoops_has_the_committer_of_its_store(kind: str, committer_of_store: str) -> None:
    """Where its spec names none, each process finds it when it opens the job."""
    other = MemoryPlace(kind)  # type: ignore[arg-type]
    other.write(f"{MAGIC}/marker" if committer_of_store == "magic" else f"_temporary/{JOB}/00/manifests/x", b"")
    spec = JobSpec.decode(JobSpec.for_hadoop(other.dest, JOB).encode())
    async with committer.open_task(spec, task=0, storage_options=other.options) as task, task.open("part-0") as file:
        await file.write(b"1")
    async with committer.attach_job(spec, storage_options=other.options) as job:
        assert job.spec.committer == committer_of_store
        report = await job.commit()
    assert (report.committer, other.files()["part-0"]) == (committer_of_store, b"1")


async def test_a_message_holds_its_task_to_the_record_it_speaks_of(place: MemoryPlace) -> None:
    async with place.open_job(job_id=JOB, delivery="listing") as job:
        first = await place.run_task(job, 0, {"x": b"1"})
        second = await place.run_task(job, 0, {"x": b"2"}, attempt=1)
        with pytest.raises(RecordError, match="it was replaced since"):
            await job.commit([first])
        found = await job.recover_task(0, 1)
        assert (found.record, found.digest, found.files) == (second.record, second.digest, 1)
        await job.commit([found])
    assert visible(place) == {"x": b"2"}
    assert (left(place), pending(place)) == (set(), [])


async def test_an_aborted_attempt_leaves_nothing_and_no_other_run_is_touched(place: MemoryPlace) -> None:
    async with place.open_job(job_id=JOB, delivery="listing") as job:
        tasks = [await place.open_task(job.spec, 0) for _run in range(2)]
        for number, task in enumerate(tasks):
            await write_file(task, f"run-{number}", b"x")
        await tasks[0].abort()
        assert pending(place) == ["run-1"]
        assert {name.rpartition("/")[2] for name in left(place) if "/tasks/" in name} == {"run-1", "run-1.pending"}
        await tasks[1].commit()
    assert visible(place) == {"run-1": b"x"}


# -- what Hadoop's tasks left ---------------------------------------------------------------------------------------


async def test_a_job_whose_tasks_were_hadoops(java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {"p=1/a b.csv": b"a", "ü": b"b"})
    await java.run_task(1, {"x": b"first"}, attempt=0)
    await java.run_task(1, {"x": b"second"}, attempt=1)
    await java.run_task(2, {})
    async with java.attach() as job:
        plan = await job.plan()
        assert (plan.files, plan.tasks, plan.stray, plan.conflicts) == (3, 3, [], [])
        report = await job.commit(tasks=3)
    assert (report.files_committed, report.committer) == (3, "magic")
    assert visible(place) == {"p=1/a b.csv": b"a", "ü": b"b", "x": b"second"}
    assert left(place) == set()
    # Nothing says any more whose it was: the set of its attempt was replaced.
    assert (pending(place), report.uploads_left) == (["x"], [f"{place.dest}/x"])


async def test_its_id_is_enough_once_a_task_of_hadoops_committed(java: JavaJob, place: MemoryPlace) -> None:
    await place.run_task(java.spec, 0, {"python": b"p"})
    with pytest.raises(JobNotFoundError):
        # What a task leaves that outlived a job of this engine looks the same.
        await place.attach_job(JOB)
    await java.run_task(1, {"java": b"j"})
    with pytest.raises(JobUndecidedError):
        await place.recover(JOB)
    async with place.attach_job(JOB) as job:
        assert (job.spec.hadoop, job.spec.committer) == (True, "magic")
        await job.commit(tasks=2)
    assert visible(place) == {"java": b"j", "python": b"p"}
    assert (left(place), pending(place)) == (set(), [])


async def test_a_later_job_attempt_of_hadoops_is_the_one_that_counts(place: MemoryPlace) -> None:
    java = JavaJob(place)
    place.write(f"{MAGIC}/job-{JOB}/00/task_1_0001_m_000000.pendingset", b"an earlier attempt's, never read")
    record = {"version": 3, "jobId": JOB, "commits": [await java.pending("x", b"x", "attempt_1_0001_m_000000_0")]}
    place.write(f"{MAGIC}/job-{JOB}/01/task_1_0001_m_000000.pendingset", json.dumps(record).encode())
    async with place.attach_job(JOB) as job:
        assert job.spec.job_attempt == 1
        await job.commit(tasks=1)
    assert visible(place) == {"x": b"x"}
    assert (left(place), pending(place)) == (set(), [])


async def test_a_job_attempt_that_is_not_there_is_refused(place: MemoryPlace) -> None:
    java = JavaJob(place)
    record = {"version": 3, "jobId": JOB, "commits": [await java.pending("x", b"x", "attempt_1_0001_m_000000_0")]}
    place.write(f"{MAGIC}/job-{JOB}/01/task_1_0001_m_000000.pendingset", json.dumps(record).encode())
    before, uploads = place.all_files(), pending(place)
    with pytest.raises(JobNotFoundError, match="no job attempt 0 that can be committed, but 1"):
        await java.commit()
    assert (place.all_files(), pending(place)) == (before, uploads)
    async with committer.attach_job(JobSpec.for_hadoop(place.dest, JOB, 1), storage_options=place.options) as job:
        await job.commit(tasks=1)
    assert visible(place) == {"x": b"x"}


async def test_a_recovery_takes_the_job_attempt_that_the_dead_driver_took(place: MemoryPlace) -> None:
    java = JavaJob(place)
    await java.run_task(0, {"x": b"x"})
    record = {"version": 3, "jobId": JOB, "commits": [await java.pending("y", b"y", "attempt_1_0001_m_000000_0")]}
    place.write(f"{MAGIC}/job-{JOB}/01/task_1_0001_m_000000.pendingset", json.dumps(record).encode())
    dying = FaultyStore(place.space.store(), [Fault(kind="crash_before", operation="put", path="/decision")])
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(java.spec, storage_options={"store": dying}) as job:
            await job.commit()
    await place.recover(JOB)
    assert visible(place) == {"x": b"x"}
    assert (left(place), pending(place)) == (set(), [])


async def test_commits_of_a_later_job_attempt_count(place: MemoryPlace, capsys: pytest.CaptureFixture[str]) -> None:
    for attempt, tasks in ((1, 3), (2, 2)):
        for task in range(tasks):
            place.write(f"{MAGIC}/job-{JOB}/{attempt:02d}/task_1_0001_m_{task:06d}.pendingset", b"{}")
    assert await asyncio.to_thread(main, ["jobs", place.dest, "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (row["job_id"], row["owner"], row["task_records"]) == (JOB, "hadoop", 2)


async def test_a_replacing_job_sees_that_a_job_of_hadoops_is_being_committed(java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {"x": b"x"})
    dying = FaultyStore(place.space.store(), [Fault(kind="crash_before", operation="put", path="/decision")])
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(java.spec, storage_options={"store": dying}) as job:
            await job.commit()
    replacing = await place.open_job(config=CommitterConfig(conflict_mode="replace"))
    message = await place.run_task(replacing, 0, {"y": b"y"})
    with pytest.raises(DestinationBusyError) as caught:
        await replacing.commit([message])
    assert caught.value.owner == JOB
    await place.recover(JOB)
    await replacing.commit([message])
    assert visible(place) == {"y": b"y"}


async def test_commands_know_a_job_of_hadoops_that_has_no_record_of_this_engine(
    java: JavaJob, place: MemoryPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    await java.run_task(0, {"x": b"x"})
    assert await asyncio.to_thread(main, ["plan", place.dest, JOB]) == 0
    said = capsys.readouterr().out
    assert "open" in said
    assert "Hadoop's magic committer" in said
    assert await asyncio.to_thread(main, ["commit", place.dest, JOB, "--yes"]) == 0
    assert visible(place) == {"x": b"x"}


@pytest.mark.parametrize("ending", ["commit", "abort", "cleanup"])
async def test_an_earlier_job_attempt_leaves_no_upload_behind(ending: str, place: MemoryPlace) -> None:
    java = JavaJob(place)
    for attempt in (1, 2):
        spec = JobSpec.for_hadoop(place.dest, JOB, attempt, committer="magic")
        directory = f"{MAGIC}/job-{JOB}/{attempt:02d}"
        name = f"attempt_1_{attempt:04d}_m_000000_0"
        record = {"version": 3, "jobId": JOB, "commits": [await java.pending(f"x{attempt}", b"x", name)]}
        place.write(f"{directory}/task_1_{attempt:04d}_m_000000.pendingset", json.dumps(record).encode())
        died = json.dumps(await java.pending(f"y{attempt}", b"y"))
        place.write(f"{directory}/tasks/attempt_1_{attempt:04d}_m_000001_0/__base/y.pending", died.encode())
        # A task of this engine that was killed: only its list tells.
        task = await place.open_task(spec, 7)
        await task.open(f"z{attempt}").__aenter__()
    if ending == "cleanup":
        await committer.cleanup(place.dest, job_id=JOB, storage_options=place.options)
    else:
        async with place.attach_job(JOB) as job:
            await (job.commit(tasks=1) if ending == "commit" else job.abort())
    assert (left(place), pending(place)) == (set(), [])
    assert visible(place) == ({"x2": b"x"} if ending == "commit" else {})


@pytest.mark.parametrize("kind", ["lost", "late", "unanswered"])
async def test_etags_prove_a_file_whose_completion_had_no_answer(kind: Any, java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {"x": b"x", "y": b"y"})
    place.faults(Fault(kind=kind, operation="complete_upload", path="/y", delay_s=0.01))
    report = await java.commit()
    assert report.files_committed == 2
    assert visible(place) == {"x": b"x", "y": b"y"}


async def test_a_driver_that_died_half_way_is_followed_by_its_decision(java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {name: name.encode() for name in "abc"})
    dying = FaultyStore(place.space.store(), [Fault(kind="crash_after", operation="complete_upload", path="/b")])
    with pytest.raises(SimulatedCrash):
        async with committer.attach_job(java.spec, storage_options={"store": dying}) as job:
            await job.commit()
    report = await place.recover(JOB)
    assert report.files_committed == 3
    assert visible(place) == {name: name.encode() for name in "abc"}
    assert (left(place), pending(place)) == (set(), [])


async def test_a_refusal_takes_back_what_hadoops_tasks_wrote(java: JavaJob, place: MemoryPlace) -> None:
    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "c":
            place.write("c", b"another job's")

    await java.run_task(0, {name: name.encode() for name in "abcd"})
    place.store.before_call = another_program
    with pytest.raises(TargetExistsError):
        await java.commit()
    assert visible(place) == {"c": b"another job's"}
    assert (left(place), pending(place)) == (set(), [])


async def test_a_rollback_leaves_another_programs_file_that_is_like_hadoops(java: JavaJob, place: MemoryPlace) -> None:
    """Nothing but what they hold tells files of Hadoop's apart, and MapReduce gives them the same names every day."""

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and "a" not in visible(place):
            alike = await java.pending("a", b"a")
            parts = [UploadPart(number, one["etag"].strip('"')) for number, one in enumerate(alike["etags"], 1)]
            await place.space.store().complete_upload(place.space.path("table/a"), alike["uploadId"], parts)
            place.write("b", b"another job's")

    await java.run_task(0, {"a": b"a", "b": b"b"})
    place.store.before_call = another_program
    place.faults(Fault(kind="unavailable", operation="complete_upload", path="/a"))
    with pytest.raises(TargetExistsError):
        await java.commit()
    assert (visible(place), left(place), pending(place)) == ({"a": b"a", "b": b"another job's"}, set(), [])


@pytest.mark.parametrize("foreseen", [None, f"{32 * 'f'}-2"])
async def test_what_nothing_proves_is_not_taken_back(
    foreseen: str | None, java: JavaJob, place: MemoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a key of KMS encrypts parts, their etags are no MD5, which may not show, and the file's is another."""
    monkeypatch.setattr("committer.committers.pending_sets.composite_etag", lambda _etags: foreseen)

    async def another_program(call: Call) -> None:
        if call.operation == "complete_upload" and call.path.name == "b":
            place.write("b", b"another job's")

    await java.run_task(0, {"a": b"a", "b": b"b"})
    place.store.before_call = another_program
    with pytest.raises(CommitterError, match="cannot tell whether what exists at a is the job's"):
        await java.commit()
    assert visible(place) == {"a": b"a", "b": b"another job's"}
    place.store.before_call = None
    place.remove("a")
    report = await committer.recover(place.dest, JOB, rollback=True, storage_options=place.options)
    assert not report.success
    assert (visible(place), left(place), pending(place)) == ({"b": b"another job's"}, set(), [])


@pytest.mark.parametrize("committed", [False, True])
async def test_an_abort_ends_what_records_name(committed: bool, java: JavaJob, place: MemoryPlace) -> None:
    if committed:
        await java.run_task(0, {"x": b"x"})
    else:
        await java.leave(0, {"x": b"x", "p/y": b"y"})
    await java.run_task(1, {"other": b"o"})
    async with java.attach() as job:
        await job.abort()
    assert (left(place), pending(place), visible(place)) == (set(), [], {})


async def test_an_attempt_of_hadoops_is_aborted_by_its_ids(place: MemoryPlace) -> None:
    spec = JobSpec.for_hadoop(place.dest, "job_202401010000_0001", committer="magic")
    java = JavaJob(place)
    directory = "__magic_job-job_202401010000_0001/job-job_202401010000_0001/00"
    base = f"{directory}/tasks/{JAVA_ATTEMPT.format(task=0, attempt=0)}/__base"
    place.write(f"{base}/x.pending", json.dumps(await java.pending("x", b"x")).encode())
    for task in (0, 1):
        attempt = JAVA_ATTEMPT.format(task=task, attempt=0)
        record = {"version": 3, "commits": [await java.pending(f"t{task}", b"t", attempt)]}
        place.write(f"{directory}/task_202401010000_0001_m_{task:06d}.pendingset", json.dumps(record).encode())
    async with committer.attach_job(spec, storage_options=place.options) as job:
        await job.abort_task(0, 0)
        assert pending(place) == ["t1"]
        await job.commit(tasks=1)
    assert visible(place) == {"t1": b"t"}


async def test_what_a_dead_hadoop_job_left_is_seen_and_cleaned_up(java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {"x": b"x"})
    await java.leave(1, {"y": b"y"})
    place.write("p=1/neighbour", b"n")
    (info,) = await committer.list_jobs(place.dest, storage_options=place.options)
    assert (info.job_id, info.state, info.committer, info.delivery) == (JOB, "open", "magic", None)
    saved = place.space.tree.status(place.space.path(f"table/{java.record(0)}")).modified
    assert saved is not None
    assert info.updated is not None
    assert info.updated.timestamp() == pytest.approx(saved)
    report = await committer.cleanup(place.dest, older_than=3600.0, storage_options=place.options)
    assert report.kept == {JOB: "it is younger"}
    report = await committer.cleanup(place.dest, job_id=JOB, storage_options=place.options)
    assert report.removed == [JOB]
    assert (left(place), pending(place), visible(place)) == (set(), [], {"p=1/neighbour": b"n"})


async def test_a_task_of_a_hadoop_job_that_is_gone_is_refused(place: MemoryPlace) -> None:
    spec = JobSpec.for_hadoop(place.dest, JOB, committer="magic")
    with pytest.raises(JobNotFoundError):
        await place.open_task(spec, 0)
    with pytest.raises(JobNotFoundError):
        await committer.attach_job(spec, storage_options=place.options)
    with pytest.raises(JobNotFoundError):
        await place.recover(JOB)


async def test_a_task_that_outlives_a_hadoop_job_begins_nothing_more(java: JavaJob, place: MemoryPlace) -> None:
    task = await place.open_task(java.spec, 0)
    for name in left(place):
        place.remove(name)
    with pytest.raises(JobNotFoundError):
        await task.open("x").write(b"x")
    await task.abort()
    assert (left(place), pending(place)) == (set(), [])


async def test_the_id_of_a_hadoop_job_is_taken(java: JavaJob, place: MemoryPlace) -> None:
    with pytest.raises(committer.errors.JobExistsError):
        await place.open_job(job_id=JOB, delivery="listing")
    assert await place.states() == {JOB: "open"}


# -- records that are not trusted -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"bucket": "another"},
        {"destinationKey": "elsewhere/x"},
        {"destinationKey": "table10/x"},
        {"destinationKey": "table/../elsewhere/x"},
        {"destinationKey": "table//x"},
        {"destinationKey": "/table/x"},
        {"destinationKey": "table/x/"},
        {"destinationKey": "table/_SUCCESS"},
        {"destinationKey": "table/_temporary/x"},
        {"destinationKey": "table/__magic_job-other/x"},
        {"destinationKey": "table/a=1/_temporary/other/decision"},
        {"destinationKey": "table"},
        {"taskId": "no attempt"},
        {"taskId": ""},
        {"length": -1},
        {"etags": []},
    ],
    ids=str,
)
async def test_a_record_of_elsewhere_is_refused(members: dict[str, Any], java: JavaJob, place: MemoryPlace) -> None:
    bad = await java.pending("x", b"x", JAVA_ATTEMPT.format(task=0, attempt=0), **members)
    path = place.space.path(bad["destinationKey"])
    if path.path != "/table":
        bad["uploadId"] = await place.space.store().create_upload(path, stamp="another-program")
    place.write(java.record(0), json.dumps({"version": 3, "jobId": JOB, "commits": [bad]}).encode())
    with pytest.raises(RecordError) as caught:
        await java.commit()
    assert java.record(0) in str(caught.value)
    assert (caught.value.outcome, visible(place)) == ("unchanged", {})
    async with java.attach() as job:
        await job.abort()
    # What it named elsewhere stays, as it may be another job's; what could not be read stays, too.
    stays = bad["uploadId"] in [upload.upload_id for upload in place.space.uploads]
    assert stays == ("taskId" not in members)
    assert left(place) == set()


async def test_a_set_of_another_job_is_refused(java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {"x": b"x"}, jobId="another")
    with pytest.raises(RecordError, match="'another' is not"):
        await java.commit()
    await java.run_task(0, {"x": b"x"}, jobId="")
    assert (await java.commit()).files_committed == 1


async def test_two_tasks_with_one_destination_are_found(java: JavaJob, place: MemoryPlace) -> None:
    """Hadoop looks for that within one set alone."""
    for task in (0, 1):
        await java.run_task(task, {"x": b"%d" % task})
    with pytest.raises(PreflightError, match="x"):
        await java.commit()
    assert visible(place) == {}


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":9}', b"[]", b'{"version":3,"commits":[{}]}'])
async def test_a_damaged_set_stops_the_commit_and_nothing_else(data: bytes, java: JavaJob, place: MemoryPlace) -> None:
    await java.run_task(0, {"x": b"x"})
    place.write(java.record(1), data)
    with pytest.raises(RecordError):
        await java.commit()
    assert (visible(place), pending(place)) == ({}, ["x"])
    place.remove(java.record(1))
    assert (await java.commit(tasks=1)).files_committed == 1


def test_the_etag_that_a_file_will_have() -> None:
    assert composite_etag((md5(b"hello").hexdigest(),)) == "62109206880d38a4010a98e11243924a-1"
    # With keys of KMS, or of the caller, an etag is no MD5, and nothing can be said.
    assert composite_etag(("a" * 32, "no md5")) is None
