"""Bounds on work in flight: a fixed number of workers over one iterator, a limit on an amount held.

A task per item costs 8 to 40 us and memory for every item; a worker that pulls its next item costs a fraction of a
microsecond, and the number of workers bounds what is in flight.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from committer.errors import MultipleError

T = TypeVar("T")

# Work that never suspends (a store in memory, a cached result) would block the loop. One turn of the loop runs every
# worker once, so they share the items of a turn, down to where a yield would cost something.
_ITEMS_PER_TURN = 1024
_LEAST_ITEMS_PER_YIELD = 16

_ORDINARY = (Exception, asyncio.CancelledError)


async def run_workers(
    items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[object]], *, workers: int, operation: str = ""
) -> int:
    """Runs `work` on every item, at most `workers` at a time, and returns the number of items.

    Items are pulled as workers become free; a blocking iterator blocks the loop. After the first failure, of `work`
    or of the iterator, no new item starts, and those in flight are awaited. Cancelling the caller cancels and awaits
    those in flight. Workers have the caller's context variables. No task is created for one worker or at most one
    item of a plain iterable; one worker at a time pulls an asynchronous iterator, and closes it if possible.

    Several failures are raised as a `MultipleError` that `operation` names, in their order; a single one, or the
    first that is no `Exception`, as it is.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    crew = _Crew(work, operation, max(_LEAST_ITEMS_PER_YIELD, _ITEMS_PER_TURN // workers))
    if isinstance(items, AsyncIterable):
        await crew.run_asynchronous(aiter(items), workers)
    else:
        await crew.run(iter(items), workers)
    return crew.finish()


class _Crew(Generic[T]):
    def __init__(self, work: Callable[[T], Awaitable[object]], operation: str, yield_every: int) -> None:
        self._work = work
        self._operation = operation
        self._yield_every = yield_every
        self._done = 0
        self._stopped = False
        self._failures: list[BaseException] = []
        self._pulling: asyncio.Task[object] | None = None
        self._turn = asyncio.Lock()
        self._queueing = 0
        self._started = 0
        self._alive = 0
        self._all_ended = asyncio.Event()
        self._exhausted = False

    def finish(self) -> int:
        failures, self._failures = self._failures, []
        # An error that is no Exception is raised alone, since nothing may catch it as part of another.
        failures = [error for error in failures if not isinstance(error, _ORDINARY)][:1] or failures
        try:
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise MultipleError.of(self._operation, failures) from failures[0]
        finally:
            # The raised error refers to this frame: without `del` both are a cycle.
            del failures
        return self._done

    async def run(self, items: Iterator[T], workers: int) -> None:
        first = list(islice(items, workers))
        if workers == 1 or len(first) < 2:
            for item in first:
                await self._one(item)
            if first:
                await self._drain(items)
            return
        first.reverse()
        async with asyncio.TaskGroup() as group:
            while first and not self._stopped:
                # Removed from the list, so that no item outlives its work.
                self._start(group, self._from(first.pop(), items))
            await self._wait()

    async def run_asynchronous(self, items: AsyncIterator[T], workers: int) -> None:
        try:
            if workers == 1:
                async for item in items:
                    await self._one(item)
                return
            async for item in items:
                async with asyncio.TaskGroup() as group:
                    self._spawn(group, items, workers, [item])
                    del item
                    await self._wait()
                return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    async def _from(self, item: T, items: Iterator[T]) -> None:
        try:
            if not self._stopped:
                await self._one(item)
                del item
                await self._drain(items)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._failed(error)

    async def _drain(self, items: Iterator[T]) -> None:
        if self._stopped:
            return
        work, yield_every = self._work, self._yield_every
        for item in items:
            await work(item)
            self._done = done = self._done + 1
            if not done % yield_every:
                await asyncio.sleep(0)
            if self._stopped:
                return

    async def _one(self, item: T) -> None:
        await self._work(item)
        self._done += 1
        if not self._done % self._yield_every:
            await asyncio.sleep(0)

    def _spawn(self, group: asyncio.TaskGroup, items: AsyncIterator[T], workers: int, held: list[T]) -> None:
        self._started += 1
        if not held:
            self._queueing += 1
        self._start(group, self._pull(group, items, workers, held))

    def _start(self, group: asyncio.TaskGroup, worker: Coroutine[Any, Any, None]) -> None:
        self._alive += 1
        task = group.create_task(worker, name=f"committer-{self._operation or 'worker'}")
        task.add_done_callback(self._worker_ended)

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._alive -= 1
        if not self._alive:
            self._all_ended.set()

    async def _wait(self) -> None:
        """Waits for the workers; on cancellation stops all before it reaches the first of them."""
        try:
            if self._alive:
                await self._all_ended.wait()
        except asyncio.CancelledError:
            self._stopped = True
            raise

    async def _pull(self, group: asyncio.TaskGroup, items: AsyncIterator[T], workers: int, held: list[T]) -> None:
        try:
            if not held:
                held = await self._next(items)
            while held and not self._stopped:
                # One worker should always wait for the next item; none does if all of them work.
                if self._started < workers and not self._queueing:
                    self._spawn(group, items, workers, [])
                await self._one(held.pop())
                if not self._stopped:
                    self._queueing += 1
                    held = await self._next(items)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._failed(error)

    async def _next(self, items: AsyncIterator[T]) -> list[T]:
        """Returns the next item, or nothing at the end or after a failure. The caller has raised `_queueing`."""
        try:
            async with self._turn:
                if self._stopped or self._exhausted:
                    return []
                self._pulling = asyncio.current_task()
                try:
                    return [await anext(items)]
                except StopAsyncIteration:
                    self._exhausted = True
                    return []
                finally:
                    self._pulling = None
        finally:
            self._queueing -= 1

    def _failed(self, error: BaseException) -> None:
        task = asyncio.current_task()
        self._stopped = True
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise error
        self._failures.append(error)
        if self._pulling is not None and self._pulling is not task:
            # The next item is not needed, and may take long to arrive.
            self._pulling.cancel()


_PORTION: Final = 1_000


async def portions(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yields the items, a thousand at a time, and lets other tasks run in between; a collection must not change."""
    pulled = iter(items)
    while portion := list(islice(pulled, _PORTION)):
        yield portion
        await asyncio.sleep(0)


class Budget:
    """Limit on the amount `held` at once; callers beyond it wait in order. For one event loop.

    A caller that asks for more than `most` gets it alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.held: int = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Holds an amount for the duration of a block."""
        await self._take(amount)
        try:
            yield
        finally:
            self.held -= amount
            self._serve()

    async def _take(self, amount: int) -> None:
        if not self._waiting and self._fits(amount):
            self.held += amount
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # Granted at the same moment.
                self.held -= amount
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
                continue
            if not self._fits(amount):
                return
            self._waiting.popleft()
            self.held += amount
            turn.set_result(None)

    def _fits(self, amount: int) -> bool:
        return not self.held or self.held + amount <= self._most
