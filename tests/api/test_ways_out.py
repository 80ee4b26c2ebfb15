"""A job that another program spoiled is ended by what its error says, done to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import CommitterError, RecordError
from committer.testing.faults import Fault, SimulatedCrash
from tests.api.test_advice import calls_in, follow
from tests.job_paths import in_job
from tests.places import MemoryPlace
from tests.spoiled import NEW, SPOILED, half_published, visible


@pytest.mark.parametrize("name", SPOILED)
async def test_what_the_error_says_ends_the_job(tmp_path: Path, name: str) -> None:
    table, case = tmp_path / "table", SPOILED[name]
    await case.spoil(table)
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table, "j", rollback=case.rollback)
    if case.mend is not None:
        case.mend(table, caught.value.next_step)
    await follow(calls_in(caught.value)[case.way])
    assert visible(table) == case.files
    assert await committer.list_jobs(table) == []


async def test_what_is_given_up_is_said(tmp_path: Path) -> None:
    table = tmp_path / "table"
    await SPOILED["records gone"].spoil(table)
    with pytest.raises(CommitterError) as caught:
        await committer.recover(table, "j", rollback=True)
    assert "what it published stays; what it did not publish" in caught.value.next_step
    assert Path(caught.value.path).name.startswith("plan-00000-")


@pytest.mark.parametrize("profile", ["hdfs", "adls", "gcs"])
@pytest.mark.parametrize("name", ["/b", "tasks"])
async def test_sources_that_are_gone_elsewhere(profile: str, name: str) -> None:
    """A source, or all of them: a rollback rolls the job back where it can, else the job is given up."""
    place = MemoryPlace(profile)
    config = committer.CommitterConfig(io_concurrency=1)
    job = await place.open_job(job_id="j", config=config)
    for number, file in enumerate("ab"):
        await place.run_task(job, number, {file: file.encode()})
    place.faults(Fault(kind="crash_before", operation="rename_file", path="/b"))
    with pytest.raises(SimulatedCrash):
        await job.commit(tasks=2)
    for source in [one for one in place.all_files() if "/tasks/" in one and one.endswith(name)]:
        place.remove(source)
    if name == "tasks":
        place.remove(in_job(place, "j", "00/tasks"))
    with pytest.raises(CommitterError) as caught:
        await committer.recover(place.dest, "j")
    back = name == "/b" or profile == "gcs"
    said = calls_in(caught.value)[-1]
    assert ("rollback=True" in said, "force=True" in said) == (back, profile == "gcs" or not back)
    await follow(said)
    assert place.files() == ({} if back else {"a": b"a"})
    assert place.temporary() == set()


# -- a destination that a driver reaches by another name than the job's tasks: their records hold whole paths -----------


def published(table: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in table.iterdir() if path.is_file() and path.name != "_SUCCESS"}


@pytest.mark.parametrize("rollback", [False, True])
async def test_a_job_that_came_by_a_link_is_told_to_be_reached_by_it(tmp_path: Path, rollback: bool) -> None:
    table, link = tmp_path / "table", tmp_path / "link"
    table.mkdir()
    link.symlink_to(table)
    await half_published(link)
    with pytest.raises(RecordError, match="does not lie below") as caught:
        await committer.recover(table, "j", rollback=rollback)
    assert caught.value.outcome == "partial"
    assert f"named the destination file:{link}: name it so" in caught.value.next_step
    await committer.recover(link, "j", rollback=rollback)
    assert published(table) == ({} if rollback else NEW)
    assert not (table / "_temporary").exists()


async def test_a_job_whose_destination_was_moved_is_told_to_be_moved_back(tmp_path: Path) -> None:
    table, moved = tmp_path / "table", tmp_path / "moved"
    await half_published(table)
    table.rename(moved)
    with pytest.raises(RecordError) as caught:
        await committer.recover(moved, "j")
    assert f"file:{table}" in caught.value.next_step
    assert "move it back" in caught.value.next_step
    moved.rename(table)
    await committer.recover(table, "j")
    assert published(table) == NEW


async def test_an_undecided_job_is_told_the_same_and_nothing_changes(tmp_path: Path) -> None:
    table, link = tmp_path / "table", tmp_path / "link"
    table.mkdir()
    link.symlink_to(table)
    job = await committer.open_job(link, job_id="j", config=CommitterConfig())
    async with job.task_attempt(task=0) as task, task.open("a") as file:
        await file.write(b"0")
    other = await committer.attach_job(table, job_id="j")
    with pytest.raises(RecordError, match="does not lie below") as caught:
        await other.commit(tasks=1)
    await other.close()
    assert caught.value.outcome == "unchanged"
    assert f"named the destination file:{link}: name it so" in caught.value.next_step
    assert (await job.commit(tasks=1)).files_committed == 1
    await job.close()


async def test_validate_says_to_use_the_name_that_the_job_used(tmp_path: Path) -> None:
    table, link = tmp_path / "table", tmp_path / "link"
    table.mkdir()
    link.symlink_to(table)
    async with committer.open_job(link) as job, job.task_attempt(task=0) as task, task.open("a") as file:
        await file.write(b"0")
    report = await committer.validate(table)
    assert not report.ok
    (wrong,) = report.wrong
    assert wrong.startswith(f"file:{link}/a: lies outside the destination; where that has two names, give the job's;")
    assert (await committer.validate(link)).ok
