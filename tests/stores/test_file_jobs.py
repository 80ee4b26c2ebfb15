"""Whole jobs of `file-v1` and `file-v2` on emulated services, where every answer to a rename is lost too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

import committer
from committer.errors import CommitterError, UnsupportedError
from tests.stores.emulated_lake import LAKES, EmulatedLake, serve_lake

FIRST = {f"year={2000 + task}/part-{number}.csv": b"1" * number for task in range(2) for number in range(4)}
FILES = {name: data + b"2" for name, data in FIRST.items()}


@pytest.fixture(params=LAKES)
async def lake(request: pytest.FixtureRequest) -> AsyncIterator[EmulatedLake]:
    async with serve_lake(request.param) as lake:
        yield lake


@pytest.fixture
def dest(lake: EmulatedLake) -> str:
    return (lake.root / "table").uri


async def _open(lake: EmulatedLake, dest: str, name: str) -> committer.Job | None:
    """A job; None where the store cannot serve the committer, which it says."""
    try:
        return await committer.open_job(dest, committer=name, job_id="j", storage_options=lake.options)
    except UnsupportedError as error:
        assert (name, "rename a directory atomically" in str(error)) == ("file-v1", True)
        return None


async def _write(job: committer.Job, files: dict[str, bytes], attempt: int) -> None:
    for number in range(2):
        async with job.task_attempt(task=number, attempt=attempt) as task:
            for name, data in files.items():
                if name.startswith(f"year={2000 + number}/"):
                    async with task.open(name) as file:
                        await file.write(data)


@pytest.mark.parametrize("name", ["file-v1", "file-v2"])
@pytest.mark.parametrize("answers", ["come", "are lost"])
async def test_a_job_whose_tasks_commit_twice(lake: EmulatedLake, dest: str, name: str, answers: str) -> None:
    job = await _open(lake, dest, name)
    if job is None:
        return
    if answers == "are lost":
        lake.fail("reset-after")
    await _write(job, FIRST, 0)
    await _write(job, FILES, 1)
    assert (await job.plan(tasks=2)).conflicts == []
    report = await job.commit(tasks=2)
    await job.close()
    assert report.files_committed == len(FILES)
    found = await lake.files(lake.root / "table")
    assert {path: data for path, data in found.items() if path != "_SUCCESS"} == FILES
    assert (await committer.validate(dest, storage_options=lake.options)).ok


async def test_renames_that_are_said_not_to_have_been_done(lake: EmulatedLake, dest: str) -> None:
    """A front end sends a rename twice, and hands on the second answer: a task that fails is run again."""
    job = await _open(lake, dest, "file-v1")
    if job is None:
        return
    lake.fail("error-after", count=2, **lake.gone)
    for attempt in range(3):
        with suppress(CommitterError):
            await _write(job, FILES, attempt)
            break
    report = await job.commit(tasks=2)
    await job.close()
    found = await lake.files(lake.root / "table")
    assert report.files_committed == len(FILES)
    assert {path: data for path, data in found.items() if path != "_SUCCESS"} == FILES
