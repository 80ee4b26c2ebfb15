"""Existing targets: old files, directories where files go, files where directories go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import PreflightError, StorePermissionError, TargetExistsError

from .hadoop import DELETE_TARGET_FILES, Hadoop, JavaJob
from .hooked import HookedStore
from .python_side import FOR_JAVA_DRIVER, REPLACE, assert_same_result, commit, run_task, spec_of
from .trees import contents, exists, is_sidecar, on_disk, put, without_sidecars

FILES = contents("p=1/a.csv", "p=1/b c.csv", "d.csv", salt="new")


def twins(hadoop: Hadoop, tmp_path: Path) -> tuple[JavaJob, JavaJob]:
    conf = {DELETE_TARGET_FILES: True}
    return hadoop.job(tmp_path / "python", conf=conf), hadoop.job(tmp_path / "java", conf=conf)


async def old_files_by_java(hadoop: Hadoop, job: JavaJob) -> None:
    # With sidecars: a job that replaces the files must not leave those to speak for the new ones.
    await hadoop.write(job.destination, contents("p=1/a.csv", "p=1/kept.csv", "d.csv", salt="old, and longer"))


async def files_become_directories(hadoop: Hadoop, job: JavaJob) -> None:
    await hadoop.write(job.destination, contents("p=1/a.csv/inner/x.csv", "d.csv/y.csv", salt="old"), ("p=1/b c.csv",))


async def directories_become_files(hadoop: Hadoop, job: JavaJob) -> None:
    await hadoop.write(job.destination, contents("p=1", salt="old"))


Situation = Callable[[Hadoop, JavaJob], Awaitable[None]]
SITUATIONS: list[Situation] = [old_files_by_java, files_become_directories, directories_become_files]


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_replacing_python_driver_ends_as_replacing_java_driver(
    hadoop: Hadoop, tmp_path: Path, situation: Situation
) -> None:
    python, java = twins(hadoop, tmp_path)
    for job in (python, java):
        await situation(hadoop, job)
        await job.setup()
        await job.run_task(0, FILES)
    await java.commit()
    await commit(python, REPLACE)
    await assert_same_result(hadoop, python, java)


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_replacing_java_driver_over_python_tasks(hadoop: Hadoop, tmp_path: Path, situation: Situation) -> None:
    python, java = twins(hadoop, tmp_path)
    for job in (python, java):
        await situation(hadoop, job)
        await job.setup()
    await java.run_task(0, FILES)
    await java.commit()
    await run_task(spec_of(python, FOR_JAVA_DRIVER), 0, FILES)
    await python.commit()
    await assert_same_result(hadoop, python, java)


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_python_driver_refuses_by_default_and_java_may_commit_after(
    hadoop: Hadoop, tmp_path: Path, situation: Situation
) -> None:
    job, _ = twins(hadoop, tmp_path)
    await situation(hadoop, job)
    before = await on_disk(job.destination)
    await job.setup()
    await job.run_task(0, FILES)
    with pytest.raises(PreflightError) as refused:
        await commit(job)
    assert refused.value.outcome == "unchanged"
    if situation is old_files_by_java:
        assert isinstance(refused.value, TargetExistsError)
    assert await on_disk(job.destination) == before

    # The records are where a Java driver looks for them.
    counters = await job.commit()
    assert counters["committer_files_committed"] == len(FILES)
    assert FILES.items() <= (await on_disk(job.destination))[0].items()


async def test_replaced_directory_loses_the_sidecars_of_its_old_files(hadoop: Hadoop, tmp_path: Path) -> None:
    job = hadoop.job(tmp_path / "dest")
    await hadoop.write(job.destination, contents("p=1/old.csv", "p=1/q=2/older.csv", "p=3/other.csv"))
    await job.setup()
    await job.run_task(0, contents("p=1/new.csv"))
    await commit(job, CommitterConfig(conflict_mode="replace"))
    standing, _ = await on_disk(job.destination)
    assert without_sidecars(standing) == contents("p=1/new.csv", "p=3/other.csv")
    assert [name for name in standing if is_sidecar(name)] == ["p=3/.other.csv.crc"]
    assert (await hadoop.read_files(job.destination)).keys() == {"p=1/new.csv", "p=3/other.csv", "_SUCCESS"}


async def refuse() -> None:
    raise StorePermissionError("refused on purpose", operation="rename_file")


async def test_rollback_over_files_that_java_wrote(hadoop: Hadoop, tmp_path: Path) -> None:
    """Old files are back, and Java reads them: no sidecar of one file speaks for another."""
    dest = tmp_path / "dest"
    earlier = hadoop.job(dest, 2)
    old = contents("p=1/a.csv", "d.csv", "kept.csv", salt="old")
    await earlier.setup()
    await earlier.run_task(0, old)
    await earlier.commit()
    earlier_success = await hadoop.load_success(dest / "_SUCCESS")
    # Java's own job setup would delete the old `_SUCCESS`; so would a second Java job's cleanup delete this one.
    started = await committer.open_job(dest, job_id="J", config=REPLACE)
    java = hadoop.job(dest, uuid=started.spec.unique_id)
    await java.run_task(0, contents("p=1/a.csv", "d.csv", "new/e.csv", salt="new"))
    await started.close()

    store = HookedStore().arm("d.csv", refuse)
    with pytest.raises(committer.CommitterError):
        async with committer.attach_job(started.spec, storage_options={"store": store}) as it:
            await it.commit()
    await committer.recover(dest, "J", rollback=True)

    standing, directories = await on_disk(dest)
    assert without_sidecars(standing) == old
    assert directories == {"p=1"}
    read_back = await hadoop.read_files(dest)
    assert read_back.pop("_SUCCESS")
    assert read_back == old
    assert await hadoop.load_success(dest / "_SUCCESS") == earlier_success
    assert not await exists(dest / "_temporary")


async def test_file_of_a_java_task_blocked_by_a_file_of_another(hadoop: Hadoop, tmp_path: Path) -> None:
    """Java renames both and the last one wins; here the job is refused while nothing is published."""
    job = hadoop.job(tmp_path / "dest")
    await job.setup()
    await job.run_task(0, contents("same.csv", salt="0"))
    await job.run_task(1, contents("same.csv", salt="1"))
    await job.run_task(2, contents("x"))
    await job.run_task(3, contents("x/y.csv"))
    async with committer.attach_job(spec_of(job)) as attached:
        assert len((await attached.plan()).conflicts) == 2
        with pytest.raises(PreflightError) as refused:
            await attached.commit()
    assert len(refused.value.conflicts) == 2
    assert await on_disk(job.destination) == ({}, set())
    await put(job.destination / "still writable", b"")
