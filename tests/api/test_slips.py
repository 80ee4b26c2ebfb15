"""G15: a slip of the caller never loses a file with success reported: it raises, or loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import committer
from committer import CommitterConfig, Job, TaskAttempt, TaskCommit, sync
from committer.errors import CommitterError, JobNotFoundError, JobStateError, RecordError, TaskError, TaskMissingError
from committer.testing.faults import Fault, FaultKind
from tests.places import EVERY_COMMITTER, Delivery, DiskPlace, MemoryPlace, Place, place_fixture, write_file

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

place = place_fixture(*EVERY_COMMITTER)

Slip = Callable[[Place, Job], Awaitable[object]]


class Row(NamedTuple):
    """A slip, and the error that tells of it."""

    slip: Slip
    error: type[Exception]
    says: str


async def write(task: TaskAttempt, name: str) -> None:
    await write_file(task, name, b"x")


async def run(job: Job, number: int, *names: str, attempt: int = 0) -> TaskCommit:
    async with job.task_attempt(number, attempt) as task:
        for name in names:
            await write(task, name)
    return task.task_commit


async def run_elsewhere(place: Place, job: Job, number: int, name: str, attempt: int = 0) -> TaskCommit:
    async with place.open_task(job.spec, number, attempt) as task:
        await write(task, name)
    return task.task_commit


# -- the same task twice ------------------------------------------------------------------------------------------


async def one_number_for_tasks_at_once(place: Place, job: Job) -> None:
    await asyncio.gather(*(run(job, 0, f"part-{number}") for number in range(4)))


async def one_number_for_tasks_in_turn(place: Place, job: Job) -> None:
    for number in range(2):
        await run(job, 0, f"part-{number}")


async def an_attempt_opened_while_it_is_being_opened(place: Place, job: Job) -> None:
    first = asyncio.ensure_future(job.task_attempt(0))
    await asyncio.sleep(0)
    try:
        await job.task_attempt(0)
    finally:
        await (await first).abort()


# -- files ----------------------------------------------------------------------------------------------------------


async def one_name_for_two_files(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task, task.open("part-0") as first, task.open("part-0") as second:
        await first.write(b"1")
        await second.write(b"2")


async def one_name_in_two_tasks(place: Place, job: Job) -> None:
    messages = [await run(job, number, "part-0") for number in range(2)]
    await job.commit(messages)


async def a_file_written_after_its_block(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        async with task.open("part-0") as file:
            await file.write(b"1")
        await file.write(b"2")


async def a_file_opened_after_its_task(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        await write(task, "part-0")
    await write(task, "part-1")


async def a_file_opened_while_its_task_commits(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        commit = asyncio.ensure_future(task.commit())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        try:
            await write(task, "part-0")
        finally:
            await commit


async def a_file_never_closed(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        file = await task.open("part-0")
        await file.write(b"x")


async def a_blocking_file_never_closed(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        file = task.open_blocking("part-0")
        await asyncio.to_thread(file.write, b"x")


async def a_file_never_entered(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        task.open("part-0")


async def a_write_never_awaited(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task, task.open("part-0") as file:
        file.write(b"x")


async def a_file_written_by_a_coroutine_that_was_not_awaited(place: Place, job: Job) -> None:
    try:
        async with job.task_attempt(0) as task:
            writing = asyncio.ensure_future(write(task, "part-0"))
    finally:
        await asyncio.gather(writing, return_exceptions=True)


async def an_exception_swallowed_around_a_file(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        with suppress(ValueError):
            async with task.open("part-0") as file:
                await file.write(b"half")
                raise ValueError
        await write(task, "part-1")


async def an_exception_swallowed_around_a_blocking_file(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:

        def write_half() -> None:
            with suppress(ValueError), task.open_blocking("part-0") as file:
                file.write(b"half")
                raise ValueError

        await asyncio.to_thread(write_half)


async def an_exception_swallowed_around_a_blocking_file_on_the_loop(place: Place, job: Job) -> None:
    async with job.task_attempt(0) as task:
        with suppress(ValueError):
            async with task.open_blocking("part-0") as file:
                await asyncio.to_thread(file.write, b"half")
                raise ValueError
        assert file.closed


# -- attempts and the job's end -----------------------------------------------------------------------------------------


async def an_attempt_never_ended(place: Place, job: Job) -> None:
    task = await job.task_attempt(0)
    await write(task, "part-0")
    await job.commit([] if place.delivery == "message" else None)


async def a_task_commit_never_awaited(place: Place, job: Job) -> None:
    task = await job.task_attempt(0)
    await write(task, "part-0")
    task.commit()
    await job.commit()


async def a_task_that_was_not_awaited(place: Place, job: Job) -> None:
    running = asyncio.ensure_future(run(job, 0, "part-0"))
    try:
        await job.commit()
    finally:
        await running


async def a_task_opened_while_the_job_commits(place: Place, job: Job) -> None:
    message = await run(job, 0, "part-0")
    commit = asyncio.ensure_future(job.commit([message]))
    while not job._committing.locked():
        await asyncio.sleep(0)
    try:
        await run(job, 1, "part-1")
    finally:
        await commit


async def a_task_opened_after_the_commit(place: Place, job: Job) -> None:
    await job.commit([await run(job, 0, "part-0")])
    await run(job, 1, "part-1")


async def a_task_opened_elsewhere_after_the_commit(place: Place, job: Job) -> None:
    await job.commit([await run(job, 0, "part-0")])
    await run_elsewhere(place, job, 1, "part-1")


async def an_attempt_elsewhere_that_ends_after_the_commit(place: Place, job: Job) -> None:
    task = await place.open_task(job.spec, 1)
    await write(task, "part-1")
    await job.commit([await run(job, 0, "part-0")])
    await task.commit()


# -- messages and the number of tasks -----------------------------------------------------------------------------------


async def a_message_left_out(place: Place, job: Job) -> None:
    first, _second = [await run(job, number, f"part-{number}") for number in range(2)]
    await job.commit([first])


async def a_message_left_out_of_tasks_elsewhere(place: Place, job: Job) -> None:
    first, _second = [await run_elsewhere(place, job, number, f"part-{number}") for number in range(2)]
    await job.commit([first], tasks=2)


async def a_message_given_twice(place: Place, job: Job) -> None:
    message = await run_elsewhere(place, job, 0, "part-0")
    await run_elsewhere(place, job, 1, "part-1")
    await job.commit([message, message], tasks=2)


async def messages_of_two_attempts_of_a_task(place: Place, job: Job) -> None:
    await job.commit([await run_elsewhere(place, job, 0, f"part-{number}", number) for number in range(2)])


async def a_message_of_another_job(place: Place, job: Job) -> None:
    await run_elsewhere(place, job, 0, "part-0")
    async with place.open_job() as other:
        message = await run_elsewhere(place, other, 0, "part-0")
        await other.abort()
    await job.commit([message])


async def none_in_place_of_a_message(place: Place, job: Job) -> None:
    await job.commit([await run_elsewhere(place, job, 0, "part-0"), None])  # type: ignore[list-item]


async def a_task_that_is_missing(place: Place, job: Job) -> None:
    await run(job, 0, "part-0")
    await job.commit(tasks=2)


async def a_second_commit_of_more_tasks(place: Place, job: Job) -> None:
    await run(job, 0, "part-0")
    await job.commit(tasks=1)
    await job.commit(tasks=2)


async def a_second_commit_with_other_messages(place: Place, job: Job) -> None:
    first, second = [await run_elsewhere(place, job, number, f"part-{number}") for number in range(2)]
    await job.commit([first])
    await job.commit([second])


async def a_second_commit_with_another_attempt(place: Place, job: Job) -> None:
    first, second = [await run_elsewhere(place, job, 0, f"part-{attempt}", attempt) for attempt in range(2)]
    await job.commit([second])
    await job.commit([first])


async def a_second_driver_that_commits_more_tasks(place: Place, job: Job) -> None:
    await _decided_by_another(place, job, await run(job, 0, "part-0"))
    await job.commit(tasks=2)


async def a_second_driver_with_other_messages(place: Place, job: Job) -> None:
    first, second = [await run_elsewhere(place, job, number, f"part-{number}") for number in range(2)]
    await _decided_by_another(place, job, first)
    await job.commit([second])


async def _decided_by_another(place: Place, job: Job, message: TaskCommit) -> None:
    """Another driver decides the job and dies before it publishes a file."""
    place.faults(Fault(kind="forbidden", operation=place.publishes_by))
    async with committer.attach_job(job.spec, storage_options=place.options) as other:
        with pytest.raises(CommitterError):
            await other.commit([message])


OPEN, MISSING = "is open already", "task_commits has no message of it"
SLIPS = (
    Row(one_number_for_tasks_at_once, TaskError, OPEN),
    Row(one_number_for_tasks_in_turn, TaskError, "committed already, with 1 file"),
    Row(an_attempt_opened_while_it_is_being_opened, TaskError, OPEN),
    Row(one_name_for_two_files, TaskError, "was opened before"),
    Row(one_name_in_two_tasks, committer.errors.PreflightError, "is written by"),
    Row(a_file_written_after_its_block, TaskError, "is closed"),
    Row(a_file_opened_after_its_task, TaskError, "is committed"),
    Row(a_file_opened_while_its_task_commits, TaskError, "is being committed"),
    Row(a_file_never_closed, TaskError, "still open: 1 file"),
    Row(a_blocking_file_never_closed, TaskError, "still open: 1 file"),
    Row(a_file_never_entered, TaskError, "still open: 1 file"),
    Row(a_write_never_awaited, TaskError, "called without await"),
    Row(a_file_written_by_a_coroutine_that_was_not_awaited, TaskError, "still open: 1 file"),
    Row(an_exception_swallowed_around_a_file, TaskError, "not written: 1 file, the first: part-0"),
    Row(an_exception_swallowed_around_a_blocking_file, TaskError, "not written: 1 file, the first: part-0"),
    Row(an_exception_swallowed_around_a_blocking_file_on_the_loop, TaskError, "not written: 1 file, the first: part-0"),
    Row(an_attempt_never_ended, JobStateError, "still open in this process"),
    Row(a_task_commit_never_awaited, JobStateError, "still open in this process"),
    Row(a_task_that_was_not_awaited, JobStateError, "still open in this process"),
    Row(a_task_opened_while_the_job_commits, JobStateError, "came too late: .* is being committed"),
    Row(a_task_opened_after_the_commit, JobStateError, "came too late: .* is committed"),
    Row(a_task_opened_elsewhere_after_the_commit, JobNotFoundError, "there is no job"),
    Row(an_attempt_elsewhere_that_ends_after_the_commit, JobNotFoundError, "job"),
    Row(a_message_left_out, TaskMissingError, MISSING),
    Row(a_message_left_out_of_tasks_elsewhere, TaskMissingError, "not committed: 1"),
    Row(a_message_given_twice, RecordError, "two task commit messages name task 0"),
    Row(messages_of_two_attempts_of_a_task, RecordError, "two task commit messages name task 0"),
    Row(a_message_of_another_job, RecordError, "was given to job"),
    Row(none_in_place_of_a_message, RecordError, "is missing"),
    Row(a_task_that_is_missing, TaskMissingError, "not committed: 1"),
    Row(a_second_commit_of_more_tasks, TaskMissingError, "is committed, with 1 task"),
    Row(a_second_commit_with_other_messages, TaskMissingError, "is committed, with 1 task"),
    Row(a_second_commit_with_another_attempt, TaskMissingError, "is committed, with 1 task"),
    Row(a_second_driver_that_commits_more_tasks, TaskMissingError, "was decided by another driver with 1 task"),
    Row(a_second_driver_with_other_messages, TaskMissingError, "was decided by another driver with 1 task"),
)


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("row", SLIPS, ids=lambda row: row.slip.__name__)
async def test_a_slip_raises(row: Row, delivery: Delivery, place: Place) -> None:
    place.delivery = delivery
    with pytest.raises(CommitterError, match=row.says) as caught:
        async with place.open_job() as job:
            await row.slip(place, job)
    assert isinstance(caught.value, row.error)
    assert caught.value.next_step


@pytest.mark.parametrize("operation", ["open_writer", "write", "close_writer"])
@pytest.mark.parametrize("kind", ["forbidden", "unanswered", "lost"])
async def test_a_failure_that_the_caller_swallows(kind: FaultKind, operation: str, memory: MemoryPlace) -> None:
    with pytest.raises(TaskError, match="not written: 1 file, the first: part-0"):
        async with memory.open_job() as job, job.task_attempt(0) as task:
            await write(task, "part-1")
            memory.faults(Fault(kind=kind, operation=operation))
            with suppress(CommitterError):
                await write(task, "part-0")
    assert memory.files() == {}


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_a_retry_has_another_number(delivery: Delivery, place: Place) -> None:
    """Both run at once; one of them wins, as the caller says by the numbers."""
    place.delivery = delivery
    async with place.open_job() as job:
        await asyncio.gather(*(run(job, 0, "part-0", attempt=attempt) for attempt in range(2)))
        report = await job.commit(tasks=1)
    assert report.files_committed == 1


async def test_a_task_is_left_out_on_purpose(place: Place) -> None:
    async with place.open_job() as job:
        first, second = [await run(job, number, f"part-{number}") for number in range(2)]
        await job.abort_task(second.task, second.attempt)
        await job.commit([first], tasks=1)
    assert place.files() == {"part-0": b"x"}


async def test_a_second_commit_of_the_same_tasks_returns_the_report(place: Place) -> None:
    async with place.open_job() as job:
        message = await run(job, 0, "part-0")
        report = await job.commit([message])
        assert await job.commit() is report
        assert await job.commit([message], tasks=1) is report


async def test_the_log_names_tasks_without_a_commit(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with place.open_job() as job:
        await run(job, 0, "part-0")
        with suppress(ValueError):
            async with job.task_attempt(1):
                raise ValueError
        await job.commit()
    assert "is committed without 1 task (the first: task 1)" in caplog.text


def test_threads_that_share_a_number(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=OPEN), sync.open_job(tmp_path) as job, job.task_attempt(0) as first:
        with first.open("part-0") as file:
            file.write(b"x")
        job.task_attempt(0)


async def test_the_log_names_a_work_path_without_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No error: a program may write no file when it has no rows."""
    disk = DiskPlace(tmp_path)
    async with disk.open_job() as job, job.task_attempt(0) as task:
        Path(task.work_path("a=1/part-0")).write_bytes(b"x")
        task.work_path("a=1/part-1")
        data_set = Path(task.work_path("set"))
        data_set.mkdir()
        (data_set / "part-2").write_bytes(b"x")
    assert "without 1 name of work_path at which nothing was written, the first: a=1/part-1" in caplog.text
    assert disk.files() == {"a=1/part-0": b"x", "set/part-2": b"x"}


@pytest.mark.parametrize("kept", [False, True])
async def test_a_second_driver_that_asks_for_more_tasks_when_the_job_has_ended(place: Place, kept: bool) -> None:
    config = CommitterConfig(outcome_kept=kept)
    async with (
        place.open_job(config=config) as job,
        committer.attach_job(job.spec, config=config, storage_options=place.options) as second,
    ):
        await run(job, 0, "part-0")
        await job.commit(tasks=1)
        with pytest.raises((TaskMissingError, JobNotFoundError)) as caught:
            await second.commit(tasks=2)
        if isinstance(caught.value, TaskMissingError):
            assert caught.value.outcome == "committed"
            assert (await second.commit(tasks=1)).files_committed == 1
        else:
            assert not kept


def test_a_file_opened_by_a_thread_while_another_one_commits(tmp_path: Path) -> None:
    """The name is claimed on the loop, so that the file is in the commit or refused."""
    opened, errors = list[str](), list[str]()

    def open_more(task: sync.TaskAttempt) -> None:
        try:
            for number in range(1_000):
                with task.open(f"more-{number}") as file:
                    file.write(b"x")
                opened.append(f"more-{number}")
        except TaskError as error:
            errors.append(error.message)

    with sync.open_job(tmp_path / "out") as job:
        task = job.task_attempt(0)
        thread = threading.Thread(target=open_more, args=(task,))
        thread.start()
        while True:
            with suppress(TaskError):
                task.commit()
                break
        thread.join()
        assert job.commit().files_committed == len(opened)
    assert len(errors) == 1
