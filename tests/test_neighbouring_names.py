"""Names that begin alike: what is compared is whole segments, wherever a path, a URI, a bucket or an id is compared.

`dataset1` and `dataset10` stand for them. Uploads are in tests/api/test_uploads.py, stores in the conformance suite.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer.errors import CommitterError, ConfigurationError, InvalidPathError
from committer.file_names import check_absolute_name, root_of
from committer.paths import StorePath
from committer.records.manifest import FileEntry, TaskManifest, plain_names_below, relative_names
from committer.stages.finish.file_list import list_named
from committer.stores.azure.options import TABLE as ADLS
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.stores.s3.options import with_hadoop


@pytest.mark.parametrize("base", ["/lake/dataset1", "abfss://c@a.dfs.core.windows.net/dataset1", "s3://b/dataset1"])
def test_a_path_lies_below_whole_segments(base: str) -> None:
    directory = StorePath.of(base)
    for name in ("dataset10", "dataset10/file", "dataset1.bak/file", "dataset"):
        other = directory.parent / name
        assert not other.is_under(directory)
        with pytest.raises(InvalidPathError):
            other.relative_to(directory)
        assert plain_names_below(directory, [other.uri]) is None
    assert (directory / "0").is_under(directory)
    assert plain_names_below(directory, [(directory / "0").uri]) == ["0"]


def test_a_store_is_another_where_its_authority_begins_alike() -> None:
    assert not StorePath.of("s3://bucket10/a/b").is_under(StorePath.of("s3://bucket1/a"))
    assert not StorePath.of("abfss://c@a0.dfs.core.windows.net/a/b").is_under(
        StorePath.of("abfss://c@a.dfs.core.windows.net/a")
    )


def test_a_root_outside_holds_whole_segments() -> None:
    assert root_of("/lake/dataset10/file", {"/lake/dataset1"}) is None
    assert root_of("/lake/dataset1/a/file", {"/lake/dataset1", "/lake/dataset10"}) == "/lake/dataset1"
    with pytest.raises(InvalidPathError):
        check_absolute_name("/lake/dataset10/file", {"/lake/dataset1"})


async def test_a_root_beside_the_destination_does_not_hold_it(tmp_path: Path) -> None:
    for dest, root in (("dataset10", "dataset1"), ("dataset1", "dataset10")):
        job = await committer.open_job(tmp_path / dest, config={"absolute_roots": [str(tmp_path / root)]})
        await job.abort()
        await job.close()
    with pytest.raises(ConfigurationError, match="lies in the destination"):
        await committer.open_job(tmp_path / "dataset1", config={"absolute_roots": [str(tmp_path / "dataset1" / "0")]})


async def test_a_report_beside_the_destination_is_not_among_its_output(tmp_path: Path) -> None:
    reports = str(tmp_path / "dataset10")
    config = committer.CommitterConfig(summary_report_directory=reports, file_list_directory=reports)
    async with committer.open_job(tmp_path / "dataset1", config=config) as job:
        async with job.task_attempt(task=0) as task, task.open("file") as file:
            await file.write(b"x")
    assert job.report is not None
    assert job.report.file_list.startswith(f"file:{reports}/")
    assert (await committer.validate(tmp_path / "dataset1", config=config)).ok


@pytest.mark.parametrize("field", ["source", "target"])
def test_a_manifest_names_nothing_of_a_neighbour(field: str) -> None:
    dest = StorePath.of("/lake/dataset1")
    root = dest / "_temporary/j/00/tasks"
    source, target = (root / "attempt/f").uri, (dest / "f").uri
    if field == "source":
        source = source.replace("/tasks/", "/tasks-fenced/")
    else:
        target = target.replace("dataset1/", "dataset10/")
    manifest = TaskManifest(
        taskID="t", taskAttemptID="a", taskAttemptDir=root.uri, files=[FileEntry(source, target, 1)]
    )
    with pytest.raises(CommitterError, match="does not lie below"):
        relative_names(manifest, destination=dest, source_root=root, source="test")


def test_a_list_of_files_is_its_own_jobs() -> None:
    dest = StorePath.of("/lake/dataset1")
    digest = "0" * 12
    mine = f"file:/lake/dataset1/_lists/job-{digest}.jsonl"
    assert list_named(mine, "job", dest, "") is not None
    assert list_named(mine.replace("/job-", "/job-1-"), "job", dest, "") is None
    assert list_named(mine.replace("dataset1", "dataset10"), "job", dest, "") is None
    assert list_named(mine.replace("dataset1", "dataset10"), "job", dest, "/lake/dataset10/_lists") is not None
    assert list_named(mine.replace("dataset1", "dataset10"), "job", dest, "/lake/dataset10/_list") is None


@pytest.mark.parametrize("kind", ["local", "memory"])
async def test_a_directory_moves_beside_itself(tmp_path: Path, kind: str) -> None:
    store = LocalStore() if kind == "local" else MemoryStore.open_for(StorePath.of("memory://alike/x"), {})
    root = StorePath.of(tmp_path) if kind == "local" else StorePath.of("memory://alike/x")
    await store.make_directory(root / "dataset1", parents=True)
    await store.rename_directory(root / "dataset1", root / "dataset10")
    assert [child.path.name async for child in store.list(root)] == ["dataset10"]
    await store.close()


async def test_attempts_and_tasks_whose_numbers_begin_alike(tmp_path: Path) -> None:
    """Aborting attempt 1 of task 1 leaves attempt 10, and task 10; both commit."""
    async with committer.open_job(tmp_path / "t", job_id="j", delivery="message") as job:
        messages = []
        for task, attempt in ((1, 1), (1, 10), (10, 1)):
            async with job.task_attempt(task=task, attempt=attempt) as opened, opened.open(f"{task}-{attempt}") as file:
                await file.write(b"x")
            messages.append(opened.task_commit)
        await job.abort_task(1, 1)
        assert (await job.recover_task(1, 10)) == messages[1]
        await job.commit([message for message in messages[1:] if message is not None])
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["1-10", "10-1", "_SUCCESS"]


async def test_jobs_whose_ids_begin_alike(tmp_path: Path) -> None:
    jobs = [await committer.open_job(tmp_path, job_id=job_id) for job_id in ("j", "j-1", "j1")]
    await committer.cleanup(tmp_path, job_id="j")
    assert [info.job_id for info in await committer.list_jobs(tmp_path)] == ["j-1", "j1"]
    for job in jobs:
        await job.close()


def test_a_bucket_whose_name_goes_on_has_options_of_its_own() -> None:
    """The option of bucket data.x was refused as an unknown one of bucket data."""
    given = {"fs.s3a.endpoint": "http://all", "fs.s3a.bucket.data.x.endpoint": "http://other"}
    assert with_hadoop(given, "data")["endpoint_url"] == "http://all"
    assert with_hadoop(given, "data.x")["endpoint_url"] == "http://other"
    assert with_hadoop(given, "dat")["endpoint_url"] == "http://all"


def test_an_account_named_as_a_container_elsewhere_has_options_of_its_own() -> None:
    key = "fs.azure.sas.fixed.token.{}.dfs.core.windows.net"
    of_container = key.format("data.lake")
    assert ADLS.is_for(of_container, "data@lake.dfs.core.windows.net")
    assert not ADLS.is_for(of_container, "any@data.dfs.core.windows.net")
    assert ADLS.is_for(key.format("data"), "any@data.dfs.core.windows.net")
    assert not ADLS.is_for(key.format("data1"), "any@data.dfs.core.windows.net")
