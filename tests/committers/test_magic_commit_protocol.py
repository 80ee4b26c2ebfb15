"""Twin of Hadoop's ITestMagicCommitProtocol and ITestMagicCommitProtocolFailure: a job whose task commits are listed, in
Hadoop's form, looked at file by file.

What a task leaves, and how etags are written, is in `test_pending_sets.py`, with jobs of which Hadoop did a part; the
header of a marker, on a server, in `tests/s3/test_pending_sets.py`, and as Java reads it in `tests/s3/test_java_jobs.py`;
the protocol that all committers share in `test_commit_protocol.py`.

Where this engine differs on purpose: no program writes to a work path; markers and records of each run of an attempt
lie in a directory of its own; one that cannot be put ends its upload at once, since no process could finish the file any
more; `fs.s3a.committer.magic.enabled` switches nothing, what the store can do decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import StorePermissionError, TaskError, UnsupportedError
from committer.records.pending_set import decode_pending, decode_pending_set
from committer.testing.faults import Fault
from tests.job_paths import in_magic
from tests.places import MemoryPlace, place_fixture, write_file
from tests.waiting_uploads import pending

place = place_fixture("s3")

JOB = "job_202601010000_0001"


def below_magic(place: MemoryPlace) -> dict[str, bytes]:
    """What lies in the job attempt's directory, but for this engine's lists of uploads."""
    magic = in_magic(place, JOB)
    return {
        name.removeprefix(f"{magic}/"): data
        for name, data in place.all_files().items()
        if name.startswith(f"{magic}/") and not name.startswith(f"{magic}/uploads/")
    }


# -- a file that is written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"small", bytes(25)], ids=["empty", "one part", "three parts"])
async def test_a_file_is_unseen_until_it_is_closed_and_then_waits(data: bytes, place: MemoryPlace) -> None:
    config = CommitterConfig(multipart_size=10)
    job = await place.open_job(job_id=JOB, config=config)
    task = await place.open_task(job.spec, 3, 1)
    work = f"tasks/attempt_202601010000_0001_m_000003_1/__base/{task.nonce}"
    async with task.open("p=1/x") as file:
        await file.write(data)
        # It is on its way to where it goes; nothing tells Hadoop of it yet, and nothing is seen of it.
        assert pending(place) == ["p=1/x"]
        assert (below_magic(place), place.files()) == ({}, {})
    waiting = below_magic(place)
    assert waiting.keys() == {f"{work}/p=1/x", f"{work}/p=1/x.pending"}
    assert waiting[f"{work}/p=1/x"] == b""
    record = decode_pending(waiting[f"{work}/p=1/x.pending"], source="record")
    assert (record.destinationKey, record.length) == ("table/p=1/x", len(data))
    assert len(record.etags) == place.store.count("put_part") == (3 if len(data) > 10 else 1)
    assert place.files() == {}

    await task.commit()
    assert below_magic(place).keys() == {"task_202601010000_0001_m_000003.pendingset"}
    assert (place.files(), pending(place)) == ({}, ["p=1/x"])
    await job.commit(tasks=1)
    await job.close()
    assert (place.files(), pending(place), place.temporary()) == ({"p=1/x": data}, [], set())


async def test_parts_then_marker_then_record(place: MemoryPlace) -> None:
    """A record stands for a file that is whole; Hadoop counts the marker's request in the record."""
    job = await place.open_job(job_id=JOB, config=CommitterConfig(multipart_size=10))
    task = await place.open_task(job.spec, 0)
    await write_file(task, "x", bytes(25))
    calls = [call for call in place.store.calls if call.operation == "put_part" or "/__base/" in call.path.path]
    assert [(call.operation, call.path.name) for call in calls] == [
        *[("put_part", "x")] * 3,
        ("put", "x"),
        ("put", "x.pending"),
    ]
    await task.abort()
    await job.abort()
    await job.close()
    assert (pending(place), place.temporary()) == ([], set())


async def test_there_is_no_path_for_other_programs(place: MemoryPlace) -> None:
    async with place.open_job(job_id=JOB) as job, job.task_attempt(0) as task:
        with pytest.raises(UnsupportedError, match="have no path on this machine") as caught:
            task.work_path("x")
        assert "task.open" in caught.value.next_step


# -- files and attempts that fail -------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["/x", "/x.pending"])
async def test_what_hadoop_cannot_be_told_of_is_no_output(failing: str, place: MemoryPlace) -> None:
    async with place.open_job(job_id=JOB) as job:
        task = await place.open_task(job.spec, 0)
        place.faults(Fault(kind="forbidden", operation="put", path=lambda path: path.path.endswith(failing)))
        with pytest.raises(StorePermissionError):
            await write_file(task, "x", b"x")
        assert pending(place) == []
        assert not any(name.endswith(".pending") for name in below_magic(place))
        with pytest.raises(TaskError, match="not written"):
            await task.commit()
    assert (place.files(), pending(place), place.temporary()) == ({}, [], set())


async def test_a_file_that_is_given_up_leaves_no_marker(place: MemoryPlace) -> None:
    async with place.open_job(job_id=JOB) as job, job.task_attempt(0) as task:
        file = task.open("x")
        await file.write(b"x")
        await file.abort()
        assert (below_magic(place), pending(place)) == ({}, [])
    assert (place.files(), place.temporary()) == ({}, set())


async def test_a_set_that_cannot_be_saved_ends_the_attempt(place: MemoryPlace) -> None:
    """Another one can commit the task; of this one nothing is left to commit, or to pay for."""
    async with place.open_job(job_id=JOB) as job:
        place.faults(Fault(kind="forbidden", operation="put", path=".pendingset"))
        with pytest.raises(StorePermissionError):
            await place.run_task(job, 0, {"x": b"first"})
        assert (below_magic(place), pending(place)) == ({}, [])
        await place.run_task(job, 0, {"x": b"second"}, attempt=1)
        [(name, data)] = below_magic(place).items()
        assert [one.taskId for one in decode_pending_set(data, source=name).commits] == [
            "attempt_202601010000_0001_m_000000_1"
        ]
    assert (place.files(), pending(place), place.temporary()) == ({"x": b"second"}, [], set())


# -- stores that cannot -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ability", "said"),
    [("multipart", "withhold the completion of an upload"), ("conditional_delete", "delete a file on the condition")],
)
async def test_a_store_that_lacks_something_refuses_the_committer(ability: str, said: str) -> None:
    place = MemoryPlace("s3", **{ability: False})
    with pytest.raises(UnsupportedError, match=said) as caught:
        await place.open_job(committer="magic")
    assert (caught.value.outcome, place.space.files(), place.space.directories()) == ("unchanged", {}, set())


@pytest.mark.parametrize(("profile", "wrong"), [("s3", "manifest"), ("gcs", "magic"), ("hdfs", "magic")])
@pytest.mark.parametrize("what", ["task", "job"])
async def test_a_job_of_hadoops_has_a_committer_that_its_store_can_serve(what: str, profile: str, wrong: str) -> None:
    """Else its commit would be decided, and no recoverer could ever finish it."""
    place = MemoryPlace(profile)
    for directory in ("_temporary/J/00/manifests", "__magic_job-J/job-J/00"):
        place.write(f"{directory}/marker", b"")
    before, spec = place.all_files(), JobSpec.for_hadoop(place.dest, "J", committer=wrong)
    join: dict[str, Callable[[], Any]] = {
        "task": lambda: place.open_task(spec, 0),
        "job": lambda: committer.attach_job(spec, storage_options=place.options),
    }
    with pytest.raises(UnsupportedError, match=f"committer '{wrong}' needs a store that can") as caught:
        await join[what]()
    assert "leave `committer` out" in caught.value.next_step
    assert place.all_files() == before
    spec = JobSpec.for_hadoop(place.dest, "J")
    opened = await join[what]()
    await (opened.abort() if what == "task" else opened.close())


async def test_choices_given_to_who_joins_a_job_of_hadoops_leave_its_committer(place: MemoryPlace) -> None:
    place.write(f"__magic_job-{JOB}/job-{JOB}/00/marker", b"")
    spec = JobSpec.for_hadoop(place.dest, JOB, committer="magic")
    await place.run_task(spec, 0, {"x": b"x"})
    config = CommitterConfig(validate_output=True)
    async with committer.attach_job(spec, config=config, storage_options=place.options) as job:
        assert (job.spec.committer, job.spec.config) == ("magic", config)
        assert (await job.commit(tasks=1)).files_committed == 1
    assert place.files() == {"x": b"x"}
