"""`run_workers`: laziness, bounds, failures, cancellation, and what it costs in tasks and threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from committer.errors import CommitterError, MultipleError, StoreOutcomeUnknownError
from committer.flow.workers import portions, run_workers

pytestmark = pytest.mark.every_loop

here: ContextVar[str] = ContextVar("here", default="nowhere")


class Source:
    """Numbers, with a count of how many were pulled, as a plain and as an asynchronous iterator."""

    def __init__(self, length: int, *, fails_at: int | None = None) -> None:
        self.length = length
        self.fails_at = fails_at
        self.pulled = 0
        self.pulling = 0
        self.closed = False

    def _next(self) -> int:
        if self.pulled == self.fails_at:
            raise OSError("the source broke")
        self.pulled += 1
        return self.pulled - 1

    def plain(self) -> Iterator[int]:
        while self.pulled < self.length:
            yield self._next()

    async def slow(self) -> AsyncIterator[int]:
        try:
            while self.pulled < self.length:
                self.pulling += 1
                assert self.pulling == 1
                await asyncio.sleep(0)
                self.pulling -= 1
                yield self._next()
        finally:
            self.closed = True

    def of(self, kind: str) -> Iterator[int] | AsyncIterator[int]:
        return self.plain() if kind == "plain" else self.slow()


both_kinds = pytest.mark.parametrize("kind", ["plain", "slow"])


@both_kinds
@given(length=st.integers(0, 60), workers=st.integers(1, 12), suspends=st.integers(0, 3))
async def test_every_item_once_and_never_more_in_flight(kind: str, length: int, workers: int, suspends: int) -> None:
    source = Source(length)
    seen: list[int] = []
    in_flight = most = 0

    async def work(item: int) -> None:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        # Items are pulled as they are needed: those in flight, and one a worker.
        assert source.pulled <= len(seen) + 2 * workers
        for _ in range(item % (suspends + 1)):
            await asyncio.sleep(0)
        in_flight -= 1
        seen.append(item)

    assert await run_workers(source.of(kind), work, workers=workers) == length
    assert sorted(seen) == list(range(length))
    assert most <= workers


@both_kinds
async def test_all_workers_are_used(kind: str) -> None:
    everyone = asyncio.Barrier(5)

    async def work(item: int) -> None:
        await everyone.wait()

    async with asyncio.timeout(5):
        assert await run_workers(Source(10).of(kind), work, workers=5) == 10


@both_kinds
async def test_no_task_per_item(kind: str) -> None:
    before = len(asyncio.all_tasks())
    tasks: set[object] = set()
    most = 0

    async def work(item: int) -> None:
        nonlocal most
        tasks.add(asyncio.current_task())
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)

    await run_workers(Source(500).of(kind), work, workers=8)
    assert 1 < len(tasks) <= 8
    assert most <= before + 8


@both_kinds
@pytest.mark.parametrize(("length", "workers"), [(0, 8), (1, 1), (20, 1)])
async def test_no_task_for_nothing_or_for_one_worker(kind: str, length: int, workers: int) -> None:
    caller = asyncio.current_task()

    async def work(item: int) -> None:
        assert asyncio.current_task() is caller
        await asyncio.sleep(0)

    assert await run_workers(Source(length).of(kind), work, workers=workers) == length


async def test_no_task_for_a_single_item_and_few_for_few() -> None:
    caller = asyncio.current_task()
    tasks: set[object] = set()

    async def work(item: int) -> None:
        tasks.add(asyncio.current_task())
        await asyncio.sleep(0)

    await run_workers([1], work, workers=8)
    assert tasks == {caller}
    tasks.clear()
    await run_workers([1, 2, 3], work, workers=8)
    assert len(tasks) == 3


@both_kinds
async def test_work_that_never_suspends_lets_others_run(kind: str) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def work(item: int) -> None:
        pass

    beside = asyncio.create_task(other())
    assert await run_workers(iter(range(20_000)), work, workers=4) == 20_000
    beside.cancel()
    assert turns >= 10


@both_kinds
async def test_after_a_failure_nothing_starts_and_what_is_in_flight_is_awaited(kind: str) -> None:
    source = Source(1000)
    started: list[int] = []
    finished: list[int] = []

    async def work(item: int) -> None:
        started.append(item)
        await asyncio.sleep(0)
        if item == 5:
            raise ValueError("five")
        for _ in range(20):
            await asyncio.sleep(0)
        finished.append(item)

    with pytest.raises(ValueError, match="five"):
        await run_workers(source.of(kind), work, workers=8)
    assert len(started) <= 8 + 6
    assert set(finished) == set(started) - {5}
    if kind == "slow":
        assert source.closed


@both_kinds
async def test_failures_are_joined_in_the_order_they_happened(kind: str) -> None:
    async def work(item: int) -> None:
        for _ in range(4 - item):
            await asyncio.sleep(0)
        if item == 1:
            raise StoreOutcomeUnknownError("one", next_step="look")
        raise CommitterError(f"no {item}")

    # All four are in flight when the first fails.
    with pytest.raises(MultipleError) as caught:
        await run_workers([0, 1, 2, 3] if kind == "plain" else _pulled(4), work, workers=4, operation="publish")
    error = caught.value
    assert error.operation == "publish"
    assert error.outcome == "unknown"
    assert error.next_step == "look"
    assert {str(cause) for cause in error.causes} >= {"one; outcome: unknown; next step: look"}
    assert error.__cause__ is error.causes[0]
    if kind == "plain":
        assert [cause.message for cause in error.causes] == ["no 3", "no 2", "one", "no 0"]  # type: ignore[attr-defined]


async def _pulled(length: int) -> AsyncIterator[int]:
    for item in range(length):
        yield item


@both_kinds
async def test_a_failing_source_is_a_failure_like_another(kind: str) -> None:
    source = Source(100, fails_at=20)
    seen: list[int] = []

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        seen.append(item)

    with pytest.raises(OSError, match="the source broke"):
        await run_workers(source.of(kind), work, workers=4)
    assert sorted(seen) == list(range(20))


@pytest.mark.parametrize("workers", [1, 4])
async def test_a_source_that_fails_at_once(workers: int) -> None:
    async def work(item: int) -> None:
        raise AssertionError("nothing to work on")

    for kind in ("plain", "slow"):
        with pytest.raises(OSError, match="the source broke"):
            await run_workers(Source(9, fails_at=0).of(kind), work, workers=workers)


async def test_a_failure_does_not_wait_for_the_next_item() -> None:
    never = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        await never.wait()
        yield 2

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        raise ValueError("first")

    async with asyncio.timeout(5):
        with pytest.raises(ValueError, match="first"):
            await run_workers(items(), work, workers=4)


async def test_work_that_raises_stop_async_iteration_is_a_failure_not_the_end() -> None:
    async def work(item: int) -> None:
        await asyncio.sleep(0)
        raise StopAsyncIteration

    with pytest.raises((StopAsyncIteration, MultipleError)):
        await run_workers(Source(9).slow(), work, workers=3)


@both_kinds
async def test_cancelling_cancels_and_awaits_what_is_in_flight(kind: str) -> None:
    source = Source(100)
    running: set[int] = set()
    cleaned: set[int] = set()

    async def work(item: int) -> None:
        running.add(item)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.add(item)

    task = asyncio.create_task(run_workers(source.of(kind), work, workers=5))
    for _ in range(60):
        await asyncio.sleep(0)
    assert len(running) == 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == running
    assert len(asyncio.all_tasks()) == 1
    if kind == "slow":
        assert source.closed


async def test_work_that_swallows_cancellation_starts_nothing_further() -> None:
    started: list[int] = []

    async def work(item: int) -> None:
        started.append(item)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    task = asyncio.create_task(run_workers(range(100), work, workers=3))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert started == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 3])
async def test_work_that_cancels_itself_is_never_taken_for_done(workers: int) -> None:
    async def work(item: int) -> None:
        await asyncio.sleep(0)
        if item == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run_workers(range(10), work, workers=workers)


@both_kinds
async def test_context_variables_reach_every_worker(kind: str) -> None:
    seen: list[str] = []

    async def work(item: int) -> None:
        await asyncio.sleep(0)
        seen.append(here.get())

    token = here.set("stage")
    try:
        await run_workers(Source(50).of(kind), work, workers=7)
    finally:
        here.reset(token)
    assert seen == ["stage"] * 50


async def test_workers_nest() -> None:
    seen: list[tuple[int, int]] = []

    async def outer(first: int) -> None:
        async def inner(second: int) -> None:
            await asyncio.sleep(0)
            seen.append((first, second))

        await run_workers(range(5), inner, workers=2)

    assert await run_workers(range(6), outer, workers=3) == 6
    assert len(set(seen)) == 30


class Crash(BaseException):
    """Nothing that a library may catch."""


@both_kinds
@pytest.mark.parametrize("workers", [1, 4])
async def test_what_is_no_exception_stays_what_it_is(kind: str, workers: int) -> None:
    everyone = asyncio.Barrier(workers)

    async def work(item: int) -> None:
        await everyone.wait()
        if item < workers - 1:
            raise ValueError(item)
        raise Crash

    with pytest.raises(Crash):
        await run_workers(Source(workers).of(kind), work, workers=workers)


@pytest.mark.parametrize("workers", [0, -1])
async def test_too_few_workers(workers: int) -> None:
    async def work(item: int) -> None: ...

    with pytest.raises(ValueError, match="workers"):
        await run_workers([1], work, workers=workers)


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
async def test_all_items_come_once_and_others_run_between_portions(count: int) -> None:
    turns = 0
    ended = False

    async def other() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    seen: list[int] = []
    async for some in portions(range(count)):
        assert 0 < len(some) <= 1000
        seen += some
    at_the_end, ended = turns, True
    await running
    assert seen == list(range(count))
    assert at_the_end >= -(-count // 1000)
