"""Calls that were never awaited: what they would have done must not be missed without a word."""

from __future__ import annotations

import asyncio
import gc
import io
import re
import subprocess
import sys
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import committer
from committer import Job, TaskAttempt, sync
from committer.api.task_files import BlockingTaskFile
from committer.errors import CommitterError, JobStateError, TaskError
from committer.flow.misuse import Calls
from committer.testing.faults import Fault
from tests.places import DiskPlace, MemoryPlace, Place, write_file

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pd = pytest.importorskip("pandas")

# Python's own word about each, which tests elsewhere take for an error.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


async def plain(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        file.write(b"x")


async def second_of_two(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        await file.write(b"x")
        file.write(b"y")


async def without_a_block(task: TaskAttempt) -> None:
    file = task.open("part-0")
    file.write(b"x")
    await file.close()


async def never_closed(task: TaskAttempt) -> None:
    file = task.open("part-0")
    await file.write(b"x")
    file.close()


async def after_the_end(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        await file.write(b"x")
    file.write(b"y")


async def begun_too_late(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        late = asyncio.create_task(file.write(b"x"))
    await late


async def swallowed(task: TaskAttempt) -> None:
    with suppress(TaskError):
        await plain(task)


async def by_pyarrow(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        pq.write_table(pa.table({"a": [1, 2, 3]}), file)


async def by_pyarrow_in_a_thread(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        await asyncio.to_thread(pq.write_table, pa.table({"a": [1, 2, 3]}), file)


async def by_pandas(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        pd.DataFrame({"a": [1, 2, 3]}).to_csv(file, mode="wb")


async def by_pandas_as_parquet(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        pd.DataFrame({"a": [1, 2, 3]}).to_parquet(file)


async def given_up(task: TaskAttempt) -> None:
    async with task.open("part-0") as file:
        await file.write(b"not to be seen")
        file.abort()


WRITERS = [
    plain, second_of_two, without_a_block, never_closed, after_the_end, begun_too_late, swallowed, by_pyarrow,
    by_pyarrow_in_a_thread, given_up,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS)
async def test_a_write_that_was_never_awaited_fails_the_attempt(
    place: Place, write: Callable[[TaskAttempt], Awaitable[None]]
) -> None:
    async with place.open_job() as job:
        with pytest.raises(TaskError) as caught:
            async with job.task_attempt(task=0) as task:
                await write(task)
        assert "without await" in caught.value.message
        assert caught.value.path == "part-0"
        assert "`await " in caught.value.next_step
        assert "open_blocking" in caught.value.next_step
        # As `next_step` says.
        async with job.task_attempt(task=0, attempt=1) as task:
            await write_file(task, "part-0", b"x")
            async with task.open_blocking("part-1") as blocking:
                await asyncio.to_thread(pq.write_table, pa.table({"a": [1]}), blocking)
    assert place.files().keys() == {"part-0", "part-1"}
    assert place.files()["part-0"] == b"x"


@pytest.mark.parametrize("write", [by_pandas, by_pandas_as_parquet])
async def test_a_library_that_blocks_is_told_what_to_use(
    place: Place, write: Callable[[TaskAttempt], Awaitable[None]]
) -> None:
    with pytest.raises((TaskError, AttributeError), match="open_blocking"):
        async with place.open_job() as job, job.task_attempt(task=0) as task:
            await write(task)
    assert place.files() == {}


async def test_what_a_file_has_not_says_what_has_it(memory: MemoryPlace) -> None:
    async with memory.open_job() as job, job.task_attempt(task=0) as task, task.open("part-0") as file:
        for name in ("flush", "seek", "writable", "fileno"):
            assert not hasattr(file, name)
            with pytest.raises(AttributeError, match="open_blocking"):
                getattr(file, name)
        with pytest.raises(AttributeError, match=r"'writ'$"):
            _ = file.writ
        with pytest.raises(TypeError, match="async with"), file:
            pass


async def test_calls_may_be_awaited_later_and_in_any_way(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        async with task.open("gathered") as first, task.open("in-a-task") as second:
            await asyncio.gather(first.write(b"x"), asyncio.create_task(second.write(b"y")))
            await asyncio.wait_for(first.write(b"x"), 60)
            later = second.write(b"y")
            await later
    assert place.files() == {"gathered": b"xx", "in-a-task": b"yy"}


async def test_an_aborted_file_leaves_nothing_to_await(place: Place) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        async with task.open("part-0") as file:
            file.write(b"x")
            await file.abort()
        await write_file(task, "part-1", b"y")
    assert place.files() == {"part-1": b"y"}


# -- files that were never entered, or never closed ----------------------------------------------------------------


LIBRARIES: dict[str, Callable[[io.RawIOBase], object]] = {
    "write_table": lambda file: pq.write_table(pa.table({"a": [1]}), file),
    "to_parquet": lambda file: pd.DataFrame({"a": [1]}).to_parquet(file),
    "to_csv": lambda file: pd.DataFrame({"a": [1]}).to_csv(file, index=False, mode="wb"),
    "closed": lambda file: (file.write(b"x"), file.close()),
    "long": lambda file: file.write(b"x" * 3_000_000),
    "empty": lambda file: None,
}


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_blocking_file_is_closed_by_its_block(place: Place, library: str) -> None:
    async with place.open_job() as job, job.task_attempt(task=0) as task:
        async with task.open_blocking("part-0") as file:
            await asyncio.to_thread(LIBRARIES[library], file)
        assert file.closed
    expected = io.BytesIO()
    close, expected.close = expected.close, lambda: None  # type: ignore[method-assign]
    LIBRARIES[library](expected)  # type: ignore[arg-type]
    assert place.files() == {"part-0": expected.getvalue()}
    close()


async def test_a_blocking_file_whose_last_part_fails_is_given_up(place: Place) -> None:
    with pytest.raises(CommitterError, match="injected"):
        async with place.open_job() as job, job.task_attempt(task=0) as task:
            async with task.open_blocking("part-0") as file:
                await asyncio.to_thread(file.write, b"x")
                place.faults(Fault(kind="forbidden", operation="write"))
    assert place.files() == {}
    assert file.closed


def test_a_blocking_file_of_another_loop_is_refused(tmp_path: Path) -> None:
    async def enter(file: BlockingTaskFile) -> None:
        async with file:
            file.write(b"x")

    with sync.open_job(str(tmp_path)) as job, job.task_attempt(0) as task, task.open("part-0") as file:
        with pytest.raises(TaskError, match="another event loop"):
            asyncio.run(enter(file))


def test_the_blocking_api_keeps_what_was_not_closed_from_being_committed(tmp_path: Path) -> None:
    place = DiskPlace(tmp_path)
    with sync.open_job(place.dest) as job:
        with pytest.raises(TaskError, match="still open") as caught, job.task_attempt(0) as task:
            task.open("part-0").write(b"x")
            gc.collect()
        assert "with task.open" in caught.value.next_step
        with pytest.raises(TaskError, match="still open"), job.task_attempt(1) as task:
            io.TextIOWrapper(task.open("part-1")).detach().write(b"x")
        with job.task_attempt(2) as task, task.open("part-2") as file:
            file.write(b"x")
    assert place.files() == {"part-2": b"x"}


def test_the_blocking_api_waits_for_attempts_that_were_not_ended(tmp_path: Path) -> None:
    place = DiskPlace(tmp_path)
    with pytest.raises(JobStateError, match="still open"), sync.open_job(place.dest) as job:
        task = job.task_attempt(0)
        with task.open("part-0") as file:
            file.write(b"x")
    assert place.files() == {}


# -- attempts and jobs ---------------------------------------------------------------------------------------------


async def test_an_abort_that_was_never_awaited_does_not_end_in_a_commit(place: Place) -> None:
    async with place.open_job() as job:
        with pytest.raises(TaskError, match=r"abort\(\) .*was called without await") as caught:
            async with job.task_attempt(task=0) as task:
                await write_file(task, "part-0", b"x")
                task.abort()
        assert "`await task.abort()`" in caught.value.next_step
        async with job.task_attempt(task=0, attempt=1) as task:
            await task.abort()
    assert place.files() == {}


async def test_a_job_whose_abort_was_never_awaited_is_not_committed(place: Place) -> None:
    with pytest.raises(JobStateError, match=r"abort\(\) .*was called without await") as caught:
        async with place.open_job() as job:
            await place.run_task(job, 0, {"part-0": b"x"})
            job.abort()
    assert "`await job.abort()`" in caught.value.next_step
    assert place.files() == {}
    assert await place.states() == {}


async def test_a_commit_with_arguments_that_was_never_awaited_is_not_done_without_them(place: Place) -> None:
    for arguments in ({"tasks": 2}, {"task_commits": []}):
        with pytest.raises(JobStateError, match=r"commit\(...\) .*was called without await"):
            async with place.open_job() as job:
                await place.run_task(job, 0, {"part-0": b"x"})
                job.commit(**arguments)
        assert place.files() == {}
        assert await place.states() == {}


async def test_a_commit_without_arguments_is_what_a_clean_exit_does(place: Place) -> None:
    async with place.open_job() as job:
        async with job.task_attempt(task=0) as task:
            await write_file(task, "part-0", b"x")
            task.commit()
        job.commit()
    assert place.files() == {"part-0": b"x"}


async def test_a_commit_that_is_awaited_the_second_time_is_done(place: Place) -> None:
    async with place.open_job() as job:
        await place.run_task(job, 0, {"part-0": b"x"})
        job.commit(tasks=1)
        await job.commit(tasks=1)
        job.abort()
    assert place.files() == {"part-0": b"x"}


async def test_the_abort_of_a_task_that_was_never_awaited_keeps_the_job_from_being_committed(place: Place) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"not to be seen"})
    job.abort_task(0, 0)
    with pytest.raises(JobStateError, match=r"abort_task\(...\) .*was called without await") as caught:
        await job.commit()
    assert caught.value.outcome == "unchanged"
    assert "attach_job" in caught.value.next_step
    await job.close()
    # As `next_step` says.
    async with place.attach_job("job-1") as job:
        await job.abort_task(0, 0)
        await job.commit()
    assert place.files() == {}


@pytest.mark.parametrize("call", ["commit", "abort"])
async def test_leaving_an_attached_job_does_not_hide_a_call_that_was_never_awaited(place: Place, call: str) -> None:
    job = await place.open_job(job_id="job-1")
    await place.run_task(job, 0, {"part-0": b"x"})
    await job.close()
    with pytest.raises(JobStateError, match="without await") as caught:
        async with place.attach_job("job-1") as job:
            getattr(job, call)()
    assert caught.value.outcome == "unchanged"
    # As `next_step` says.
    async with committer.attach_job(job.spec, storage_options=place.options) as job:
        await getattr(job, call)()
    assert place.files() == ({"part-0": b"x"} if call == "commit" else {})


async def test_tasks_that_were_created_and_never_awaited_keep_the_job_from_being_committed(place: Place) -> None:
    async def part(job: Job, number: int) -> None:
        async with job.task_attempt(task=number) as task, task.open(f"part-{number}") as file:
            await file.write(b"x")

    with pytest.raises(JobStateError, match=r"still open in this process: 3, the first: task 0, attempt 0") as caught:
        async with place.open_job() as job:
            parts = [asyncio.create_task(part(job, number)) for number in range(3)]
    assert caught.value.outcome == "unchanged"
    assert "await every task" in caught.value.next_step
    await asyncio.gather(*parts, return_exceptions=True)
    assert place.files() == {}
    for job_id in await place.states():
        # Where a write makes directories again, a task that commits while its job is removed may leave its record.
        assert not place.store.capabilities.refuses_late_writes
        await committer.cleanup(place.dest, job_id=job_id, storage_options=place.options)
    assert await place.states() == {}


async def test_a_task_whose_opening_failed_does_not_keep_the_job_from_being_committed(place: Place) -> None:
    async with place.open_job() as job:
        place.faults(Fault(kind="forbidden", operation="make_directory"))
        with suppress(CommitterError):
            await job.task_attempt(task=0)
        place.store.faults.clear()
        await place.run_task(job, 0, {"part-0": b"x"})
    assert place.files() == {"part-0": b"x"}


# -- what is opened ------------------------------------------------------------------------------------------------


def _drop(make: Callable[..., object], *arguments: object) -> None:
    make(*arguments)
    gc.collect()


def openings(place: Place, spec: committer.JobSpec) -> dict[str, Callable[[], object]]:
    return {
        "open_job": place.open_job,
        "attach_job": lambda: place.attach_job(spec.job_id),
        "open_task": lambda: place.open_task(spec, 0),
        "job.task_attempt": lambda: Job.task_attempt(place.job, 0),
    }


@pytest.mark.parametrize("name", ["open_job", "attach_job", "open_task", "job.task_attempt"])
async def test_what_was_not_opened_says_how_to_open_it(memory: MemoryPlace, name: str) -> None:
    async with memory.open_job(job_id="j") as job:
        memory.job = job  # type: ignore[attr-defined]
        make = openings(memory, job.spec)[name]
        with pytest.raises(TypeError, match=f"async with .*{name}"), make():  # type: ignore[attr-defined]
            pass
        for member in ("task_attempt", "commit", "open", "spec", "report"):
            with pytest.raises(AttributeError, match=f"{name}.* neither awaited nor entered"):
                getattr(make(), member)
        with pytest.warns(RuntimeWarning, match=f"{name}.* never awaited, nor entered"):
            _drop(make)
    assert memory.files() == {}


def test_an_error_of_the_blocking_api_leaves_no_warning_behind(tmp_path: Path) -> None:
    with pytest.raises(CommitterError):
        sync.attach_job(str(tmp_path), job_id="none")
    gc.collect()


async def test_a_blocking_file_whose_failed_write_was_swallowed_is_never_committed_with_a_hole(place: Place) -> None:
    job = await place.open_job()
    with pytest.raises(TaskError, match="could not be written"):
        async with job.task_attempt(0) as task, task.open_blocking("part-0") as file:
            # On the loop's own thread it cannot hand over what it holds.
            with suppress(TaskError):
                file.write(b"x" * (2 << 20))
            file.write(b"the rest")
    assert (await job.plan([])).files == 0
    await job.abort()
    await job.close()


async def test_closing_a_blocking_file_whose_failed_write_was_swallowed_says_so(place: Place) -> None:
    job = await place.open_job()
    task = await job.task_attempt(0)
    file = task.open_blocking("part-0")
    with suppress(TaskError):
        file.write(b"x" * (2 << 20))
    with pytest.raises(TaskError, match="could not be written"):
        await asyncio.to_thread(file.close)
    await job.abort()
    await job.close()


def test_calls_may_be_noted_in_one_thread_while_another_looks_through_them() -> None:
    """A blocking file notes its calls in its own thread, while the event loop looks through those of all files."""
    calls = Calls()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def note(_number: int) -> None:
        owner = object()
        for _ in range(10_000):
            calls.begin(calls.add(owner, "write(...)"))
            assert calls.of(owner) == []
            calls.first()

    try:
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(note, range(16)))
    finally:
        sys.setswitchinterval(interval)
    assert calls.first() is None


# -- jobs that are left ---------------------------------------------------------------------------------------------

LEFT = r"job nightly at file:.* was never committed, aborted or closed.*cleanup"


async def test_a_job_that_is_left_warns_with_its_destination_and_id(tmp_path: Path) -> None:
    async def leave() -> None:
        job = await committer.open_job(tmp_path, job_id="nightly")
        async with job.task_attempt(task=0):
            pass
        del job
        gc.collect()

    with pytest.warns(ResourceWarning, match=LEFT):
        await leave()
    assert [info.state for info in await committer.list_jobs(tmp_path)] == ["open"]
    await committer.cleanup(tmp_path, job_id="nightly")


@pytest.mark.parametrize("end", ["commit", "abort", "close"])
async def test_a_job_that_is_ended_or_closed_does_not_warn(tmp_path: Path, end: str) -> None:
    async def leave() -> None:
        job = await committer.open_job(tmp_path)
        await getattr(job, end)()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        await leave()
        gc.collect()
    assert [str(one.message) for one in caught if "was never committed" in str(one.message)] == []


@pytest.mark.parametrize("blocking", [True, False], ids=["committer.sync", "committer"])
def test_a_program_that_ends_with_a_job_open_says_so(tmp_path: Path, blocking: bool) -> None:
    program = (
        "import committer.sync, sys\njob = committer.sync.open_job(sys.argv[1], job_id='nightly')\n"
        if blocking
        else "import asyncio, committer, sys\nasync def main():\n    global job\n"
        "    job = await committer.open_job(sys.argv[1], job_id='nightly')\nasyncio.run(main())\n"
    )
    command = [sys.executable, "-X", "dev", "-c", program, str(tmp_path)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert re.search(f"ResourceWarning: {LEFT}", ended.stderr), ended.stderr
