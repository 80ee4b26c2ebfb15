"""Executor that runs blocking calls of many coroutines on a few threads, in batches.

A hop to a thread costs several times what a rename costs, so all calls of one turn of the loop share one.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar, cast

from committer.flow.threads import LastingExecutor

__all__ = ["HEAVY", "LIGHT", "MANY", "WHOLE_BATCH", "BatchExecutor"]

# Weights of calls: how much of a batch each fills, which also decides its queue.
LIGHT: Final = 1
HEAVY: Final = 16
MANY: Final = 127
WHOLE_BATCH: Final = 128
_LONGEST_SAMPLE: Final = 8


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """Queued call. Only the loop's thread touches it, but for the result."""

    function: Callable[..., object]
    args: tuple[object, ...]
    weight: int
    number: int
    waiter: asyncio.Future[None]
    handed_over: bool = False
    ran: bool = False
    done: bool = False
    result: object = None
    error: BaseException | None = None


class Queue:
    """Queue of calls of one kind, limited to `threads`, or to `quick_threads` while calls are quick and none blocks."""

    __slots__ = ("_quick_threads", "_running", "_slow_call_s", "_threads", "finished", "seconds_per_call", "waiting")

    def __init__(self, threads: int, quick_threads: int, slow_call_s: float) -> None:
        self._threads = threads
        self._quick_threads = quick_threads
        self._slow_call_s = slow_call_s
        self.waiting: deque[Call] = deque()
        # Whether a running batch holds up waiting calls, by the batch's id.
        self._running: dict[int, bool] = {}
        self.finished: int = 0
        self.seconds_per_call: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether an average call takes longer than `slow_call_s`."""
        return self.seconds_per_call > self._slow_call_s

    @property
    def ready(self) -> bool:
        """Whether calls wait and a thread may take them now."""
        holding = sum(self._running.values())
        most = self._threads if self.slow else min(self._threads, self._quick_threads + holding)
        return bool(self.waiting) and len(self._running) < most

    def take(self, longest: int) -> list[Call]:
        """Removes and returns the next batch of at most `longest` calls."""
        batch: list[Call] = []
        room = WHOLE_BATCH
        while self.waiting and len(batch) < longest and (not batch or self.waiting[0].weight <= room):
            call = self.waiting.popleft()
            call.handed_over = True
            room -= call.weight
            batch.append(call)
        self._running[id(batch)] = False
        return batch

    def relieve(self) -> None:
        """Allows one more thread per running batch until that batch ends."""
        self._running = dict.fromkeys(self._running, True)

    def finish(self, batch: list[Call], seconds: float) -> None:
        """Removes a finished batch and updates the average time of a call."""
        del self._running[id(batch)]
        self.finished += 1
        # Bounded, so that one call that hung for a minute does not count for the next hundred.
        took = min(seconds / len(batch), _LONGEST_SAMPLE * self._slow_call_s)
        self.seconds_per_call += (took - self.seconds_per_call) / 4


T = TypeVar("T")

# Slower calls wait for a disk or a distant server, so more threads help. Quicker calls mostly wait for the
# interpreter's lock, which each system call releases: measured with renames and deletes, two threads took 1.5 times
# the CPU of one, and longer.
_SLOW_LIGHT_CALL_S: Final = 0.001
_SLOW_HEAVY_CALL_S: Final = 0.004
_SLOW_MANY_S: Final = 0.02
# A queue gets one more thread when its calls wait this long and no batch of it ends.
_HELD_UP_S: Final = 0.05
# Pause between attempts to report a batch to the loop while memory is exhausted.
_NO_MEMORY_S: Final = 0.05

# Number of forks since the module was loaded; cheaper to compare at each call than the process id.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - a property of the process
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class _Lane:
    """Queues and threads for one event loop of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        # Weak: the lanes of a store, kept by loop, must not keep the loop alive.
        self.loop = weakref.ref(loop)
        self.forks = _forks
        self._threads = threads
        self._executor: LastingExecutor | None = None
        self._light = Queue(threads, 1, _SLOW_LIGHT_CALL_S)
        # With three or more threads, one stays free for light calls.
        self._heavy = Queue(max(1, threads - 1), 1, _SLOW_HEAVY_CALL_S)
        self._many = Queue(min(threads, max(2, threads - 1)), 1, _SLOW_MANY_S)
        self._whole = Queue(threads, threads, _SLOW_HEAVY_CALL_S)
        self._queues = self._light, self._heavy, self._many, self._whole
        self._calls = 0
        self._busy = 0
        self._scheduled = False
        self._watching = False
        self._idle: asyncio.Future[None] | None = None

    async def run(
        self,
        function: Callable[..., T],
        args: tuple[object, ...],
        weight: int,
        undo: Callable[[T], object] | None,
        insist: bool,
    ) -> T:
        call = self._enqueue(function, args, weight)
        waiter = call.waiter
        try:
            await waiter
        except asyncio.CancelledError:
            if not call.handed_over and not insist:
                self._queue_of(call).waiting.remove(call)
                raise
            await self._wait_to_the_end(call)
            if undo is not None and call.error is None:
                await self._wait_to_the_end(self._enqueue(undo, (call.result,), LIGHT))
            raise
        if call.error is not None:
            try:
                raise call.error
            finally:
                # The traceback holds this frame, which holds the call: else every failure is a reference cycle.
                call.error = None
        return cast("T", call.result)

    async def drain(self) -> None:
        """Waits until nothing is queued or running, then ends the threads."""
        while self._busy or self._waits():
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    async def _wait_to_the_end(self, call: Call) -> None:
        # A thread's call cannot be cancelled: its outcome must be known before cancellation goes on.
        while not call.done:
            call.waiter = asyncio.get_running_loop().create_future()
            try:
                await call.waiter
            except asyncio.CancelledError:
                continue

    def _waits(self) -> bool:
        return any(queue.waiting for queue in self._queues)

    def _queue_of(self, call: Call) -> Queue:
        if call.weight < HEAVY:
            return self._light
        if call.weight < MANY:
            return self._heavy
        return self._many if call.weight < WHOLE_BATCH else self._whole

    def _enqueue(self, function: Callable[..., object], args: tuple[object, ...], weight: int) -> Call:
        self._calls += 1
        call = Call(function, args, weight, self._calls, asyncio.get_running_loop().create_future())
        if not self._scheduled and self._busy < self._threads:
            # At the end of this turn, so that calls of other coroutines go along.
            asyncio.get_running_loop().call_soon(self._hand_over)
            self._scheduled = True
        # Last: if memory runs out before this, no caller awaits the call, and it must not run.
        self._queue_of(call).waiting.append(call)
        return call

    def _hand_over(self) -> None:
        self._scheduled = False
        while self._busy < self._threads:
            ready = [queue for queue in self._queues if queue.ready]
            if not ready:
                break
            self._hand_over_batch(min(ready, key=lambda queue: queue.waiting[0].number))
        if not self._watching and self._waits():
            # No handle is kept: it would keep the loop alive.
            self._watching = True
            finished = [queue.finished if queue.waiting else None for queue in self._queues]
            asyncio.get_running_loop().call_later(_HELD_UP_S, self._relieve, finished)

    def _relieve(self, finished: list[int | None]) -> None:
        self._watching = False
        for queue, before in zip(self._queues, finished, strict=True):
            if queue.waiting and queue.finished == before:
                queue.relieve()
        self._hand_over()

    def _hand_over_batch(self, queue: Queue) -> None:
        longest = WHOLE_BATCH
        if queue.slow:
            longest = -(-len(queue.waiting) // (self._threads - self._busy))
        if self._executor is None:
            self._executor = LastingExecutor(self._threads, "committer-local")
        batch = queue.take(longest)
        self._busy += 1
        try:
            loop = asyncio.get_running_loop()
            begun = self._executor.submit(_run_batch, batch, loop, self._finish)
            begun.add_done_callback(partial(_report_lost, batch, loop, self._finish))
        except (RuntimeError, MemoryError) as error:
            # No thread or memory, or the interpreter is exiting: report it, or the callers wait for ever.
            for call in batch:
                call.error = error
            asyncio.get_running_loop().call_soon(self._finish, batch, 0.0)

    def _finish(self, batch: list[Call], seconds: float) -> None:
        self._busy -= 1
        try:
            self._queue_of(batch[0]).finish(batch, seconds)
        finally:
            self._settle(batch)

    def _settle(self, batch: list[Call]) -> None:
        """Wakes the callers of a batch, also after an error with one of them."""
        for call in batch:
            call.done = True
        try:
            for call in batch:
                if not call.waiter.done():
                    call.waiter.set_result(None)
        except MemoryError:
            asyncio.get_running_loop().call_soon(self._settle, batch)
            raise
        if self._waits():
            self._hand_over()
        elif not self._busy and self._idle is not None:
            idle, self._idle = self._idle, None
            idle.set_result(None)


def _report_lost(
    batch: list[Call], loop: asyncio.AbstractEventLoop, finish: Callable[[list[Call], float], None], begun: Future[None]
) -> None:
    """Reports a batch that a thread took and could not begin, because memory ran out."""
    error = begun.exception()
    if error is not None:
        for call in batch:
            call.error = error
        # The loop was closed: no caller is left.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, batch, 0.0)


def _run_batch(batch: list[Call], loop: asyncio.AbstractEventLoop, finish: Callable[[list[Call], float], None]) -> None:
    seconds = 0.0
    try:
        started = time.perf_counter()
        for call in batch:
            try:
                call.result = call.function(*call.args)
            except BaseException as error:
                call.error = error
            call.ran = True
        seconds = time.perf_counter() - started
    except BaseException as error:
        # Raised between two calls or at the end of one: how far that call came is unknown.
        for call in batch:
            if not call.ran:
                call.error = error
    while True:
        try:
            loop.call_soon_threadsafe(finish, batch, seconds)
        except RuntimeError:
            # The loop was closed: no caller is left.
            return
        except MemoryError:
            # The callers wait for this report, and memory may become free.
            time.sleep(_NO_MEMORY_S)
        else:
            return


class BatchExecutor:
    """Executor of blocking functions, many per hop to a thread, with up to `threads` threads for each event loop."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = weakref.WeakKeyDictionary()
        self._latest: _Lane | None = None

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        weight: int = LIGHT,
        undo: Callable[[T], object] | None = None,
        insist: bool = False,
    ) -> T:
        """Calls `function` in a thread and returns its result or raises its error.

        A cancelled caller leaves the queue, except with `insist`; once a thread has the call, it waits for the end,
        and `undo` is called with the result. `weight` is `LIGHT` for one system call, `HEAVY` or more if it may take
        long, `MANY` for many calls in one, and `WHOLE_BATCH` for a wait for the disk. Quick calls of a kind share
        one thread, those of the last kind have one each. Heavy calls leave one of several threads free.
        """
        return await self._lane().run(function, args, weight, undo, insist)

    async def close(self) -> None:
        """Waits for this loop's calls and ends its threads; a later call starts new ones."""
        lane = self._lanes.get(asyncio.get_running_loop())
        if lane is None or lane.forks != _forks:
            return
        await lane.drain()
        if lane._executor is None:
            self._lanes.pop(asyncio.get_running_loop(), None)
        if self._latest is lane:
            self._latest = None

    def _lane(self) -> _Lane:
        loop = asyncio.get_running_loop()
        lane = self._latest
        if lane is None or lane.loop() is not loop or lane.forks != _forks:
            lane = self._lanes.get(loop)
            if lane is None or lane.forks != _forks:
                lane = self._lanes[loop] = _Lane(loop, self._threads)
            self._latest = lane
        return lane
