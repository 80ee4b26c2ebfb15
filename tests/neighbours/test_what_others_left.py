"""A directory in `_temporary` that holds no record of a job may be another committer's: only force with its name removes it."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, JobSpec
from committer.api.recover import check_recovery
from committer.errors import (
    CommitterError,
    JobExistsError,
    JobNotFoundError,
    JobStateError,
    RecordError,
    StoreNotADirectoryError,
    TaskMissingError,
    UnsupportedError,
)
from committer.stages.base import RecordRef, StageContext
from committer.stages.load.manifest_forms import ManifestForms
from committer.stores.memory import MemoryStore

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


@pytest.mark.parametrize("also_mapped", [False, True])
async def test_a_job_of_mapreduce_with_reducers_is_refused_before_anything_is_made(
    tmp_path: Path, *, also_mapped: bool
) -> None:
    reduced = "_temporary/0/task_202401010000_0002_r_000000/part-r-0"
    mapped = {"_temporary/0/task_202401010000_0002_m_000000/side"} if also_mapped else set[str]()
    write(tmp_path, reduced, *mapped)
    spec = JobSpec.for_hadoop(tmp_path, "job_202401010000_0002", 0, committer="file-v1")
    with pytest.raises(JobStateError, match="commits no reducers"):
        await committer.attach_job(spec).__aenter__()
    assert names(tmp_path) == {reduced, *mapped}
    assert not (tmp_path / "_temporary" / "job_202401010000_0002").exists()


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


DAMAGED = ["{", '{"name" : "org.apa', "\0" * 40]


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("reported", [False, True])
async def test_a_damaged_report_is_no_proof_that_the_job_never_committed(
    tmp_path: Path, damage: str, *, reported: bool
) -> None:
    root, reports = tmp_path / "out", tmp_path / "reports"
    config = CommitterConfig(summary_report_directory=str(reports)) if reported else None
    await run(root, "J", "part-0", config)
    damaged = reports / "summary-J.json" if reported else root / "_SUCCESS"
    damaged.write_text(damage)
    if reported:
        await run(root, "later", "part-1", config)
    for call in (committer.settle, committer.recover, check_recovery):
        with pytest.raises(RecordError, match="whether job J is committed is not known") as caught:
            await call(root, "J", config=config)
        assert str(damaged) in caught.value.path
        assert caught.value.outcome == "unknown"
    damaged.unlink()
    assert await committer.settle(root, "J", config=config) is None


async def test_a_damaged_report_counts_for_nothing_beside_a_success_of_the_job(tmp_path: Path) -> None:
    root, reports = tmp_path / "out", tmp_path / "reports"
    config = CommitterConfig(summary_report_directory=str(reports))
    await run(root, "J", "part-0", config)
    (reports / "summary-J.json").write_text("{")
    settled = await committer.settle(root, "J", config=config)
    assert settled is not None
    assert settled.files_committed == 1


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_damaged_success_counts_for_nothing_beside_a_kept_outcome(tmp_path: Path, damage: str) -> None:
    await run(tmp_path, "J", "part-0", CommitterConfig(outcome_kept=True))
    (tmp_path / "_SUCCESS").write_text(damage)
    settled = await committer.settle(tmp_path, "J")
    assert settled is not None
    assert settled.files_committed == 1


@pytest.mark.parametrize(
    "content",
    [
        "",
        "done at 10:15",
        '{"rows" : 5}',
        '{"name" : "another"}',
        "{'rows': 5}",
        '{"name":"a"}\n{"name":"b"}',
        '{"rows" : NaN}',
        "{done}",
    ],
)
async def test_what_another_writer_put_into_success_says_nothing_of_a_job(tmp_path: Path, content: str) -> None:
    (tmp_path / "_SUCCESS").write_text(content)
    assert await committer.settle(tmp_path, "J") is None
    await run(tmp_path, "J", "part-0")
    assert await committer.settle(tmp_path, "J") is not None


@pytest.mark.parametrize("content", ["", "done at 10:15", *DAMAGED])
async def test_a_commit_ignores_the_content_of_an_old_success(tmp_path: Path, content: str) -> None:
    (tmp_path / "_SUCCESS").write_text(content)
    await run(tmp_path, "J", "part-0")
    assert (await committer.recover(tmp_path, "J")).success


@pytest.mark.parametrize("scope", ["directories", "destination"])
async def test_an_overwrite_spares_what_running_queries_of_hive_and_spark_stage(tmp_path: Path, scope: str) -> None:
    staged = {
        "day=1/.hive-staging_hive_2024-01-01_10-00-00_000_1-1/-ext-10000/000000_0",
        "day=1/.spark-staging-7f0c/part-0",
    }
    write(tmp_path, "day=1/old", "day=1/.old-of-another-name", *staged)
    config = CommitterConfig(conflict_mode="replace", superseded_scope=scope)
    await run(tmp_path, "J", "day=1/part-0", config)
    assert names(tmp_path) == {"day=1/part-0", "_SUCCESS", *staged}


@pytest.mark.parametrize("force", [False, True])
async def test_settle_does_not_say_that_an_id_is_free_which_an_empty_directory_blocks(
    tmp_path: Path, *, force: bool
) -> None:
    (tmp_path / "_temporary" / "J").mkdir(parents=True)
    with pytest.raises(JobExistsError, match="holds no record of a job") as caught:
        await committer.settle(tmp_path, "J", force=force)
    assert "committer.cleanup(" in caught.value.next_step
    await committer.cleanup(tmp_path, job_id="J", force=True)
    assert await committer.settle(tmp_path, "J") is None


@pytest.mark.parametrize("written", ["00/tasks/attempt_1_0001_m_000000_0/day=1/part-0", "00/manifests/a.json"])
async def test_a_job_of_hadoops_is_as_young_as_what_its_tasks_write(tmp_path: Path, written: str) -> None:
    name = f"_temporary/manifest_1_0001/{written}"
    write(tmp_path, name)
    week = 7 * 24 * 3600
    for path in tmp_path.rglob("*"):
        os.utime(path, (time.time() - 2 * week,) * 2)
    os.utime(tmp_path / name)
    report = await committer.cleanup(tmp_path, older_than=week)
    assert (report.removed, list(report.kept)) == ([], ["manifest_1_0001"])
    os.utime(tmp_path / name, (time.time() - 2 * week,) * 2)
    assert (await committer.cleanup(tmp_path, older_than=week)).removed == ["manifest_1_0001"]


async def leave_open(root: Path) -> None:
    job = await committer.open_job(root, job_id="J")
    await job.close()


def _setup_of(root: Path) -> Path:
    [setup] = root.glob("_temporary/J~*/setup")
    return setup


@pytest.mark.parametrize(("old", "new"), [('"version": 1', '"version": 99'), ("{", "")])
async def test_the_advice_beside_a_job_with_an_unreadable_setup_is_that_of_settle(
    tmp_path: Path, old: str, new: str
) -> None:
    await leave_open(tmp_path)
    setup = _setup_of(tmp_path)
    text = setup.read_text()
    assert old in text
    setup.write_text(text.replace(old, new, 1))
    with pytest.raises(RecordError) as settled:
        await committer.settle(tmp_path, "J", force=True)
    with pytest.raises(JobExistsError, match="record that cannot be read") as caught:
        await run(tmp_path, "J", "part-0")
    assert caught.value.state == "unknown"
    assert settled.value.next_step
    assert caught.value.next_step == settled.value.next_step
    await committer.cleanup(tmp_path, job_id="J", force=True)
    await run(tmp_path, "J", "part-0")


async def test_only_force_removes_a_job_of_a_committer_that_this_process_does_not_know(tmp_path: Path) -> None:
    await leave_open(tmp_path)
    setup = _setup_of(tmp_path)
    setup.write_text(setup.read_text().replace('"committer": "manifest"', '"committer": "of-another"'))
    report = await committer.cleanup(tmp_path, older_than=0)
    assert "which this process does not know" in report.kept["J"]
    with pytest.raises(UnsupportedError, match="which this process does not know") as caught:
        await committer.cleanup(tmp_path, job_id="J")
    assert "force=True" in caught.value.next_step
    assert setup.exists()
    assert (await committer.cleanup(tmp_path, job_id="J", force=True)).removed == ["J"]


async def test_a_damaged_kept_outcome_still_says_that_the_job_committed(tmp_path: Path) -> None:
    await run(tmp_path, "J", "part-0", CommitterConfig(outcome_kept=True))
    [kept] = tmp_path.glob("_temporary/J~*/kept")
    kept.write_text("{")
    with pytest.raises(JobExistsError) as caught:
        await run(tmp_path, "J", "part-1")
    assert caught.value.state == "committed"
    assert caught.value.next_step == "nothing is left to run"


async def fail(tmp_path: Path) -> tuple[Path, Path, CommitterConfig]:
    """Runs a job that fails and reports it; returns its destination, the directory of its report, its options."""
    root, reports = tmp_path / "out", tmp_path / "reports"
    config = CommitterConfig(summary_report_directory=str(reports))
    write(root, "part-0")
    with pytest.raises(CommitterError):
        await run(root, "J", "part-0", config)
    return root, reports, config


async def test_a_failure_summary_frees_no_id_that_anothers_directory_blocks(tmp_path: Path) -> None:
    root, reports, config = await fail(tmp_path)
    assert (reports / "summary-J.json").exists()
    (root / "_temporary" / "J").mkdir(parents=True)
    with pytest.raises(JobExistsError, match="holds no record of a job"):
        await committer.settle(root, "J", config=config)


async def test_an_unknown_end_leaves_the_report_of_why_the_job_failed(tmp_path: Path) -> None:
    root, reports, config = await fail(tmp_path)
    (root / "_SUCCESS").write_text("{")
    before = (reports / "summary-J.json").read_text()
    with pytest.raises(RecordError, match="is not known"):
        await committer.recover(root, "J", config=config)
    assert (reports / "summary-J.json").read_text() == before
    (reports / "summary-J.json").unlink()
    with pytest.raises(RecordError, match="is not known"):
        await committer.recover(root, "J", config=config)
    assert names(reports) == set()


class OnS3:
    """A destination in a memory space that is like S3."""

    def __init__(self, name: str) -> None:
        self.space = MemoryStore.space(name, "s3")
        self.dest = f"memory://{name}/table"
        self.options = {"profile": "s3"}

    def write(self, *names: str) -> None:
        for name in names:
            self.space.write(f"/table/{name}", b"x")

    def names(self) -> set[str]:
        return {path.removeprefix("/table/") for path in self.space.files()}

    async def run(self, job_id: str, name: str, **arguments: Any) -> None:
        async with committer.open_job(self.dest, job_id=job_id, storage_options=self.options, **arguments) as job:
            async with job.task_attempt(task=0) as task, task.open(name) as file:
                await file.write(b"new")
            await job.commit()


@pytest.fixture
def on_s3(request: pytest.FixtureRequest) -> OnS3:
    return OnS3("".join(filter(str.isalnum, request.node.name)).lower())


async def test_an_object_with_the_name_of_a_magic_directory_blocks_no_id(on_s3: OnS3) -> None:
    on_s3.write("__magic_job-J")
    await on_s3.run("J", "part-0", committer="magic")
    assert {"part-0", "_SUCCESS"} <= on_s3.names()


PENDING = "__magic_job-J/job-J/00/tasks/attempt_1_0001_m_000000_0/__base/part-0.pending"


@pytest.mark.parametrize("ending", [{"force": True}, {"older_than": 0}])
async def test_a_job_of_s3a_whose_tasks_have_not_committed_is_left_unless_asked(
    on_s3: OnS3, ending: dict[str, Any]
) -> None:
    on_s3.write(PENDING)
    arguments: dict[str, Any] = {"storage_options": on_s3.options}
    with pytest.raises(JobExistsError) as caught:
        await committer.settle(on_s3.dest, "J", **arguments)
    assert caught.value.state == "open"
    with pytest.raises(JobNotFoundError, match="perhaps alive"):
        await committer.recover(on_s3.dest, "J", **arguments)
    assert on_s3.names() == {PENDING}
    assert await committer.settle(on_s3.dest, "J", **ending, **arguments) is None
    assert on_s3.names() == set()


async def test_what_a_late_task_of_s3a_left_of_a_committed_job_is_removed(on_s3: OnS3) -> None:
    await on_s3.run("J", "part-0", committer="magic")
    on_s3.write(PENDING)
    settled = await committer.settle(on_s3.dest, "J", storage_options=on_s3.options)
    assert settled is not None
    assert on_s3.names() == {"part-0", "_SUCCESS"}


async def test_one_cleanup_frees_an_id_of_several_directories(on_s3: OnS3) -> None:
    on_s3.write("_temporary/J~aaaa/00/x", PENDING)
    await committer.cleanup(on_s3.dest, job_id="J", force=True, storage_options=on_s3.options)
    assert on_s3.names() == set()


@pytest.mark.parametrize("mode", ["append", "replace"])
@pytest.mark.parametrize("advice", ["run it again", "leave it out"])
async def test_a_listing_without_the_records_of_this_process_is_refused(on_s3: OnS3, mode: str, advice: str) -> None:
    on_s3.write("day=1/old")
    config = CommitterConfig(conflict_mode=mode)
    job = await committer.open_job(
        on_s3.dest, job_id="J", committer="magic", delivery="listing", config=config, storage_options=on_s3.options
    )
    for number in range(2):
        async with job.task_attempt(task=number) as task, task.open(f"day=1/part-{number}") as file:
            await file.write(b"new")
    records = [name for name in on_s3.names() if name.endswith("m_000001.pendingset")]
    assert records
    for name in records:
        await on_s3.space.store().delete_file(on_s3.space.path(f"table/{name}"))
    for call in (job.plan, job.commit):
        with pytest.raises(TaskMissingError, match="committed in this process, and its record is gone"):
            await call()
    if advice == "run it again":
        async with job.task_attempt(task=1, attempt=1) as task, task.open("day=1/part-1") as file:
            await file.write(b"again")
    else:
        await job.abort_task(1, 0)
    await job.commit()
    await job.close()
    old = {"day=1/old"} if mode == "append" else set[str]()
    new = {"day=1/part-1"} if advice == "run it again" else set[str]()
    assert on_s3.names() == {"day=1/part-0", "_SUCCESS", *new, *old}


async def test_a_task_that_commits_during_a_listing_is_not_missed_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await committer.open_job(str(tmp_path), job_id="J", delivery="listing")

    async def run(number: int) -> None:
        async with job.task_attempt(task=number) as task, task.open(f"part-{number}") as file:
            await file.write(b"new")

    await run(0)
    listing = ManifestForms.list_records

    async def slow_listing(self: ManifestForms, context: StageContext, *, taking: bool) -> list[RecordRef]:
        found = await listing(self, context, taking=taking)
        monkeypatch.undo()
        await run(1)
        assert (await job.plan()).files == 2
        return found

    monkeypatch.setattr(ManifestForms, "list_records", slow_listing)
    assert (await job.plan()).files == 1
    assert (await job.commit()).files_committed == 2


async def test_stocator_names_the_file_in_the_place_of_a_directory(on_s3: OnS3) -> None:
    on_s3.write("day=1")
    with pytest.raises(CommitterError, match="a file exists at day=1, where a directory goes"):
        await on_s3.run("J", "day=1/part-0", committer="stocator")
