"""Tasks are committed by Python, the job by Java."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer import JobSpec
from committer.errors import JobNotFoundError

from .hadoop import VALIDATE_OUTPUT, Hadoop, JavaError
from .python_side import FOR_JAVA_DRIVER, assert_same_result, run_scanned_task, run_task, spec_of
from .trees import AWKWARD_NAMES, COLON_NAMES, HIDDEN_NAMES, contents, exists, names_in, on_disk, put, without_sidecars


async def test_same_tree_and_counts_as_java_tasks(hadoop: Hadoop, tmp_path: Path) -> None:
    conf = {VALIDATE_OUTPUT: True}
    python, java = hadoop.job(tmp_path / "python", conf=conf), hadoop.job(tmp_path / "java", conf=conf)
    awkward, hidden = contents(*AWKWARD_NAMES), contents(*HIDDEN_NAMES) | {"empty.csv": b"", "p=2/empty": b""}
    await java.setup()
    await java.run_task(0, awkward)
    await java.run_task(1, hidden)
    await java.run_task(2, contents("a/b/c"), directories=("empty directory", "nested/é/empty"))
    await java.run_task(3, {})
    await java.run_task(4, contents("second.csv", "both.csv", salt="1"), attempt=1)

    await python.setup()
    spec = spec_of(python, FOR_JAVA_DRIVER)
    await run_task(spec, 0, awkward)
    await run_task(spec, 1, hidden)
    await run_scanned_task(spec, 2, contents("a/b/c"), directories=("empty directory", "nested/é/empty"))
    await run_task(spec, 3, {})
    await run_task(spec, 4, contents("first.csv", "both.csv", salt="0"), attempt=0)
    await run_task(spec, 4, contents("second.csv", "both.csv", salt="1"), attempt=1)

    assert await names_in(python.manifests) == {python.manifest(task).name for task in range(5)}
    for task in range(5):
        ours, theirs = [await hadoop.load_manifest(job.manifest(task)) for job in (python, java)]
        for member in ("type", "version", "jobId", "jobAttemptNumber", "taskID", "taskAttemptID"):
            assert ours[member] == theirs[member], member
        assert sorted(entry["z"] for entry in ours["files"]) == sorted(entry["z"] for entry in theirs["files"])
        # Java records every directory it scanned with what existed there; so does Python for a Java driver.
        assert _directories(ours, python.destination) == _directories(theirs, java.destination)
        assert await hadoop.destinations(python.manifest(task)) == [
            name.replace(str(java.destination), str(python.destination), 1)
            for name in await hadoop.destinations(java.manifest(task))
        ]

    await java.commit()
    await python.commit()
    await assert_same_result(hadoop, python, java)


def _directories(manifest: dict[str, object], destination: Path) -> set[tuple[str, int, int]]:
    entries = manifest["directories"]
    assert isinstance(entries, list)
    return {(entry["d"].removeprefix(f"file:{destination}"), entry["t"], entry["l"]) for entry in entries}


async def test_colons_which_java_tasks_cannot_commit(hadoop: Hadoop, tmp_path: Path) -> None:
    """Java's driver can publish them, but not through its checksummed file system: there is no Path of a sidecar."""
    files = contents(*COLON_NAMES)
    raw = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": True}
    plain, checksummed = hadoop.job(tmp_path / "raw", conf=raw), hadoop.job(tmp_path / "checksummed")
    for job in (plain, checksummed):
        await job.setup()
        await run_task(spec_of(job, FOR_JAVA_DRIVER), 0, files)
        assert await hadoop.destinations(job.manifest(0)) == sorted(str(job.destination / name) for name in files)
    counters = await plain.commit()
    assert counters["committer_files_committed"] == len(files)
    assert (await on_disk(plain.destination))[0] == files
    with pytest.raises(JavaError, match="Relative path in absolute URI"):
        await checksummed.commit()


@pytest.mark.parametrize("hadoop_driver", [False, True])
async def test_java_commits_a_job_that_python_set_up(hadoop: Hadoop, tmp_path: Path, hadoop_driver: bool) -> None:
    config = FOR_JAVA_DRIVER if hadoop_driver else None
    await put(tmp_path / "dest" / "p=1" / "old.csv", b"old")
    job = await committer.open_job(tmp_path / "dest", job_id="nightly", delivery="listing", config=config)
    java = hadoop.job(tmp_path / "dest", 7, uuid=job.spec.unique_id)
    async with job.task_attempt(task=0, attempt=0) as task, task.open("p=1/a b.csv") as file:
        await file.write(b"python")
    await run_task(JobSpec.decode(job.spec.encode()), 1, contents("p=2/é.csv"), attempt=3)
    await java.run_task(2, contents("p=1/java.csv"))
    await job.close()

    counters = await java.commit()
    assert counters["committer_files_committed"] == 3
    assert without_sidecars((await on_disk(java.destination))[0]) == {
        "p=1/old.csv": b"old",
        "p=1/a b.csv": b"python",
    } | contents("p=2/é.csv", "p=1/java.csv")
    # Java removed all of _temporary. Its `_SUCCESS` answers what became of the job.
    assert not await exists(java.destination / "_temporary")
    report = await committer.recover(java.destination, "nightly")
    assert report.success
    assert report.files_committed == 3


async def test_late_python_task_of_a_job_that_java_committed(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    spec = spec_of(job, FOR_JAVA_DRIVER)
    await run_task(spec, 0, contents("a.csv"))
    with pytest.raises(JobNotFoundError):
        async with committer.open_task(spec, task=1, attempt=0) as task:
            async with task.open("late.csv") as file:
                await file.write(b"late")
            await job.commit()
    with pytest.raises(JobNotFoundError):
        async with committer.open_task(spec, task=2, attempt=0):
            pass
    # Unlike a Java task, it did not bring the job's directory back.
    assert await names_in(job.destination) - {"._SUCCESS.crc"} == {"_SUCCESS", "a.csv"}


async def test_python_task_of_a_job_that_java_aborted(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.abort()
    with pytest.raises(JobNotFoundError):
        await run_task(spec_of(job, FOR_JAVA_DRIVER), 0, contents("a.csv"))
    assert not await exists(job.destination / "_temporary")


async def test_aborted_python_tasks_leave_nothing_for_java(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    spec = spec_of(job, FOR_JAVA_DRIVER)
    await run_task(spec, 0, contents("a.csv"))
    with pytest.raises(RuntimeError, match="a task's own"):
        async with committer.open_task(spec, task=1, attempt=0) as task:
            async with task.open("b.csv") as file:
                await file.write(b"b")
            raise RuntimeError("a task's own failure")
    counters = await job.commit()
    assert counters["committer_files_committed"] == 1
    assert without_sidecars((await on_disk(job.destination))[0]) == contents("a.csv")


@pytest.mark.parametrize("hadoop_driver", [False, True])
async def test_file_where_a_parent_directory_must_go(hadoop: Hadoop, tmp_path: Path, hadoop_driver: bool) -> None:
    """A Java driver looks only at leaf directories: for their parents it needs what `hadoop_driver` records."""
    python, java = hadoop.job(tmp_path / "python"), hadoop.job(tmp_path / "java")
    files = contents("p=1/q=2/a.csv", "p=3/b.csv")
    for job in (python, java):
        await put(job.destination / "p=1", b"in the way")
        await put(job.destination / "p=3", b"in the way too")
        await job.setup()
    await java.run_task(0, files)
    await java.commit()
    await run_task(spec_of(python, FOR_JAVA_DRIVER if hadoop_driver else None), 0, files)
    if hadoop_driver:
        await python.commit()
        await assert_same_result(hadoop, python, java)
    else:
        with pytest.raises(JavaError):
            await python.commit()


@pytest.mark.parametrize("hadoop_driver", [False, True])
async def test_destination_directories_that_exist(hadoop: Hadoop, tmp_path: Path, hadoop_driver: bool) -> None:
    python, java = hadoop.job(tmp_path / "python"), hadoop.job(tmp_path / "java")
    files = contents("p=1/q=2/a.csv", "p=1/b.csv", "c.csv")
    for job in (python, java):
        await put(job.destination / "p=1" / "q=2" / "old.csv", b"old")
        await job.setup()
    await java.run_task(0, files)
    await java.commit()
    await run_task(spec_of(python, FOR_JAVA_DRIVER if hadoop_driver else None), 0, files)
    await python.commit()
    await assert_same_result(hadoop, python, java)
