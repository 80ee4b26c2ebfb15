"""Progress of a job whose tasks run in other processes: listings count the tasks that committed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import committer
from committer import Job, sync
from committer.events import JobEvent
from committer.events.display import Display
from committer.flow.runtime import use_runtime
from committer.logs import current_audit
from committer.testing.faults import Call, Fault
from committer.testing.virtual_time import VirtualRuntime
from tests.committers.file_places import FileInMemory
from tests.places import EVERY_COMMITTER, MemoryPlace, Place, place_fixture

place = place_fixture(*EVERY_COMMITTER)


class Heard:
    """A listener that keeps the counts it was told, with their times."""

    def __init__(self) -> None:
        self.counts: list[tuple[float, int]] = []

    def __call__(self, event: JobEvent) -> None:
        if event.kind == "tasks_committed":
            assert event.stage == ""
            self.counts.append((event.at_s, event.done))

    async def wait(self, number: int) -> None:
        """Waits until so many were told: the disk answers from threads for which virtual time does not wait."""
        async with asyncio.timeout(60):
            while len(self.counts) < number:
                await asyncio.sleep(0.001)


@pytest.fixture
async def runtime() -> AsyncIterator[VirtualRuntime]:
    """Time that passes where a test says so."""
    made = VirtualRuntime(auto_advance=False)
    with use_runtime(made):
        yield made


@pytest.mark.parametrize("delivery", ["listing", "message"])
async def test_counts_rise_while_tasks_run_elsewhere(place: Place, runtime: VirtualRuntime, delivery: str) -> None:
    heard = Heard()
    async with place.open_job(delivery=delivery, progress=heard) as job:
        messages = []
        for task in range(3):
            messages.append(await place.run_task(job.spec, task, {f"part-{task}": b"x"}))
            await runtime.advance(5)
            await heard.wait(task + 1)
        if delivery == "message":
            await place.run_task(job.spec, 1, {"again": b"x"}, attempt=1)
        await runtime.advance(5)
        await heard.wait(4)
        assert heard.counts == [(5.0, 1), (10.0, 2), (15.0, 3), (20.0, 3)]
        await job.commit(messages if delivery == "message" else None, tasks=3)
    assert len(heard.counts) == 4
    assert len(place.files()) == 3


@pytest.mark.parametrize("committer", ["file-v1", "file-v2"])
async def test_directories_that_jobs_share(runtime: VirtualRuntime, committer: str) -> None:
    place, heard = FileInMemory(committer), Heard()
    other = await place.open_job()
    await place.run_task(other, 7, {"part-7": b"x"})
    job = await place.open_job(listeners=[heard])
    await place.run_task(job, 0, {"part-0": b"x"})
    await runtime.advance(5)
    assert [count for _at_s, count in heard.counts] == [1]
    await job.abort()
    await job.close()
    await other.abort()
    await other.close()


async def test_a_job_that_is_joined_is_counted(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    heard = Heard()
    job = await memory.open_job(job_id="job-1")
    await memory.run_task(job, 0, {"part-0": b"x"})
    async with memory.attach_job("job-1", progress=heard):
        await runtime.advance(10)
    assert [count for _at_s, count in heard.counts] == [1, 1]
    await job.abort()
    await job.close()


async def test_nothing_is_listed_without_a_listener(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    job = await memory.open_job()
    made = len(memory.store.calls)
    await runtime.advance(100)
    assert len(memory.store.calls) == made
    await job.abort()
    await job.close()


async def test_nothing_is_listed_once_the_last_listener_is_gone(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    def refuses(event: JobEvent) -> None:
        raise ValueError(event.kind)

    async with memory.open_job(progress=refuses) as job:
        made = len(memory.store.calls)
        await runtime.advance(100)
        assert len(memory.store.calls) == made
        await job.commit()


@pytest.mark.every_loop
@pytest.mark.parametrize("end", [Job.commit, Job.abort, Job.close])
async def test_nothing_runs_after_the_end(
    memory: MemoryPlace, runtime: VirtualRuntime, end: Callable[[Job], Awaitable[object]]
) -> None:
    heard = Heard()
    running = asyncio.all_tasks()
    job = await memory.open_job(progress=heard)
    await memory.run_task(job, 0, {"part-0": b"x"})
    await runtime.advance(5)
    await end(job)
    assert asyncio.all_tasks() == running
    made = len(memory.store.calls)
    await runtime.advance(100)
    assert (len(memory.store.calls), len(heard.counts)) == (made, 1)
    if end is Job.close:
        async with memory.attach_job(job.job_id) as joined:
            await joined.abort()
    await job.close()


@pytest.mark.every_loop
@pytest.mark.parametrize("end", [Job.commit, Job.abort, Job.close])
async def test_a_listing_in_flight_ends_before_the_first_call_of_the_end(
    memory: MemoryPlace, runtime: VirtualRuntime, end: Callable[[Job], Awaitable[object]]
) -> None:
    job = await memory.open_job(progress=Heard())
    await memory.run_task(job, 0, {"part-0": b"x"})
    ended: list[str] = []

    async def never_answered(call: Call) -> None:
        if current_audit().get("st") == "count_tasks":
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("listing")
        else:
            ended.append(call.operation)

    memory.store.before_call = never_answered
    await runtime.advance(5)
    assert ended == []
    await end(job)
    assert ended[0] == "listing"
    memory.store.before_call = None
    if end is Job.close:
        async with memory.attach_job(job.job_id) as joined:
            await joined.abort()
    await job.close()


async def test_a_failing_listing_disturbs_nothing(
    memory: MemoryPlace, runtime: VirtualRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    caplog.set_level(logging.DEBUG, "committer.job")

    async def broken(_call: Call) -> None:
        if current_audit().get("st") == "count_tasks":
            raise ZeroDivisionError("a store with a fault")

    async with memory.open_job(progress=heard) as job:
        await memory.run_task(job, 0, {"part-0": b"x"})
        memory.faults(Fault(kind="forbidden", operation="list", path="manifests"))
        await runtime.advance(5)
        memory.store.before_call = broken
        await runtime.advance(5)
        memory.store.before_call = None
        assert heard.counts == []
        await runtime.advance(5)
        assert heard.counts == [(15.0, 1)]
        await job.commit(tasks=1)
    refused = [record for record in caplog.records if "not counted" in record.getMessage()]
    assert [record.levelname for record in refused] == ["DEBUG", "DEBUG"]
    assert memory.files() == {"part-0": b"x"}


async def test_a_slow_listing_takes_a_twentieth_of_the_time(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    heard = Heard()
    flying = most = 0

    async def slow(_call: Call) -> None:
        nonlocal flying, most
        if current_audit().get("st") == "count_tasks":
            flying += 1
            most = max(most, flying)
            await runtime.sleep(3)
            flying -= 1

    async with memory.open_job(progress=heard) as job:
        memory.store.before_call = slow
        await runtime.advance(200)
        memory.store.before_call = None
        assert [at_s for at_s, _count in heard.counts] == [8.0, 71.0, 134.0, 197.0]
        assert most == 1
        await job.abort()


async def test_a_job_that_was_dropped_is_counted_no_more(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    running = asyncio.all_tasks()
    job = await memory.open_job(job_id="job-1", progress=Heard())
    with pytest.warns(ResourceWarning, match="never committed"):
        del job
    made = len(memory.store.calls)
    await runtime.advance(5)
    assert len(memory.store.calls) == made
    assert asyncio.all_tasks() == running
    async with memory.attach_job("job-1") as joined:
        await joined.abort()


@pytest.mark.every_loop
async def test_cancellation_goes_on_to_the_job(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    async def driver() -> None:
        async with memory.open_job(progress=Heard()):
            await asyncio.Event().wait()

    running = asyncio.all_tasks()
    task = asyncio.create_task(driver())
    await runtime.advance(20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == running
    assert memory.temporary() == set()


def test_the_blocking_job_counts_them_too(tmp_path: Path) -> None:
    counted = threading.Event()

    def listen(event: JobEvent) -> None:
        if event.kind == "tasks_committed" and event.done == 2:
            counted.set()

    with sync.open_job(str(tmp_path / "table"), progress=listen) as job:
        for number in range(2):
            with sync.open_task(job.spec, task=number) as task, task.open(f"part-{number}") as file:
                file.write(b"x")
        assert counted.wait(60)
        job.commit(tasks=2)


async def test_a_display_shows_them(memory: MemoryPlace, runtime: VirtualRuntime) -> None:
    display = Display()
    async with memory.open_job(progress=display) as job:
        await memory.run_task(job, 0, {"part-0": b"x"})
        await runtime.advance(5)
        view = display._board.view()
        assert view is not None
        assert (view.words, view.numbers) == ("tasks committed", "1")
        await job.abort()
    await display.close()


@pytest.mark.parametrize("closed", [False, True])
def test_a_job_that_was_opened_on_another_loop_commits(tmp_path: Path, closed: bool) -> None:
    """The commit cancels the counting task there without waiting: the other loop may not run, or be closed."""
    loop = asyncio.new_event_loop()

    async def opened() -> Job:
        return await committer.open_job(tmp_path, progress=lambda event: None)

    job = loop.run_until_complete(opened())
    counting = job._counting
    assert counting is not None
    if closed:
        counting.cancel()
        loop.run_until_complete(asyncio.wait({counting}))
        loop.close()

    async def finish() -> bool:
        async with asyncio.timeout(20):
            report = await job.commit(tasks=0)
            await job.close()
        return report.success

    assert asyncio.run(finish())
    if not closed:
        loop.run_until_complete(asyncio.wait({counting}, timeout=20))
        assert counting.cancelled()
        loop.close()
