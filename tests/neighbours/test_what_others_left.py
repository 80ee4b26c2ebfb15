"""A directory in `_temporary` that holds no record of a job may be another committer's: only force with its name removes it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.errors import CommitterError, JobExistsError, JobNotFoundError, JobStateError, StoreNotADirectoryError

RUNNING = "_temporary/0/_temporary/attempt_202401010000_0001_m_000001_1/part-1"
COMMITTED = "_temporary/0/task_202401010000_0001_m_000000/part-0"


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


async def run(root: Path, job_id: str, name: str, config: CommitterConfig | None = None) -> None:
    async with committer.open_job(root, job_id=job_id, config=config) as job:
        async with job.task_attempt(task=0) as task, task.open(name) as file:
            await file.write(b"x")
        await job.commit(tasks=1)


@pytest.mark.parametrize("rollback", [False, True])
async def test_recover_leaves_the_directory_that_all_jobs_of_hadoops_share(tmp_path: Path, *, rollback: bool) -> None:
    write(tmp_path, RUNNING, COMMITTED)
    with pytest.raises(JobNotFoundError, match="another committer's") as caught:
        await committer.recover(tmp_path, "0", rollback=rollback)
    assert caught.value.outcome == "unchanged"
    assert names(tmp_path) == {RUNNING, COMMITTED}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("job_id", ["0", "uuid-1"])
async def test_settle_refuses_an_id_whose_directory_may_be_anothers(
    tmp_path: Path, job_id: str, *, force: bool
) -> None:
    write(tmp_path, RUNNING, COMMITTED, "_temporary/uuid-1/task_1/part")
    before = names(tmp_path)
    with pytest.raises(JobExistsError, match="holds no record of a job") as caught:
        await committer.settle(tmp_path, job_id, force=force, older_than=timedelta(0))
    assert "force=True" in caught.value.next_step
    assert names(tmp_path) == before


async def test_a_cleanup_by_age_leaves_numbered_directories_that_are_no_job_attempts(tmp_path: Path) -> None:
    write(tmp_path, "_temporary/uuid-1/2024/part")
    report = await committer.cleanup(tmp_path, older_than=timedelta(0))
    assert "uuid-1" in report.kept
    assert names(tmp_path) == {"_temporary/uuid-1/2024/part"}
    await committer.cleanup(tmp_path, job_id="uuid-1", force=True)
    assert names(tmp_path) == set()


async def test_anothers_directory_does_not_hide_that_the_job_is_committed(tmp_path: Path) -> None:
    await run(tmp_path, "J", "part-0")
    write(tmp_path, "_temporary/J/task_1/part")
    before = names(tmp_path)
    assert (await committer.recover(tmp_path, "J")).success
    settled = await committer.settle(tmp_path, "J")
    assert settled is not None
    assert names(tmp_path) == before


@pytest.mark.parametrize("left", ["_temporary/J~aaaa/00/manifests/task_J_m_000000-manifest.json", "_temporary/J~aaaa/"])
async def test_what_another_run_left_does_not_hide_that_the_job_is_committed(tmp_path: Path, left: str) -> None:
    root, reports = tmp_path / "out", tmp_path / "reports"
    config = CommitterConfig(summary_report_directory=str(reports))
    await run(root, "J", "part-0", config)
    if left.endswith("/"):
        (root / left).mkdir(parents=True)
    else:
        write(root, left)
    for _again in range(2):
        assert (await committer.recover(root, "J", config=config)).files_committed == 1
    settled = await committer.settle(root, "J", config=config)
    assert settled is not None
    assert settled.success


async def test_the_advice_for_an_id_that_an_empty_directory_blocks_works(tmp_path: Path) -> None:
    (tmp_path / "_temporary" / "J").mkdir(parents=True)
    with pytest.raises(JobExistsError) as caught:
        await run(tmp_path, "J", "part-0")
    assert "committer.cleanup(" in caught.value.next_step
    await committer.cleanup(tmp_path, job_id="J", force=True)
    await run(tmp_path, "J", "part-0")
    assert "part-0" in names(tmp_path)


@pytest.mark.parametrize("tasks", [None, 1])
@pytest.mark.parametrize("also_mapped", [False, True])
async def test_a_job_of_mapreduce_with_reducers_is_not_joined(
    tmp_path: Path, tasks: int | None, *, also_mapped: bool
) -> None:
    reduced = "_temporary/0/task_202401010000_0002_r_000000/part-r-0"
    mapped = {"_temporary/0/task_202401010000_0002_m_000000/side"} if also_mapped else set[str]()
    write(tmp_path, reduced, *mapped)
    spec = JobSpec.for_hadoop(tmp_path, "job_202401010000_0002", 0, committer="file-v1")
    with pytest.raises(JobStateError, match="commits no reducers"):
        async with committer.attach_job(spec) as job:
            await job.commit(tasks=tasks)
    assert {reduced, *mapped} <= names(tmp_path)
    assert not (tmp_path / "_SUCCESS").exists()


@pytest.mark.parametrize("mode", ["append", "replace"])
async def test_a_table_whose_log_is_a_link_is_a_table(tmp_path: Path, mode: str) -> None:
    root, log = tmp_path / "table", tmp_path / "log"
    log.mkdir()
    write(root, "part-0.parquet")
    (root / "_delta_log").symlink_to(log)
    config = CommitterConfig(conflict_mode="replace", superseded_scope="destination") if mode == "replace" else None
    with pytest.raises(CommitterError, match="Delta"):
        await run(root, "J", "part-1", config)
    assert (root / "part-0.parquet").exists()
    assert not (root / "part-1").exists()


async def test_a_file_in_the_place_of_temporary_has_to_be_moved_away(tmp_path: Path) -> None:
    write(tmp_path, "_temporary")
    with pytest.raises(StoreNotADirectoryError) as caught:
        await run(tmp_path, "J", "part-0")
    assert "overwrite" not in caught.value.next_step
    (tmp_path / "_temporary").rename(tmp_path / "_temporary.old")
    await run(tmp_path, "J", "part-0")
