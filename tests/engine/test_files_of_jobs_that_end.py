"""A file that a task attempt is writing when its job ends, or when it is aborted: the error says which it was."""

from __future__ import annotations

import pytest

from committer import CommitterConfig
from committer.api.task import TaskAttempt
from committer.api.task_files import TaskFile
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError, TaskError
from tests.engine.places import Place, place_fixture

# Stores on which what a task writes goes with its directory.
place = place_fixture("disk", "local", "hdfs", "adls", delivery="message")

SIZES = pytest.mark.parametrize("size", [1, 5 << 20])


async def _goes_on(task: TaskAttempt, file: TaskFile, size: int) -> CommitterError | None:
    """What is told as the file is written further, closed, and the attempt committed: the first error."""
    try:
        await file.write(bytes(size))
        await file.close()
        await task.commit()
    except CommitterError as error:
        return error
    finally:
        await task.abort()
    return None


@SIZES
@pytest.mark.parametrize("nested", [False, True])
async def test_a_file_of_a_job_that_ended_says_that_its_job_is_over(place: Place, size: int, nested: bool) -> None:
    job = await place.open_job()
    task = await place.open_task(job.spec, 0)
    file = await task.open("a=1/part-0" if nested else "part-0").__aenter__()
    await file.write(b"x")
    await job.commit([], tasks=0)
    error = await _goes_on(task, file, size)
    assert isinstance(error, JobNotFoundError)
    assert error.next_step
    assert place.files() == {}


async def test_a_file_of_a_job_whose_outcome_is_kept_says_that_it_is_decided(place: Place) -> None:
    job = await place.open_job(config=CommitterConfig(outcome_kept=True))
    task = await place.open_task(job.spec, 0)
    file = await task.open("part-0").__aenter__()
    await job.commit([], tasks=0)
    error = await _goes_on(task, file, 1)
    assert isinstance(error, JobDecidedError | JobNotFoundError)


@SIZES
async def test_a_file_of_an_attempt_that_was_aborted_says_so(place: Place, size: int) -> None:
    async with place.open_job() as job:
        task = await place.open_task(job.spec, 0)
        file = await task.open("part-0").__aenter__()
        await file.write(b"x")
        await job.abort_task(0, 0)
        error = await _goes_on(task, file, size)
        if error is not None:
            assert isinstance(error, TaskError)
            assert "was aborted" in error.message
        message = await place.run_task(job, 0, {"part-0": b"y"}, attempt=1)
        await job.commit([message], tasks=1)
    assert place.files() == {"part-0": b"y"}
