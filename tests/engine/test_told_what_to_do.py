"""Refusals of calls that cannot be right: what failed is named, nothing is made, and what to do is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import committer
from committer.errors import (
    CommitterError,
    InvalidPathError,
    JobDecidedError,
    JobNotFoundError,
    StoreLinkError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.testing.faults import Fault
from tests.engine.places import Place


async def test_a_dangling_link_on_the_way_is_named(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    for dest in (link, link / "table", link / "a" / "b"):
        with pytest.raises(StoreNotFoundError) as caught:
            await committer.open_job(dest)
        assert f"{link} is a link to {tmp_path / 'gone'}, which does not exist" in caught.value.message
        assert (caught.value.outcome, caught.value.next_step != "") == ("unchanged", True)
        assert os.listdir(tmp_path) == ["link"]
    (tmp_path / "gone").mkdir()
    job = await committer.open_job(link / "table")
    await job.abort()
    await job.close()


@pytest.mark.parametrize("dest", ["/", "file:///", "/tmp/..", "file:/"])
async def test_the_root_of_a_disk_is_no_destination(dest: str) -> None:
    before = set(os.listdir("/"))
    with pytest.raises(InvalidPathError, match="root of a disk") as caught:
        await committer.open_job(dest)
    assert "directory below it" in caught.value.next_step
    assert set(os.listdir("/")) == before


@pytest.mark.parametrize("profile", ["s3", "adls", "local"])
async def test_the_root_of_a_bucket_is_a_destination(profile: str) -> None:
    dest = f"memory://root-{profile}/"
    options = {"profile": profile}
    async with committer.open_job(dest, job_id="job-1", storage_options=options) as job:
        async with job.task_attempt(task=0) as task, task.open("p=1/a") as file:
            await file.write(b"x")
        report = await job.commit()
    assert report.files_committed == 1
    assert (await committer.validate(dest, storage_options=options)).ok


def _calls(here: Path) -> dict[str, Callable[[], Any]]:
    table = str(here / "table")
    return {
        "existing_target": lambda: committer.CommitterConfig(existing_target="some"),  # type: ignore[arg-type]
        "io_concurrency": lambda: committer.CommitterConfig(io_concurrency=0),
        "delivery": lambda: committer.open_job(table, delivery="pigeon"),  # type: ignore[arg-type]
        "job id": lambda: committer.open_job(table, job_id="a/b"),
        "task": lambda: committer.open_task(committer.JobSpec(destination=f"file:{table}", job_id="job"), task=-1),
        "attach_job": lambda: committer.attach_job(table),
        "cleanup": lambda: committer.cleanup(table),
        "load_record": lambda: committer.load_record(table),
        "load_record of a directory": lambda: committer.load_record(str(here)),
        "list_uploads": lambda: committer.list_uploads(str(here)),
        "abort_uploads": lambda: committer.abort_uploads(str(here)),
        "storage option": lambda: committer.open_job(table, storage_options={"colour": "red"}),
    }


@pytest.mark.parametrize("which", _calls(Path()))
async def test_each_refusal_says_what_to_do(tmp_path: Path, which: str) -> None:
    with pytest.raises(CommitterError) as caught:
        await _calls(tmp_path)[which]()
    assert caught.value.next_step
    assert caught.value.next_step not in caught.value.message
    assert caught.value.outcome == "unchanged"
    assert os.listdir(tmp_path) == []


OPERATIONS: dict[str, Callable[[Path], Any]] = {
    "recover": lambda dest: committer.recover(dest, "job"),
    "attach_job": lambda dest: committer.attach_job(dest, job_id="job"),
    "cleanup": lambda dest: committer.cleanup(dest, job_id="job"),
    "list_jobs": lambda dest: committer.list_jobs(dest),
}


@pytest.mark.parametrize("kind", ["missing", "file"])
@pytest.mark.parametrize("call", ["recover", "attach_job", "cleanup"])
async def test_a_destination_that_is_none_is_told(tmp_path: Path, kind: str, call: str) -> None:
    dest = tmp_path / "table"
    if kind == "file":
        dest.write_text("x")
    with pytest.raises(JobNotFoundError) as caught:
        await OPERATIONS[call](dest)
    said = {"missing": "the destination does not exist", "file": "a file stands there"}[kind]
    assert said in caught.value.message
    assert caught.value.next_step.startswith("correct the path")


async def test_a_setup_below_a_file_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("x")
    for dest in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CommitterError):
            await committer.open_job(dest)
    assert caplog.text == ""


async def test_commit_and_abort_in_one_gather(place: Place) -> None:
    """Neither is called without await: one of them wins, and the other one says so."""
    for first in ("commit", "abort"):
        job = await place.open_job(job_id=f"job-{first}")
        await place.run_task(job, 0, {first: b"x"})
        calls = {"commit": job.commit, "abort": job.abort}
        order = [calls.pop(first)(), next(iter(calls.values()))()]
        found = await asyncio.gather(*order, return_exceptions=True)  # type: ignore[arg-type]
        errors = [one for one in found if isinstance(one, BaseException)]
        assert all(isinstance(error, JobDecidedError | JobNotFoundError) for error in errors)
        assert not any("without await" in str(error) for error in errors)
        assert (first in place.files()) != bool(job._aborted)
        await job.close()


async def test_a_failure_that_will_stay_has_a_way_out(place: Place) -> None:
    """Another user's file, or a refused right: recover never ends the job, and a rollback does."""
    job = await place.open_job(job_id="job-1")
    message = await place.run_task(job, 0, {"a": b"a", "b": b"b"})
    place.faults(
        Fault(kind="forbidden", operation=place.publishes_by, path=lambda path: path.path.endswith("/b"), times=None)
    )
    with pytest.raises(CommitterError) as caught:
        await job.commit([message])
    assert caught.value.outcome == "partial"
    assert "rollback=True" in caught.value.next_step
    assert "committer.recover(" in caught.value.next_step
    options = {"store": place.store.inner}
    force = "force=True" in caught.value.next_step
    report = await committer.recover(place.dest, "job-1", rollback=True, force=force, storage_options=options)
    assert not report.success
    assert place.files() == {}


@pytest.mark.parametrize("place", ["", "_temporary", "_temporary/job", "_temporary/job/00", "_temporary/job/setup"])
@pytest.mark.parametrize("call", OPERATIONS)
async def test_a_dangling_link_is_named_and_what_to_do(tmp_path: Path, place: str, call: str) -> None:
    dest = tmp_path / "table"
    link = dest / place if place else dest
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/nowhere")
    if call == "list_jobs" and place.startswith("_temporary/"):
        [info] = await committer.list_jobs(dest)
        assert (info.job_id, info.state) == ("job", "unknown")
        said = info.problem
    else:
        with pytest.raises(CommitterError) as caught:
            await OPERATIONS[call](dest)
        assert caught.value.outcome == "unchanged"
        said = f"{caught.value.message}; {caught.value.next_step}"
    own = f"{place} is a link, where a job has its own directories"
    assert (own if place else "is a link to /nowhere, which does not exist") in said
    assert "remove the link" in said
    assert link.is_symlink()


@pytest.mark.parametrize("call", ["recover", "attach_job"])
async def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path, call: str) -> None:
    (tmp_path / "_temporary").write_text("x")
    with pytest.raises(JobNotFoundError) as caught:
        await OPERATIONS[call](tmp_path)
    assert f"a file stands at file:{tmp_path}/_temporary, where a directory must be" in caught.value.message
    assert "remove the file" in caught.value.next_step


async def test_no_jobs_are_listed_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "_temporary").write_text("x")
    for looking in (committer.list_jobs(tmp_path), committer.cleanup(tmp_path, older_than=0)):
        with pytest.raises(StoreNotADirectoryError, match="_temporary") as caught:
            await looking
        assert "remove the file" in caught.value.next_step


async def test_a_setup_that_met_a_link_can_be_run_again_without_it(tmp_path: Path) -> None:
    """The advice, followed: nothing was made, so the id is free."""
    (tmp_path / "_temporary").symlink_to("/nowhere")
    with pytest.raises(StoreLinkError) as caught:
        await committer.open_job(tmp_path, job_id="job")
    assert "remove the link by hand" in caught.value.next_step
    (tmp_path / "_temporary").unlink()
    job = await committer.open_job(tmp_path, job_id="job")
    await job.abort()
    await job.close()
