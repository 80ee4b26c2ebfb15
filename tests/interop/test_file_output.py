"""FileOutputCommitter's jobs, by Java and by `file-v1`: each continues the other's, and both come to the same tree."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import JobNotFoundError, TargetExistsError

from .file_job import FileOutputJob
from .hadoop import JOB_ATTEMPT, Hadoop, JavaError, JavaJob
from .python_side import REPLACE, assert_same_trees, run_scanned_task, run_task
from .test_targets import FILES, Situation, files_become_directories, old_files_by_java
from .trees import AWKWARD_NAMES, HIDDEN_NAMES, contents, exists, make_directory, on_disk, put, without_sidecars

MORE = contents("p=1/e.csv", "q=2/deep/er/f.csv", "g.csv", salt="more")


async def nothing(hadoop: Hadoop, job: JavaJob) -> None:
    """An empty destination."""


async def files_where_directories_go(hadoop: Hadoop, job: JavaJob) -> None:
    await hadoop.write(job.destination, contents("p=1", "q=2/deep", "empty", salt="old"))


SITUATIONS: list[Situation] = [nothing, old_files_by_java, files_become_directories, files_where_directories_go]


def twins(hadoop: Hadoop, tmp_path: Path, version: int = 1) -> tuple[FileOutputJob, FileOutputJob]:
    return FileOutputJob(hadoop, tmp_path / "python", version), FileOutputJob(hadoop, tmp_path / "java", version)


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_python_merges_javas_tasks_as_java_does(hadoop: Hadoop, tmp_path: Path, situation: Situation) -> None:
    """File over file, directory over file, file over directory, empty directories."""
    python, java = twins(hadoop, tmp_path)
    for job in (python, java):
        await situation(hadoop, job)
        await job.setup()
        await job.run_task(0, FILES, directories=("empty/below", "p=1/none"))
        await job.run_task(1, MORE)
    await java.commit()
    report = await python.commit_by_python(REPLACE, tasks=2)
    assert report.files_committed == len(FILES) + len(MORE)
    await assert_same_trees(hadoop, python, java)
    assert not await exists(python.destination / "_temporary")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("situation", SITUATIONS)
async def test_java_merges_pythons_tasks_as_its_own(
    hadoop: Hadoop, tmp_path: Path, situation: Situation, version: int
) -> None:
    """By algorithm 2 tasks merge into the destination when they commit; Java's driver then ends both jobs."""
    python, java = twins(hadoop, tmp_path, version)
    for job in (python, java):
        await situation(hadoop, job)
        await job.setup()
    await run_scanned_task(python.spec(REPLACE), 0, FILES, directories=("empty/below", "p=1/none"))
    await run_task(python.spec(REPLACE), 1, MORE)
    await java.run_task(0, FILES, directories=("empty/below", "p=1/none"))
    await java.run_task(1, MORE)
    for job in (python, java):
        await job.commit()
    await assert_same_trees(hadoop, python, java)
    assert not await exists(python.destination / "_temporary")


async def test_java_commits_a_job_that_python_set_up(hadoop: Hadoop, tmp_path: Path) -> None:
    """As long as no driver of Python's began to; this engine's records are in its way nowhere, and go."""
    job = FileOutputJob(hadoop, tmp_path / "t")
    ours = await committer.open_job(job.destination, job_id=job.id, committer="file-v1")
    async with ours.task_attempt(task=0) as task:
        for name, data in FILES.items():
            async with task.open(name) as file:
                await file.write(data)
    late = await committer.open_task(ours.spec, task=1)
    async with late.open("late.csv") as file:
        await file.write(b"never committed")
    await job.run_task(2, MORE)
    await job.commit()
    assert without_sidecars((await on_disk(job.destination))[0]) == {**FILES, **MORE}
    assert not await exists(job.destination / "_temporary")
    await ours.close()
    with pytest.raises(JobNotFoundError):
        await late.commit()


async def test_awkward_names_both_ways(hadoop: Hadoop, tmp_path: Path) -> None:
    python, java = twins(hadoop, tmp_path)
    files = contents(*AWKWARD_NAMES, *HIDDEN_NAMES)
    for job in (python, java):
        await job.setup()
        await job.run_task(0, files)
    await run_task(java.spec(), 1, contents("python/Grüße 100%.csv"))
    await python.run_task(1, contents("python/Grüße 100%.csv"))
    await java.commit()
    await python.commit_by_python(tasks=2)
    await assert_same_trees(hadoop, python, java)


async def test_a_task_attempt_that_java_did_not_commit_is_not_committed(hadoop: Hadoop, tmp_path: Path) -> None:
    job = FileOutputJob(hadoop, tmp_path / "t")
    await job.setup()
    await job.run_task(0, FILES)
    work = await job.setup_task(1)
    await hadoop.write(work, contents("never.csv"))
    assert await job.needs_task_commit(1)
    await job.run_task(2, contents("first.csv"))
    await job.run_task(2, contents("second.csv"), attempt=1)
    await job.commit_by_python(tasks=2)
    files, _directories = await on_disk(job.destination)
    assert set(without_sidecars(files)) == {*FILES, "second.csv"}
    assert not await exists(job.destination / "_temporary")


async def test_java_says_of_pythons_attempts_what_it_says_of_its_own(hadoop: Hadoop, tmp_path: Path) -> None:
    """A directory with a nonce is not where Java looks: its own questions are about its own attempts."""
    job = FileOutputJob(hadoop, tmp_path / "t")
    await job.setup()
    await run_task(job.spec(), 0, FILES)
    assert not await job.needs_task_commit(0)
    await job.commit_task(0)
    await job.abort_task(0)
    await job.commit()
    assert without_sidecars((await on_disk(job.destination))[0]) == FILES


async def test_by_default_old_files_are_refused_and_java_may_commit_after(hadoop: Hadoop, tmp_path: Path) -> None:
    job = FileOutputJob(hadoop, tmp_path / "t")
    await put(job.destination / "d.csv", b"old")
    await job.setup()
    await job.run_task(0, FILES)
    with pytest.raises(TargetExistsError):
        await job.commit_by_python()
    assert (await on_disk(job.destination))[0] == {"d.csv": b"old"}
    await job.commit()
    assert without_sidecars((await on_disk(job.destination))[0]) == FILES


async def test_both_take_over_what_an_earlier_application_attempt_committed(hadoop: Hadoop, tmp_path: Path) -> None:
    """``recoverTask``: Java's by Java, Java's by Python, Python's by Java."""
    first = FileOutputJob(hadoop, tmp_path / "t")
    second = FileOutputJob(hadoop, tmp_path / "t", conf={JOB_ATTEMPT: "1"})
    await first.setup()
    await first.run_task(0, contents("java-by-java.csv"))
    await first.run_task(1, contents("java-by-python.csv"))
    await run_task(first.spec(), 2, contents("python-by-java.csv"))
    await first.run_task(3, contents("not-asked-for.csv"))
    await second.setup()
    await second.recover_task(0)
    await second.recover_task(2)
    async with committer.attach_job(second.spec()) as job:
        assert (await job.recover_task(1, 0)).files == 1
        await job.commit(tasks=3)
    files, _directories = await on_disk(first.destination)
    assert set(without_sidecars(files)) == {"java-by-java.csv", "java-by-python.csv", "python-by-java.csv"}


async def test_what_java_says_of_itself(hadoop: Hadoop, tmp_path: Path) -> None:
    """Recovery is supported, and only algorithm 2 may commit a job again, as the pages say."""
    job = FileOutputJob(hadoop, tmp_path / "t")
    assert await job.is_recovery_supported()
    assert not await job.is_commit_repeatable()
    assert await FileOutputJob(hadoop, tmp_path / "t", 2).is_commit_repeatable()
    with pytest.raises(JavaError, match="Only 1 or 2 algorithm version is supported"):
        await FileOutputJob(hadoop, tmp_path / "t", 3).setup()


async def test_a_marker_is_kept_from_being_written_on_both_sides(hadoop: Hadoop, tmp_path: Path) -> None:
    key = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    job = FileOutputJob(hadoop, tmp_path / "java", conf={key: "false"})
    await job.setup()
    await job.commit()
    assert not await exists(job.destination / "_SUCCESS")
    ours = FileOutputJob(hadoop, tmp_path / "python")
    await make_directory(ours.destination / "_temporary" / "0")
    await ours.commit_by_python(CommitterConfig.from_hadoop({key: "false"}))
    assert not await exists(ours.destination / "_SUCCESS")


async def test_java_commits_a_job_of_algorithm_2_that_python_set_up(hadoop: Hadoop, tmp_path: Path) -> None:
    job = FileOutputJob(hadoop, tmp_path / "t", 2)
    ours = await committer.open_job(job.destination, job_id=job.id, committer="file-v2")
    await run_task(ours.spec, 0, FILES)
    await job.run_task(1, MORE)
    await ours.close()
    await job.commit()
    assert without_sidecars((await on_disk(job.destination))[0]) == {**FILES, **MORE}
    assert not await exists(job.destination / "_temporary")
