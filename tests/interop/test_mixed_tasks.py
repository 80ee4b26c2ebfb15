"""One job, some tasks by Java and some by Python, committed by either; and tasks that come too late."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import committer
from committer import CommitterConfig

from .hadoop import Hadoop, JavaJob
from .hooked import HookedStore
from .python_side import FOR_JAVA_DRIVER, assert_same_result, commit, run_scanned_task, run_task, spec_of
from .trees import contents, exists, is_sidecar, on_disk, without_sidecars

Driver = Literal["java", "python"]


async def commit_by(driver: Driver, job: JavaJob) -> None:
    await (job.commit() if driver == "java" else commit(job))


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_tasks_of_both_kinds(hadoop: Hadoop, tmp_path: Path, driver: Driver) -> None:
    mixed, java = hadoop.job(tmp_path / "mixed"), hadoop.job(tmp_path / "java")
    outputs = [contents(f"p=1/{task} a.csv", f"p={task}/é.csv", f"{task}%20.csv") for task in range(4)]
    await java.setup()
    for task, files in enumerate(outputs):
        await java.run_task(task, files)
    await java.commit()

    await mixed.setup()
    spec = spec_of(mixed, FOR_JAVA_DRIVER)
    await mixed.run_task(0, outputs[0])
    await run_task(spec, 1, outputs[1])
    await mixed.run_task(2, outputs[2])
    await run_scanned_task(spec, 3, outputs[3])
    await commit_by(driver, mixed)
    await assert_same_result(hadoop, mixed, java)


@pytest.mark.parametrize("driver", ["java", "python"])
@pytest.mark.parametrize("winner", ["java", "python"])
async def test_second_attempt_of_the_other_kind_wins(
    hadoop: Hadoop, tmp_path: Path, winner: Driver, driver: Driver
) -> None:
    """The later record replaces the earlier under the task's name, and the checksum sidecar Java gave it with it."""
    job = hadoop.job(tmp_path / "dest")
    spec = spec_of(job, FOR_JAVA_DRIVER)
    losing, winning = contents("both.csv", "first.csv", salt="0"), contents("both.csv", "second.csv", salt="1")
    await job.setup()
    if winner == "python":
        await job.run_task(0, losing, attempt=0)
        await run_task(spec, 0, winning, attempt=1)
    else:
        await run_task(spec, 0, losing, attempt=0)
        await job.run_task(0, winning, attempt=1)
    assert (await hadoop.load_manifest(job.manifest(0)))["taskAttemptID"].endswith("_1")
    await commit_by(driver, job)
    assert without_sidecars((await on_disk(job.destination))[0]) == winning
    assert without_sidecars(await hadoop.read_files(job.destination)).keys() == winning.keys() | {"_SUCCESS"}


async def test_one_attempt_id_run_by_both(hadoop: Hadoop, tmp_path: Path) -> None:
    """Python's attempt directory has a nonce, so even the same attempt number shares no byte."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await hadoop.write(await job.setup_task(0), contents("f.csv", salt="java"))
    await run_task(spec_of(job), 0, contents("f.csv", salt="python"))
    await job.commit_task(0)
    await commit(job)
    assert (await on_disk(job.destination))[0] == contents("f.csv", salt="java")


@pytest.mark.parametrize("driver", ["java", "python"])
async def test_files_that_java_wrote_into_a_python_task(hadoop: Hadoop, tmp_path: Path, driver: Driver) -> None:
    """A JVM library handed a `work_path` leaves sidecars there, which a scan must not take for output."""
    job = hadoop.job(tmp_path / "dest")
    files = contents("a.csv", "p=1/b c.csv", "p=1/.hidden")
    await job.setup()
    async with committer.open_task(spec_of(job, FOR_JAVA_DRIVER), task=0, attempt=0) as task:
        await hadoop.write(Path(task.work_path()), files)
    assert sorted(await hadoop.destinations(job.manifest(0))) == sorted(str(job.destination / name) for name in files)
    await commit_by(driver, job)
    standing, _ = await on_disk(job.destination)
    assert without_sidecars(standing) == files
    # A Java driver renames sidecars with their files; a Python driver leaves none.
    assert any(map(is_sidecar, standing)) == (driver == "java")
    assert without_sidecars(await hadoop.read_files(job.destination)).keys() == files.keys() | {"_SUCCESS"}


@pytest.mark.parametrize("moment", ["decision", "a.csv"], ids=["before the decision", "amid publishing"])
@pytest.mark.parametrize(("late_task", "attempt"), [(1, 0), (0, 1)], ids=["another task", "another attempt"])
async def test_java_task_that_commits_while_python_commits_the_job(
    hadoop: Hadoop, tmp_path: Path, late_task: int, attempt: int, moment: str
) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv", salt="0"))
    await hadoop.write(await job.setup_task(late_task, attempt), contents("a.csv", "late.csv", salt="late"))

    async def commit_late() -> None:
        await job.commit_task(late_task, attempt)
        assert await exists(job.manifest(late_task))

    store = HookedStore().arm(moment, commit_late)
    async with committer.attach_job(spec_of(job), storage_options={"store": store}) as attached:
        report = await attached.commit(tasks=1)
    assert store.fired == 1
    assert report.files_committed == 1
    assert await on_disk(job.destination) == (contents("a.csv", salt="0"), set())
    assert not await exists(job.destination / "_temporary" / job.id)


async def test_java_task_that_commits_after_python_committed_the_job(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    await hadoop.write(await job.setup_task(1), contents("late.csv"))
    await commit(job, CommitterConfig(cleanup_skipped=True))
    await job.commit_task(1)
    assert await exists(job.manifest(1))
    expected = (contents("a.csv"), set[str]())
    assert (await committer.recover(job.destination, job.id)).files_committed == 1
    assert await on_disk(job.destination) == expected
    assert not await exists(job.destination / "_temporary" / job.id)


async def test_what_a_java_task_that_outlives_its_job_leaves(hadoop: Hadoop, tmp_path: Path) -> None:
    """Java's tasks make their job's directories anew after it was cleaned up. That is not a job to commit again."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("a.csv"))
    await commit(job)
    await job.run_task(1, contents("late.csv"))
    assert await exists(job.manifest(1))
    assert [info.job_id for info in await committer.list_jobs(job.destination)] == [job.id]

    # Undecided as the directory looks, `_SUCCESS` says that this very job is committed.
    assert (await commit(job)).files_committed == 1
    assert (await committer.recover(job.destination, job.id)).files_committed == 1
    assert (await on_disk(job.destination))[0] == contents("a.csv")
    assert (await hadoop.load_success(job.destination / "_SUCCESS"))["filenames"] == [f"file:{job.destination}/a.csv"]
    assert not await exists(job.destination / "_temporary")
