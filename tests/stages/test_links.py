"""Symbolic links, pipes and the like: among a task's files, among old files, at a target, on the way to either."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, RecordError, StoreNotFoundError, TargetExistsError, TaskError
from committer.paths import StorePath
from committer.records.manifest import TaskManifest, decode_task_manifest, encode_task_manifest
from committer.stores.base import FileStatus
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault, FaultyStore
from tests.job_paths import in_job
from tests.places import DiskPlace

REPLACE_TARGETS = CommitterConfig(existing_target="replace")
REPLACE_DIRECTORIES = CommitterConfig(conflict_mode="replace")


@pytest.fixture
def disk(tmp_path: Path) -> DiskPlace:
    return DiskPlace(tmp_path)


def tree(directory: Path) -> dict[str, str]:
    """Every file and link below a directory, with its content or `-> ` and where it leads; not `_SUCCESS`."""
    found = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and path.name != "_SUCCESS":
            found[name] = path.read_text()
    return found


def fill(directory: Path, files: dict[str, str]) -> None:
    """The opposite of `tree`."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            path.symlink_to(content[3:])
        else:
            path.write_text(content)


async def stop_before_the_outcome(disk: DiskPlace, config: CommitterConfig, files: dict[str, bytes]) -> None:
    """A job `job-1` whose driver dies when all is published."""
    job = await disk.open_job(job_id="job-1", config=config)
    await disk.run_task(job, 0, files)
    disk.faults(Fault(kind="forbidden", operation="put", path="/outcome", times=1))
    with pytest.raises(CommitterError):
        await job.commit()
    await job.close()


# -- among a task's files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("leads_to", ["{inputs}", "{inputs}/lookup.csv", "{work}/part-0", "part-0", ".", "/nowhere"])
@pytest.mark.parametrize("name", ["link", "a=1/link"])
async def test_a_link_among_its_files_fails_a_task(disk: DiskPlace, tmp_path: Path, leads_to: str, name: str) -> None:
    fill(tmp_path, {"inputs/lookup.csv": "precious"})
    async with disk.open_job() as job:
        with pytest.raises(
            TaskError, match=f"^{name} is a symbolic link: only regular files can be committed"
        ) as caught:
            async with job.task_attempt(task=0) as task:
                Path(task.work_path("part-0")).write_bytes(b"x")
                link = Path(task.work_path(name))
                link.symlink_to(leads_to.format(inputs=tmp_path / "inputs", work=task.work_path()))
        assert caught.value.outcome == "unchanged"
        await disk.run_task(job, 0, {"part-0": b"again"}, attempt=1)
    assert tree(tmp_path) == {"inputs/lookup.csv": "precious", "table/part-0": "again"}


@pytest.mark.parametrize("kind", ["pipe", "socket"])
async def test_what_is_no_file_among_a_tasks_files_fails_the_task(disk: DiskPlace, kind: str) -> None:
    async with disk.open_job(job_id="j") as job:
        with pytest.raises(TaskError, match="only regular files can be committed"):
            async with job.task_attempt(task=0) as task:
                if kind == "pipe":
                    os.mkfifo(task.work_path("odd"))
                else:
                    here = os.getcwd()
                    os.chdir(task.work_path())  # the whole path is too long for the name of a socket
                    try:
                        with socket.socket(socket.AF_UNIX) as made:
                            made.bind("odd")
                    finally:
                        os.chdir(here)
        await disk.run_task(job, 0, {"part-0": b"x"}, attempt=1)
    assert disk.files() == {"part-0": b"x"}


def behind(link: str, manifest: TaskManifest) -> TaskManifest:
    """The record with one more entry, whose source lies behind a link of the attempt's directory."""
    [entry] = manifest.files
    extra = msgspec.structs.replace(
        entry, s=entry.s.replace("part-0", f"{link}/key"), d=entry.d.replace("part-0", "stolen"), z=1, e=None
    )
    return msgspec.structs.replace(manifest, files=[entry, extra])


@pytest.mark.parametrize("link", ["l", "deep/er/l"])
async def test_a_source_behind_a_link_is_refused(disk: DiskPlace, tmp_path: Path, link: str) -> None:
    """G10: nothing outside is moved because a record says so."""
    fill(tmp_path, {"secret/key": "k"})
    job = await disk.open_job(job_id="job-1")
    task = await disk.open_task(job.spec, 0)
    async with task, task.open("part-0") as file:
        await file.write(b"x")
    fill(Path(task.directory.path), {link: f"-> {tmp_path / 'secret'}"})
    [name] = [name for name in tree(disk.root) if name.endswith("-manifest.json")]
    manifest = decode_task_manifest(disk.root.joinpath(name).read_bytes(), source=name)
    disk.write(name, encode_task_manifest(behind(link, manifest)))
    with pytest.raises(RecordError, match=f"a source lies behind .*/{link}, which is a link") as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert (tmp_path / "secret/key").read_text() == "k"
    assert not (disk.root / "stolen").exists()
    await job.abort()
    assert tree(tmp_path) == {"secret/key": "k"}


async def test_a_recoverer_looks_for_links_too(disk: DiskPlace, tmp_path: Path) -> None:
    fill(tmp_path, {"secret/part-0": "precious"})
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"a=1/part-0": b"x"})
    disk.faults(Fault(kind="forbidden", operation="rename_file", path="a=1/part-0"))
    with pytest.raises(CommitterError):
        await job.commit()
    await job.close()
    [directory] = in_job(disk.root, "job-1").glob("00/tasks/*/a=1")
    directory.rename(directory.with_name("moved"))
    directory.symlink_to(tmp_path / "secret")
    with pytest.raises(RecordError, match="which is a link") as caught:
        await disk.recover("job-1")
    assert caught.value.outcome == "partial"
    assert (tmp_path / "secret/part-0").read_text() == "precious"
    directory.unlink()
    directory.with_name("moved").rename(directory)
    await disk.recover("job-1")
    assert disk.files() == {"a=1/part-0": b"x"}


async def test_looking_for_links_costs_one_call_for_many_records(disk: DiskPlace) -> None:
    job = await disk.open_job()
    for number in range(3):
        await disk.run_task(job, number, {f"a={part}/part-{number}": b"x" for part in range(20)})
    before = len(disk.store.calls)
    await job.commit()
    assert [call.operation for call in disk.store.calls[before:]].count("find_link") == 1


# -- among old files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["directories", "destination"])
async def test_a_link_among_old_files_is_one_old_file(disk: DiskPlace, tmp_path: Path, scope: str) -> None:
    fill(
        tmp_path,
        {
            "archive/precious": "kept",
            "table/a=1/old": "old",
            "table/a=1/to-archive": f"-> {tmp_path / 'archive'}",
            "table/a=1/up": "-> ..",
            "table/a=1/to-file": "-> old",
            "table/a=1/to-nowhere": "-> missing",
            "table/a=2/old": "old",
        },
    )
    os.mkfifo(tmp_path / "table/a=1/pipe")
    config = CommitterConfig(conflict_mode="replace", superseded_scope=scope)  # type: ignore[arg-type]
    await disk.run_job({"a=1/new": b"new"}, config=config)
    expected = {"archive/precious": "kept", "table/a=1/new": "new", "table/a=2/old": "old"}
    if scope == "destination":
        del expected["table/a=2/old"]
    assert tree(tmp_path) == expected
    assert not (tmp_path / "table/a=1/pipe").exists()


async def test_rolling_back_brings_old_links_back(disk: DiskPlace, tmp_path: Path) -> None:
    """A relative link leads nowhere while it lies in the job's directory; it comes back all the same."""
    old = {
        "archive/precious": "kept",
        "table/a=1/old": "old",
        "table/a=1/latest": "-> old",
        "table/a=1/up": "-> ..",
        "table/a=1/to-archive": "-> ../../archive",
        "table/a=1/to-nowhere": "-> /nowhere",
    }
    fill(tmp_path, old)
    await stop_before_the_outcome(disk, REPLACE_DIRECTORIES, {"a=1/new": b"new"})
    visible = {name for name in tree(disk.root) if not name.startswith("_temporary")}
    assert visible == {"a=1/new"}
    await disk.recover("job-1", rollback=True)
    assert tree(tmp_path) == old


async def test_an_old_link_with_both_names_comes_back_once(disk: DiskPlace, tmp_path: Path) -> None:
    """Where renames are links, a driver can die between the new name and the old one."""
    disk.store = FaultyStore(LocalStore(threads=1, no_replace="link"))
    old = {"archive/precious": "kept", "table/a=1/to-archive": f"-> {tmp_path / 'archive'}"}
    fill(tmp_path, old)
    await stop_before_the_outcome(disk, REPLACE_DIRECTORIES, {"a=1/new": b"new"})
    [aside] = in_job(disk.root, "job-1").glob("work/superseded/00000000")
    os.link(aside, disk.root / "a=1/to-archive", follow_symlinks=False)
    await disk.recover("job-1", rollback=True, force=True)
    assert tree(tmp_path) == old


@pytest.mark.parametrize("config", [REPLACE_TARGETS, REPLACE_DIRECTORIES], ids=["targets", "directories"])
@pytest.mark.parametrize("leads_to", ["old", "..", "/nowhere", "latest"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_link_at_a_target_is_replaced_itself(
    disk: DiskPlace, config: CommitterConfig, leads_to: str, rollback: bool
) -> None:
    old = {"a=1/old": "old", "a=1/latest": f"-> {leads_to}"}
    fill(disk.root, old)
    await stop_before_the_outcome(disk, config, {"a=1/latest": b"new"})
    await disk.recover("job-1", rollback=rollback)
    new = {"a=1/latest": "new"} | ({"a=1/old": "old"} if config is REPLACE_TARGETS else {})
    assert tree(disk.root) == (old if rollback else new)


@pytest.mark.parametrize("leads_to", ["old", "/nowhere", "."])
async def test_a_link_at_a_target_is_refused_before_the_decision(disk: DiskPlace, leads_to: str) -> None:
    fill(disk.root, {"old": "old", "part-0": f"-> {leads_to}"})
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"part-0": b"new", "part-1": b"new"})
    assert (await job.plan()).conflicts == ["a link exists at part-0, where a file goes"]
    with pytest.raises(TargetExistsError) as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    await job.abort()
    assert tree(disk.root) == {"old": "old", "part-0": f"-> {leads_to}"}


async def test_a_link_to_nowhere_where_a_directory_goes_is_refused(disk: DiskPlace) -> None:
    fill(disk.root, {"a=1": "-> /nowhere"})
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"a=1/part-0": b"new"})
    assert (await job.plan()).conflicts == ["a link exists at a=1, where a directory goes"]
    await job.abort()
    await disk.run_job({"a=1/part-0": b"new"}, config=REPLACE_TARGETS)
    assert tree(disk.root) == {"a=1/part-0": "new"}


async def test_a_link_that_appears_at_a_target_refuses_the_job(disk: DiskPlace) -> None:
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"part-0": b"new", "part-1": b"new"})

    async def appear(call: Call) -> None:
        if call.operation == "rename_file" and str(call.destination).endswith("table/part-0"):
            disk.store.before_call = None
            await asyncio.to_thread(fill, disk.root, {"part-0": "-> /nowhere"})

    disk.store.before_call = appear
    with pytest.raises(TargetExistsError, match="a link exists at"):
        await job.commit()
    assert tree(disk.root) == {"part-0": "-> /nowhere"}


class Blind(LocalStore):
    """Does not show one thing that exists there, as a file server with an old cache."""

    async def status(self, path: StorePath) -> FileStatus:
        if path.path.endswith("table/part-0"):
            raise StoreNotFoundError("nothing is there", operation="status", path=path)
        return await super().status(path)


async def test_what_is_in_the_way_unseen_is_a_refusal_not_a_mystery(disk: DiskPlace) -> None:
    """The file is at its source and nothing happened to it, so the job is rolled back and nothing is unknown."""
    disk.store = FaultyStore(Blind(threads=1))
    job = await disk.open_job(job_id="job-1")
    await disk.run_task(job, 0, {"part-0": b"new", "part-1": b"new"})
    fill(disk.root, {"part-0": "unseen"})
    with pytest.raises(TargetExistsError, match="something that cannot be looked at exists at") as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert tree(disk.root) == {"part-0": "unseen"}


# -- on the way to the destination -------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [None, REPLACE_TARGETS, REPLACE_DIRECTORIES], ids=["append", "targets", "replace"])
@pytest.mark.parametrize("rollback", [False, True])
async def test_a_partition_may_be_a_link_to_a_directory_elsewhere(
    disk: DiskPlace, tmp_path: Path, config: CommitterConfig | None, rollback: bool
) -> None:
    link = f"-> {tmp_path / 'other-disk/a=1'}"
    old = {"other-disk/a=1/old": "old", "other-disk/a=1/b=1/old": "old", "table/a=1": link}
    fill(tmp_path, old)
    await stop_before_the_outcome(disk, config or CommitterConfig(), {"a=1/new": b"new", "a=1/b=1/new": b"new"})
    await disk.recover("job-1", rollback=rollback)
    new = {"other-disk/a=1/new": "new", "other-disk/a=1/b=1/new": "new", "table/a=1": link}
    if config is not REPLACE_DIRECTORIES:
        new |= old
    assert tree(tmp_path) == (old if rollback else new)


async def test_a_link_below_a_replaced_directory_stays_when_files_go_behind_it(disk: DiskPlace, tmp_path: Path) -> None:
    link = f"-> {tmp_path / 'other-disk'}"
    fill(tmp_path, {"other-disk/b/old": "old", "table/a/old": "old", "table/a/l": link})
    await disk.run_job({"a/new": b"new", "a/l/b/new": b"new"}, config=REPLACE_DIRECTORIES)
    assert tree(tmp_path) == {"other-disk/b/new": "new", "table/a/new": "new", "table/a/l": link}


async def test_a_disk_that_folds_case_knows_its_links_by_any_spelling(disk: DiskPlace, tmp_path: Path) -> None:
    """A job that writes `A/L/...` writes behind `A/l`, which such a disk takes for one name with it."""

    class Folding(LocalStore):
        async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
            async for status in super().list(directory):
                yield msgspec.structs.replace(status, path=directory / status.path.name.lower())

    disk.store = FaultyStore(Folding(threads=1, case_folding=True))
    link = f"-> {tmp_path / 'other-disk'}"
    (tmp_path / "other-disk").mkdir()
    fill(tmp_path, {"table/A/L": link})
    job = await disk.open_job(config=REPLACE_DIRECTORIES)
    await disk.run_task(job, 0, {"A/first": b"new", "A/L/new": b"new"})
    assert (await job.plan()).replaced == []
    await job.commit()
    assert tree(tmp_path) == {"other-disk/new": "new", "table/A/L": link, "table/A/first": "new"}


async def test_a_linked_partition_is_not_taken_away_under_the_new_files(disk: DiskPlace, tmp_path: Path) -> None:
    old = {"other-disk/old": "old", "table/a=1": f"-> {tmp_path / 'other-disk'}"}
    fill(tmp_path, old)
    config = CommitterConfig(conflict_mode="replace", superseded_scope="destination")
    job = await disk.open_job(config=config)
    await disk.run_task(job, 0, {"a=1/new": b"new"})
    with pytest.raises(TargetExistsError, match="a=1 is a link to a directory"):
        await job.commit()
    await job.abort()
    assert tree(tmp_path) == old


# -- validate ----------------------------------------------------------------------------------------------------


async def test_validate_calls_a_link_a_link(disk: DiskPlace, tmp_path: Path) -> None:
    fill(tmp_path, {"elsewhere/part-0": "x", "elsewhere/more": "x"})
    await disk.run_job({"a=1/part-0": b"x", "a=1/part-1": b"x"})
    (disk.root / "a=1/part-0").unlink()
    (disk.root / "a=1/part-0").symlink_to(tmp_path / "elsewhere/part-0")
    (disk.root / "b").symlink_to(tmp_path / "elsewhere")
    report = await committer.validate(disk.dest)
    assert (report.ok, report.missing) == (False, [])
    assert [problem.rpartition("/")[2] for problem in report.wrong] == ["part-0: is a link"]
    assert [uri.rpartition("/")[2] for uri in report.extra] == ["b"]
