"""committer.sync in one process: the same names, any thread, running loops, interrupts."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import committer
from committer import CommitterConfig, JobSpec, TaskCommit, sync
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobExistsError,
    JobNotFoundError,
    StorePermissionError,
    TaskError,
)
from committer.events import JobEvent
from committer.flow import portal
from committer.flow.runtime import Runtime, use_runtime
from committer.logs import audit, current_audit
from committer.stores.local import LocalStore
from committer.testing.faults import Call, Fault, FaultyStore, SimulatedCrash
from tests.processes.harness import visible


def write(task: sync.TaskAttempt, name: str, data: bytes = b"x") -> None:
    with task.open(name) as file:
        file.write(data)


# --- A job ------------------------------------------------------------------------------------------------------


def test_a_job_in_with_blocks(tmp_path: Path) -> None:
    with sync.open_job(tmp_path) as job:
        for number in range(3):
            with job.task_attempt(task=number) as task:
                write(task, f"day={number}/part.csv", b"%d" % number)
        assert visible(tmp_path) == {}
        assert job.plan().files == 3
        assert [info.job_id for info in sync.list_jobs(tmp_path)] == [job.job_id]
    assert job.report is not None
    assert job.report.files_committed == 3
    assert visible(tmp_path) == {f"day={number}/part.csv": b"%d" % number for number in range(3)}
    assert sync.validate(tmp_path).ok
    assert sync.load_record(tmp_path / "_SUCCESS").jobId == job.job_id  # type: ignore[union-attr]
    assert sync.recover(tmp_path, job.job_id).files_committed == 3


def test_async_with_says_that_plain_with_goes_here(tmp_path: Path) -> None:
    job = sync.open_job(tmp_path)

    async def cell() -> None:
        async with job:  # type: ignore[attr-defined]
            pass

    with pytest.raises(TypeError, match="use plain `with`") as caught:
        asyncio.run(cell())
    [end] = [part for part in str(caught.value).split("`") if part.startswith("committer.sync.cleanup(")]
    eval(end)
    assert sync.list_jobs(tmp_path) == []
    job.close()


def test_a_job_by_plain_calls(tmp_path: Path) -> None:
    job = sync.open_job(tmp_path, job_id="plain", delivery="message")
    task = job.task_attempt(0)
    file = task.open("a")
    file.write(b"1")
    file.write(memoryview(b"2"))
    file.close()
    message = task.commit()
    assert task.commit() == message == task.task_commit
    assert job.recover_task(0, 0).digest == message.digest
    lost = job.task_attempt(1)
    write(lost, "b")
    lost.abort()
    lost.abort()
    job.abort_task(1, 1)
    assert job.commit(iter([message]), tasks=1).files_committed == 1
    job.close()
    job.close()
    assert visible(tmp_path) == {"a": b"12"}


def test_other_processes_join_by_spec(tmp_path: Path) -> None:
    job = sync.open_job(tmp_path, delivery="message")
    spec: JobSpec = pickle.loads(pickle.dumps(job.spec))
    job.close()
    with sync.open_task(spec, task=4, attempt=2) as task:
        task.check_job()
        write(task, "a")
    with sync.attach_job(spec) as attached:
        attached.commit([TaskCommit.decode(task.task_commit.encode())])
    assert visible(tmp_path) == {"a": b"x"}


def test_a_task_opened_by_plain_call_is_freed_with_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    close = LocalStore.close

    async def counting(self: LocalStore) -> None:
        closed.append("closed")
        await close(self)

    job = sync.open_job(tmp_path)
    task = sync.open_task(job.spec, task=0)
    write(task, "a")
    monkeypatch.setattr(LocalStore, "close", counting)
    task.commit()
    assert closed == ["closed"]
    with task:
        pass
    task.abort()
    assert closed == ["closed"]
    job.commit()
    job.close()
    assert visible(tmp_path) == {"a": b"x"}


def test_an_exception_aborts(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with sync.open_job(tmp_path) as job:
            with job.task_attempt(0) as task:
                write(task, "a")
            with job.task_attempt(1) as task:
                with task.open("b") as file:
                    file.write(b"half")
                    raise ZeroDivisionError
    assert visible(tmp_path) == {}
    assert sync.list_jobs(tmp_path) == []
    with pytest.raises(JobDecidedError):
        job.commit()
    assert job.report is None


def test_every_way_to_write_a_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"number": range(100_000), "text": [str(n) for n in range(100_000)]})
    block = os.urandom(700_001)
    with sync.open_job(tmp_path) as job, job.task_attempt(0) as task:
        with task.open("aborted") as file:
            file.write(b"half")
            file.abort()
        Path(task.work_path("a=1/b.txt")).write_text("by hand")
        with task.open_blocking("big") as blocking:
            for _ in range(4):
                blocking.write(block)
            blocking.flush()
            assert blocking.tell() == 4 * len(block)
        with task.open_blocking("part-0.parquet") as blocking:
            parquet.write_table(table, blocking)
    found = visible(tmp_path)
    assert parquet.read_table(tmp_path / "part-0.parquet").equals(table)
    assert found.pop("part-0.parquet")
    assert found == {"a=1/b.txt": b"by hand", "big": block * 4}


def test_errors_come_as_they_are(tmp_path: Path) -> None:
    with sync.open_job(tmp_path, job_id="one", config=CommitterConfig(cleanup_skipped=True)) as job:
        with pytest.raises(JobExistsError):
            sync.open_job(tmp_path, job_id="one")
        with job.task_attempt(0) as task:
            write(task, "a")
            with pytest.raises(TaskError, match="opened before"):
                task.open("a")
            with pytest.raises(TaskError, match="did not commit"):
                _ = task.task_commit
    with pytest.raises(JobNotFoundError) as caught:
        sync.recover(tmp_path, "two")
    assert caught.value.outcome == "unchanged"
    with pytest.raises(ValueError, match="older_than"):
        sync.cleanup(tmp_path)
    assert sync.cleanup(tmp_path, job_id="one").removed == ["one"]


def test_a_forgotten_file_is_never_finished(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="still open"):
        with sync.open_job(tmp_path) as job, job.task_attempt(0) as task:
            task.open("a").write(b"half")
            gc.collect()
    assert visible(tmp_path) == {}


def test_a_store_that_dies_does_not_end_the_loop(tmp_path: Path) -> None:
    store = FaultyStore(LocalStore(), [Fault(kind="crash_before", operation="list")])
    with pytest.raises(SimulatedCrash):
        sync.list_jobs(tmp_path, storage_options={"store": store})
    assert sync.list_jobs(tmp_path) == []


# --- Loops, threads, contexts -----------------------------------------------------------------------------------


@pytest.mark.allow_blocking("a notebook's cell blocks its loop, as it asked to")
async def test_inside_a_running_loop(tmp_path: Path) -> None:
    with sync.open_job(tmp_path) as job:
        with job.task_attempt(0) as task:
            write(task, "a")
        async with committer.open_task(job.spec, task=1) as other, other.open("b") as file:
            await file.write(b"y")
    assert visible(tmp_path) == {"a": b"x", "b": b"y"}


def test_eight_threads_on_one_job(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def work(job: sync.Job, number: int) -> int:
        together.wait(10)
        with job.task_attempt(number) as task:
            for part in range(3):
                write(task, f"day={part}/{number}", b"%d" % number)
        return task.task_commit.files

    with sync.open_job(tmp_path) as job, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: work(job, number), range(8))) == [3] * 8
        assert job.commit(tasks=8).files_committed == 24
    assert len(visible(tmp_path)) == 24


def test_eight_threads_on_one_attempt(tmp_path: Path) -> None:
    together = threading.Barrier(8)
    with sync.open_job(tmp_path) as job, job.task_attempt(0) as task:

        def work(number: int) -> int:
            together.wait(10)
            refused = 0
            for part in range(5):
                try:
                    write(task, f"part-{part}", b"%d" % number)
                except TaskError:
                    refused += 1
            return refused

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(work, range(8))) == 35
    assert len(visible(tmp_path)) == 5


def test_context_variables_of_the_caller_hold(tmp_path: Path) -> None:
    class Named(Runtime):
        def uuid(self) -> str:
            return "from-the-caller"

    seen: list[dict[str, str]] = []

    async def look(call: Call) -> None:
        seen.append(current_audit())

    store = FaultyStore(LocalStore(), before_call=look)
    with use_runtime(Named()), audit(ji="mine"):
        sync.list_jobs(tmp_path, storage_options={"store": store})
        job = sync.open_job(tmp_path)
    assert seen == [{"ji": "mine"}] * 2
    assert job.job_id == "from-the-caller"
    with sync.open_job(tmp_path) as other:
        assert len(other.job_id) == 36
    job.abort()
    job.close()


def test_a_listener_may_not_wait_for_its_own_thread(tmp_path: Path) -> None:
    heard: list[str] = []
    refused: list[CommitterError] = []

    def listen(event: JobEvent) -> None:
        heard.append(event.kind)
        if not refused:
            try:
                sync.list_jobs(tmp_path)
            except CommitterError as error:
                refused.append(error)

    with sync.open_job(tmp_path) as job:
        job.listen(listen)
    assert "wait for itself" in str(refused[0])
    assert refused[0].operation == "list_jobs"
    assert "stage_completed" in heard


# --- Interrupts -------------------------------------------------------------------------------------------------


class Slow:
    """A store that interrupts its caller at one operation, and then waits until it is cancelled."""

    def __init__(self, operation: str, interrupt: int = signal.SIGINT) -> None:
        self.store = FaultyStore(LocalStore(), before_call=self._before)
        self.operation = operation
        self.interrupt = interrupt
        self.interrupts = 1
        self.unwound = threading.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    @property
    def options(self) -> dict[str, object]:
        return {"store": self.store}

    def strike(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, self.interrupt)

    async def _before(self, call: Call) -> None:
        if call.operation != self.operation or not self.interrupts:
            return
        self.interrupts -= 1
        self.strike()
        try:
            await asyncio.Event().wait()
        finally:
            await self.hold.wait()
            self.unwound.set()


def test_an_interrupted_call_is_cancelled_and_waited_for(tmp_path: Path) -> None:
    slow = Slow("list")
    with pytest.raises(KeyboardInterrupt):
        sync.list_jobs(tmp_path, storage_options=slow.options)
    assert slow.unwound.is_set()
    assert sync.list_jobs(tmp_path, storage_options=slow.options) == []


def test_what_a_signal_handler_raises_interrupts_too(tmp_path: Path) -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        raise RuntimeError("enough")

    slow = Slow("list", signal.SIGUSR1)
    with handling(signal.SIGUSR1, handler), pytest.raises(RuntimeError, match="enough"):
        sync.list_jobs(tmp_path, storage_options=slow.options)
    assert slow.unwound.is_set()


@contextmanager
def handling(number: int, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_an_interrupt_before_the_decision_aborts(tmp_path: Path) -> None:
    slow = Slow("put")
    slow.interrupts = 0
    with pytest.raises(KeyboardInterrupt):
        with sync.open_job(tmp_path, storage_options=slow.options) as job:
            with job.task_attempt(0) as task:
                write(task, "a")
            slow.interrupts = 1
            job.commit()
    assert slow.unwound.is_set()
    assert visible(tmp_path) == {}
    assert sync.list_jobs(tmp_path) == []


@pytest.mark.parametrize("how", ["commit", "leaving the block"])
def test_an_interrupt_after_the_decision_deletes_nothing(tmp_path: Path, how: str) -> None:
    slow = Slow("rename_file")
    slow.interrupts = 0
    with pytest.raises(KeyboardInterrupt) as caught:
        with sync.open_job(tmp_path, job_id="half", storage_options=slow.options) as job:
            for number in range(2):
                with job.task_attempt(number) as task:
                    write(task, f"part-{number}")
            slow.interrupts = 1
            if how == "commit":
                job.commit()
    assert slow.unwound.is_set()
    if how == "commit":
        assert "was not aborted" in caught.value.__notes__[-1]
        assert "`committer.sync.recover(" in caught.value.__notes__[-1]
    assert [info.state for info in sync.list_jobs(tmp_path)] == ["committing"]
    assert sync.recover(tmp_path, "half").files_committed == 2
    assert visible(tmp_path) == {"part-0": b"x", "part-1": b"x"}


@pytest.mark.allow_blocking("looks when to strike")
@pytest.mark.parametrize("moment", [0, 4])
def test_an_interrupt_after_the_outcome_says_that_the_job_is_committed(tmp_path: Path, moment: int) -> None:
    slow = Slow("any")
    seen = 0

    async def strike(call: Call) -> None:
        nonlocal seen
        if any(tmp_path.glob("_temporary/*/outcome")) or seen:
            seen += 1
        if seen == moment + 1:
            slow.strike()
            await asyncio.Event().wait()

    store = {"store": FaultyStore(LocalStore(), before_call=strike)}
    with pytest.raises(KeyboardInterrupt) as caught:
        with sync.open_job(tmp_path, job_id="j", storage_options=store) as job:
            with job.task_attempt(0) as task:
                write(task, "part-0")
            job.commit()
    assert caught.value.__notes__[-1].startswith("job j is committed: `committer.sync.recover(")
    assert sync.recover(tmp_path, "j").files_committed == 1
    assert visible(tmp_path) == {"part-0": b"x"}


def test_an_interrupted_task_commits_nothing(tmp_path: Path) -> None:
    slow = Slow("open_writer")
    with sync.open_job(tmp_path, storage_options=slow.options) as job:
        with pytest.raises(KeyboardInterrupt), job.task_attempt(0) as task:
            write(task, "a")
        assert slow.unwound.is_set()
        with job.task_attempt(0, 1) as task:
            write(task, "a", b"again")
    assert visible(tmp_path) == {"a": b"again"}


def test_an_interrupt_as_a_call_ends_undoes_what_it_opened(tmp_path: Path) -> None:
    """The coroutine ends in spite of its cancellation: no caller gets what it opened, so it must not stay open."""
    swallowed: list[str] = []

    async def strike(call: Call) -> None:
        if not swallowed and call.operation == "make_directory":
            slow.strike()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(call.operation)

    slow = Slow("none")
    job = sync.open_job(tmp_path)
    attached = sync.attach_job(job.spec, storage_options={"store": FaultyStore(LocalStore(), before_call=strike)})
    with pytest.raises(KeyboardInterrupt):
        attached.task_attempt(0)
    assert swallowed == ["make_directory"]
    # An attempt left open would keep the job from being committed.
    assert attached.commit(tasks=0).files_committed == 0
    attached.close()
    job.close()


def test_an_interrupt_tells_how_what_it_interrupted_ended(tmp_path: Path) -> None:
    async def strike(call: Call) -> None:
        slow.strike()
        try:
            await asyncio.Event().wait()
        finally:
            raise StorePermissionError("no longer allowed")

    slow = Slow("none")
    with pytest.raises(KeyboardInterrupt) as caught:
        sync.list_jobs(tmp_path, storage_options={"store": FaultyStore(LocalStore(), before_call=strike)})
    assert "no longer allowed" in caught.value.__notes__[0]


@pytest.mark.parametrize("end", ["bound", "second interrupt"])
def test_the_wait_for_unwinding_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(portal, "UNWIND_BOUND_S", 0.05 if end == "bound" else 60.0)
    slow = Slow("list")
    slow.hold.clear()
    if end == "second interrupt":

        async def strike_again() -> None:
            slow.strike()
            await release.wait()

        release = asyncio.Event()
        slow.hold.wait = strike_again  # type: ignore[method-assign, assignment]
    else:
        release = slow.hold
    with pytest.raises(KeyboardInterrupt) as caught:
        sync.list_jobs(tmp_path, storage_options=slow.options)
    assert not slow.unwound.is_set()
    if end == "bound":
        assert "had not ended" in caught.value.__notes__[0]

    async def let_go() -> None:
        release.set()

    portal.wait_for(let_go, "test")
    assert slow.unwound.wait(10)


def test_messages_are_read_on_the_thread_that_commits(tmp_path: Path) -> None:
    """The iterable waits for tasks, which need the loop, so the loop's thread must not read it."""
    drawn: list[int] = []

    class Results:
        def __init__(self, futures: list[Future[TaskCommit]]) -> None:
            self._futures = futures

        def __iter__(self) -> Iterator[TaskCommit]:
            drawn.append(threading.get_ident())
            for future in as_completed(self._futures):
                yield future.result()

    def work(number: int) -> TaskCommit:
        with job.task_attempt(task=number) as task, task.open(f"part-{number}") as file:
            file.write(b"x")
        return task.task_commit

    with sync.open_job(tmp_path, delivery="message") as job, ThreadPoolExecutor(3) as threads:
        results = Results([threads.submit(work, number) for number in range(3)])
        assert job.commit(results).files_committed == 3
    assert drawn == [threading.get_ident()]
