"""What the committer `file-v1` keeps where, and what other processes make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import (
    JobExistsError,
    JobNotFoundError,
    JobStateError,
    JobUndecidedError,
    PreflightError,
    RecordError,
    TaskError,
    TaskMissingError,
    UnsupportedError,
)
from committer.testing.faults import Fault, FaultyStore, SimulatedCrash
from tests.committers.file_places import (
    HADOOP_JOB,
    STEM,
    FileInMemory,
    FileOnDisk,
    being_written_by_hadoop,
    committed_by_hadoop,
    file_place,
    layout_of,
)
from tests.job_paths import in_job
from tests.places import Place, write_file

FILES = {"a=1/part-0": b"one", "part-1": b"two"}


@pytest.fixture(params=["disk", "adls"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = file_place(request.param, "file-v1", tmp_path)
    yield made
    await made.store.close()


@pytest.fixture
async def disk(tmp_path: Path) -> Any:
    made = FileOnDisk(tmp_path, "file-v1")
    yield made
    await made.store.close()


# -- the layout -------------------------------------------------------------------------------------------------


async def test_tasks_write_and_commit_where_hadoops_do(place: Place) -> None:
    job = await place.open_job(job_id="j")
    task = await place.open_task(job.spec, 3, 1)
    await write_file(task, "a=1/part-0", b"one")
    [written] = [name for name in place.all_files() if name.endswith("part-0")]
    assert written == f"_temporary/0/_temporary/attempt_j_m_000003_1-{task.nonce}/a=1/part-0"
    await task.commit()
    assert [name for name in place.all_files() if name.endswith("part-0")] == [
        "_temporary/0/task_j_m_000003/a=1/part-0"
    ]
    assert place.files() == {}
    await job.commit(tasks=1)
    assert (place.files(), place.temporary()) == ({"a=1/part-0": b"one"}, set())


async def test_only_what_was_finished_is_in_a_tasks_directory(place: Place) -> None:
    """Hadoop's driver merges all that exists there."""
    job = await place.open_job(job_id="j")
    task = await place.open_task(job.spec, 0)
    async with task.open("broken/part-0") as file:
        await file.write(b"half")
        await file.abort()
    await write_file(task, "part-1", b"whole")
    place.write(task.directory.path.removeprefix(layout_of(place, "j").destination.path + "/") + "/stray", b"left")
    await task.commit()
    inside = {name for name in place.temporary() if name.startswith("_temporary/0/task_j_m_000000/")}
    assert inside == {"_temporary/0/task_j_m_000000/part-1"}
    await job.commit()
    assert place.files() == {"part-1": b"whole"}


async def test_a_file_that_changed_since_it_was_closed_is_not_committed(place: Place) -> None:
    job = await place.open_job(job_id="j")
    task = await place.open_task(job.spec, 0)
    await write_file(task, "part-1", b"whole")
    place.write(task.directory.path.removeprefix(layout_of(place, "j").destination.path + "/") + "/part-1", b"other")
    with pytest.raises(TaskError, match="is not what was written"):
        await task.commit()
    await job.abort()
    assert place.all_files() == {}


async def test_empty_directories_are_made_at_the_destination(disk: FileOnDisk) -> None:
    async with disk.open_job(job_id="j") as job, job.task_attempt(task=0) as task:
        Path(task.work_path("full/part-0")).write_bytes(b"x")
        (Path(task.work_path()) / "empty" / "below").mkdir(parents=True)
    assert disk.files() == {"full/part-0": b"x"}
    assert disk.directories() == {"full", "empty", "empty/below"}


async def test_jobs_that_share_the_directory_leave_each_other_alone(place: Place) -> None:
    """With one of Hadoop's beside them, whose driver is yet to come."""
    first = await place.open_job(job_id="first")
    second = await place.open_job(job_id="first_m_000000")
    await place.run_task(first, 0, {"first": b"1"})
    await place.run_task(second, 0, {"second": b"2"})
    committed_by_hadoop(place, 0, {"third": b"3"})
    late = await place.open_task(second.spec, 1)
    await first.commit(tasks=1)
    assert place.files() == {"first": b"1"}
    await write_file(late, "late", b"4")
    await late.commit()
    await second.commit(tasks=2)
    assert place.files() == {"first": b"1", "second": b"2", "late": b"4"}
    assert set(place.all_files()) - set(place.files()) == {"_SUCCESS", f"_temporary/0/task_{STEM}_m_000000/third"}


async def test_an_open_job_whose_shared_directories_another_job_removed_goes_on(place: Place) -> None:
    first, second = await place.open_job(job_id="first"), await place.open_job(job_id="second")
    await first.commit(tasks=0)
    plan = await second.plan()
    assert (plan.files, plan.stray) == (0, [])
    await place.run_task(second, 0, {"part-0": b"x"})
    await second.commit(tasks=1)
    assert (place.files(), place.temporary()) == ({"part-0": b"x"}, set())


# -- attempts ---------------------------------------------------------------------------------------------------


async def test_a_message_wins_or_is_refused(place: Place) -> None:
    job = await place.open_job(job_id="j")
    first = await place.run_task(job, 0, {"part-0": b"1"})
    second = await place.run_task(job, 0, {"part-0": b"2"}, 1)
    with pytest.raises(RecordError, match="replaced since"):
        await job.commit([first], tasks=1)
    assert place.files() == {}
    await job.commit([second], tasks=1)
    assert (place.files(), place.temporary()) == ({"part-0": b"2"}, set())


async def test_abort_by_ids_takes_a_commit_back_that_is_the_attempts_own(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"1"}, 0)
    await place.run_task(job, 0, {"part-0": b"2"}, 1)
    await job.abort_task(0, 0)
    assert (await job.plan()).files == 1
    await job.abort_task(0, 1)
    assert (await job.plan()).files == 0
    with pytest.raises(TaskMissingError):
        await job.commit(tasks=1)
    await job.commit(tasks=0)
    assert (place.files(), place.temporary()) == ({}, set())


async def test_abort_by_ids_of_an_attempt_that_did_not_commit(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, {"part-0": b"1"}, 0)
    late = await place.open_task(job.spec, 0, 1)
    await write_file(late, "part-0", b"2")
    await job.abort_task(0, 1)
    with pytest.raises(TaskError):
        await late.commit()
    await job.commit(tasks=1)
    assert (place.files(), place.temporary()) == ({"part-0": b"1"}, set())


async def test_a_message_that_was_lost_is_made_anew(place: Place) -> None:
    job = await place.open_job(job_id="j")
    told = await place.run_task(job, 0, {"part-0": b"1"}, 4)
    assert await job.recover_task(0, 4) == told
    with pytest.raises(TaskError, match="nothing to recover"):
        await job.recover_task(0, 3)
    with pytest.raises(TaskError, match="nothing to recover"):
        await job.recover_task(1, 0)
    await job.commit([told], tasks=1)
    assert place.files() == {"part-0": b"1"}


# -- what operators do ------------------------------------------------------------------------------------------


async def test_operators_find_plan_and_clean_it(place: Place) -> None:
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    [info] = await committer.list_jobs(place.dest, storage_options=place.options)
    assert (info.job_id, info.state, info.committer, info.delivery) == ("j", "open", "file-v1", "listing")
    plan = await job.plan(tasks=1)
    assert (plan.files, plan.bytes, plan.directories, plan.conflicts, plan.tasks) == (2, 6, ["a=1"], [], 1)
    assert plan.stray == []
    await job.close()
    report = await committer.cleanup(place.dest, older_than=3600, storage_options=place.options)
    assert report.kept == {"j": "it is younger"}
    await committer.cleanup(place.dest, job_id="j", storage_options=place.options)
    assert (place.all_files(), place.temporary()) == ({}, set())


async def test_a_forced_cleanup_of_what_jobs_share_is_refused(place: Place) -> None:
    """Beside an open job, whose tasks' output is there with that of a job of Hadoop's."""
    job = await place.open_job(job_id="j")
    await place.run_task(job, 0, FILES)
    committed_by_hadoop(place, 0, {"part-0": b"0"})
    assert await place.states() == {"0": "unknown", "j": "open"}
    report = await committer.cleanup(place.dest, job_id="0", force=True, storage_options=place.options)
    assert report.kept == {"0": "tasks of j commit there: end these jobs first"}
    await job.commit(tasks=1)
    assert place.files() == FILES
    await committer.cleanup(place.dest, job_id="0", force=True, storage_options=place.options)
    assert place.temporary() == set()


async def test_records_that_tell_whose_a_directory_is_can_be_loaded(disk: FileOnDisk) -> None:
    job = await disk.open_job(job_id="j")
    await disk.run_task(job, 0, FILES)
    [record] = in_job(disk.root, "j", "00/attempts").iterdir()
    manifest = await committer.load_record(str(record))
    assert [file.d.rpartition("/")[2] for file in manifest.files] == ["part-0", "part-1"]
    await job.abort()


async def test_two_tasks_with_one_file_are_refused(place: Place) -> None:
    """Hadoop's merge keeps the one that its listing names last."""
    job = await place.open_job(job_id="j", config=CommitterConfig(existing_target="replace"))
    await place.run_task(job, 0, {"part-0": b"0"})
    await place.run_task(job, 1, {"part-0": b"1"})
    with pytest.raises(PreflightError, match="part-0 is written by"):
        await job.commit(tasks=2)
    assert place.files() == {}
    # A refused commit gives the directories back, to Hadoop's driver too.
    assert sum(name.startswith("_temporary/0/task_j_m_") for name in place.all_files()) == 2
    await job.abort_task(1, 0)
    await job.commit(tasks=1)
    assert (place.files(), place.temporary()) == ({"part-0": b"0"}, set())


async def test_what_its_layout_cannot_hold_is_refused(place: Place) -> None:
    with pytest.raises(UnsupportedError, match="outside the destination"):
        await place.open_job(config=CommitterConfig(absolute_roots=(f"{place.dest}-beside",)))
    assert place.temporary() == set()


@pytest.mark.parametrize(
    ("profile", "flags", "lacks"),
    [
        ("gcs", {}, "rename a directory atomically"),
        ("s3", {}, "rename a directory atomically"),
        ("local", {"identity": False}, "tell a file from another"),
    ],
)
async def test_a_store_that_lacks_what_it_needs_is_refused(profile: str, flags: dict[str, bool], lacks: str) -> None:
    place = FileInMemory("file-v1", profile, **flags)
    with pytest.raises(UnsupportedError, match=lacks):
        await place.open_job()
    assert place.temporary() == set()


async def test_output_of_an_earlier_job_of_the_id_is_not_taken(place: Place) -> None:
    committed_by_hadoop(place, 0, {"part-0": b"old"}, stem="j")
    with pytest.raises(JobExistsError, match="left their output"):
        await place.open_job(job_id="j")
    assert place.files() == {}


# -- with Hadoop ------------------------------------------------------------------------------------------------


async def test_a_job_of_hadoops_is_committed(place: Place) -> None:
    committed_by_hadoop(place, 0, {"part-0": b"0", "a=1/part-0": b"1"})
    committed_by_hadoop(place, 1, {"part-1": b"2"})
    being_written_by_hadoop(place, 2, {"part-2": b"half"})
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v1")
    async with committer.attach_job(spec, storage_options=place.options) as job:
        assert not job.spec.hadoop
        await place.run_task(job, 3, {"part-3": b"3"})
        assert (await job.plan()).files == 4
        report = await job.commit(tasks=3)
    assert report.files_committed == 4
    assert place.files() == {"part-0": b"0", "a=1/part-0": b"1", "part-1": b"2", "part-3": b"3"}
    assert place.temporary() == set()


async def test_tasks_join_a_job_of_hadoops_that_java_commits(place: Place) -> None:
    """They touch nothing but its layout."""
    committed_by_hadoop(place, 0, {"part-0": b"0"})
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v1")
    await place.run_task(spec, 1, {"part-1": b"1"})
    await place.run_task(spec, 1, {"part-1": b"2"}, 1)
    inside = {name: data for name, data in place.all_files().items() if "/_temporary/" not in name}
    assert inside == {
        f"_temporary/0/task_{STEM}_m_000000/part-0": b"0",
        f"_temporary/0/task_{STEM}_m_000001/part-1": b"2",
    }


async def test_messages_of_tasks_that_joined_a_job_of_hadoops_win(place: Place) -> None:
    """Such a task knows of no setup. What its message tells is what the driver finds, which joined the job later."""
    committed_by_hadoop(place, 0, {"part-0": b"0"})
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v1")
    message = await place.run_task(spec, 1, {"part-1": b"1"})
    async with committer.attach_job(spec, storage_options=place.options) as job:
        hadoops = await job.recover_task(0, 0)
        await job.commit([hadoops, message], tasks=2)
    assert place.files() == {"part-0": b"0", "part-1": b"1"}


async def test_a_job_of_hadoops_that_is_not_there(place: Place) -> None:
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v1")
    with pytest.raises(JobNotFoundError):
        await committer.attach_job(spec, storage_options=place.options)
    with pytest.raises(JobNotFoundError):
        await place.open_task(spec, 0)
    assert place.temporary() == set()


async def test_a_job_of_sparks_by_another_number_is_refused(place: Place) -> None:
    """Spark names tasks by their stage. Committed by the job's number, nothing would be."""
    committed_by_hadoop(place, 0, {"part-0": b"0"}, stem="202611230000_0003")
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v1")
    async with committer.attach_job(spec, storage_options=place.options) as job:
        with pytest.raises(JobStateError, match="is no task of") as refused:
            await job.commit()
        assert "'job_202611230000_0003'" in refused.value.next_step
        await job.abort()
    assert list(place.all_files()) == ["_temporary/0/task_202611230000_0003_m_000000/part-0"]


@pytest.mark.parametrize("profile", ["local", "hdfs", "adls"])
async def test_a_driver_that_dies_when_it_joins_is_followed_by_another(profile: str) -> None:
    """At any of its calls. Hadoop's tasks exist where they committed, whatever an operator tries meanwhile."""
    number = 0
    while True:
        number += 1
        place = FileInMemory("file-v1", profile)
        committed_by_hadoop(place, 0, {"part-0": b"0"})
        spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, committer="file-v1")
        dying = FaultyStore(place.space.store(), [Fault(kind="crash_before", call=number)])
        try:
            async with committer.attach_job(spec, storage_options={"store": dying}):
                break
        except SimulatedCrash:
            pass
        with pytest.raises((JobUndecidedError, JobNotFoundError)):
            await committer.recover(place.dest, HADOOP_JOB, storage_options=place.options)
        async with committer.attach_job(spec, storage_options=place.options) as job:
            await job.commit(tasks=1)
        assert (place.files(), place.temporary()) == ({"part-0": b"0"}, set()), number
    assert number > 5


async def test_an_id_that_names_no_task_is_refused(place: Place) -> None:
    committed_by_hadoop(place, 0, {"part-0": b"0"})
    spec = JobSpec.for_hadoop(place.dest, "6a3b7c", committer="file-v1")
    with pytest.raises(JobStateError, match="names tasks by MapReduce's job id"):
        await committer.attach_job(spec, storage_options=place.options)


async def test_a_later_application_attempt_takes_tasks_over(place: Place) -> None:
    """As a restarted MapReduce application does (``recoverTask``)."""
    committed_by_hadoop(place, 0, {"part-0": b"0"}, job_attempt=0)
    committed_by_hadoop(place, 1, {"part-1": b"1"}, job_attempt=0)
    committed_by_hadoop(place, 2, {"part-2": b"2"}, job_attempt=1)
    spec = JobSpec.for_hadoop(place.dest, HADOOP_JOB, 1, committer="file-v1")
    async with committer.attach_job(spec, storage_options=place.options) as job:
        recovered = await job.recover_task(0, 0)
        assert (recovered.files, recovered.size) == (1, 1)
        with pytest.raises(TaskError):
            await job.recover_task(7, 0)
        await job.commit(tasks=2)
    # The other one was not recovered.
    assert place.files() == {"part-0": b"0", "part-2": b"2"}
