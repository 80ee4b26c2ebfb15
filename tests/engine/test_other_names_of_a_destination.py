"""A destination that a driver reaches by another name than the job's tasks: their records hold whole paths."""

from __future__ import annotations

from pathlib import Path

import pytest

import committer
from committer import CommitterConfig
from committer.errors import RecordError
from tests.engine.spoiled import NEW, half_published


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
