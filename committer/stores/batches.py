"""Runs blocking calls of many coroutines on a few threads, in batches.

Handing one call to a thread costs several times what a rename costs. So calls wait in a queue that is emptied once per
turn of the loop: everything waiting when a thread is free goes over in one hop.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from committer.flow.threads import LastingExecutor

__all__ = ["HEAVY", "LIGHT", "MANY", "WHOLE_BATCH", "BatchExecutor"]

# How much of a batch a call fills, and so of which kind it is.
LIGHT: Final = 1
HEAVY: Final = 16
MANY: Final = 127
WHOLE_BATCH: Final = 128
# A call counts as at most so many slow ones.
_LONGEST_SAMPLE: Final = 8


class Call:
    """One call on its way: waiting, with a thread, or done. Only the loop's thread touches anything but the result."""

    __slots__ = ("args", "done", "error", "function", "handed_over", "number", "ran", "result", "waiter", "weight")

    def __init__(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        weight: int,
        number: int,
        waiter: asyncio.Future[None],
    ) -> None:
        self.function: Callable[..., object] = function
        self.args: tuple[object, ...] = args
        self.weight: int = weight
        self.number: int = number
        self.waiter: asyncio.Future[None] = waiter
        self.handed_over: bool = False
        self.ran: bool = False
        self.done: bool = False
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Makes the call, in a thread."""
        try:
            self.result = self.function(*self.args)
        except BaseException as error:
            self.error = error
        self.ran = True


class Handed:
    """A batch that was handed to the executor.

    Args:
        ticket: What takes it has to do with the batch: the thread that runs it, or the loop that gives it up.
        batch: The calls.

    Attributes:
        looked_at: Whether it is with the executor for some time.
    """

    __slots__ = ("batch", "looked_at", "ticket")

    def __init__(self, ticket: list[None], batch: list[Call]) -> None:
        self.ticket: list[None] = ticket
        self.batch: list[Call] = batch
        self.looked_at: bool = False


class Queue:
    """Calls of one kind that wait for a thread, and how many threads they may have.

    Args:
        threads: How many at most.
        quick_threads: How many, as long as calls are quick and none is held up.
        slow_call_s: What a call that is not quick takes, in seconds.
    """

    __slots__ = (
        "_quick_threads",
        "_running",
        "_slow_call_s",
        "_threads",
        "finished",
        "seconds_per_call",
        "waiting",
    )

    def __init__(self, threads: int, quick_threads: int, slow_call_s: float) -> None:
        self._threads = threads
        self._quick_threads = quick_threads
        self._slow_call_s = slow_call_s
        self.waiting: deque[Call] = deque()
        # By its id, whether a batch holds up what waits.
        self._running: dict[int, bool] = {}
        self.finished: int = 0
        self.seconds_per_call: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether its calls are not quick."""
        return self.seconds_per_call > self._slow_call_s

    @property
    def ready(self) -> bool:
        """Whether calls wait that a thread may have now."""
        holding = sum(self._running.values())
        most = self._threads if self.slow else min(self._threads, self._quick_threads + holding)
        return bool(self.waiting) and len(self._running) < most

    def take(self, longest: int) -> list[Call]:
        """The next batch, of at most so many calls."""
        batch: list[Call] = []
        room = WHOLE_BATCH
        while self.waiting and len(batch) < longest and (not batch or self.waiting[0].weight <= room):
            call = self.waiting.popleft()
            call.handed_over = True
            room -= call.weight
            batch.append(call)
        self._running[id(batch)] = False
        return batch

    def take_back(self, batch: list[Call]) -> None:
        """Lets calls wait again, before all others, that no thread began."""
        del self._running[id(batch)]
        for call in reversed(batch):
            call.handed_over = False
            self.waiting.appendleft(call)

    def relieve(self) -> None:
        """Lets one more thread have calls: what runs now does not count until it ends."""
        self._running = dict.fromkeys(self._running, True)

    def finish(self, batch: list[Call], seconds: float) -> None:
        """A batch ended, and learns how long its calls took."""
        del self._running[id(batch)]
        self.finished += 1
        # One call that hung for a minute must not count for the next hundred.
        took = min(seconds / len(batch), _LONGEST_SAMPLE * self._slow_call_s)
        self.seconds_per_call += (took - self.seconds_per_call) / 4


T = TypeVar("T")

# Above this a call waits for a disk or a server far away: other threads help more than long batches. Below, they
# mostly wait for one another: each system call gives up the interpreter's lock, and must get it back. Two threads took
# half again as much CPU as one for the same renames or deletes, and longer.
_SLOW_LIGHT_CALL_S: Final = 0.001
_SLOW_HEAVY_CALL_S: Final = 0.004
_SLOW_MANY_S: Final = 0.02
# Calls that wait so long behind others of their kind, none of which ends, get one more thread.
_HELD_UP_S: Final = 0.05
# Between two tries to tell the loop of a batch, where there is no memory to do so.
_NO_MEMORY_S: Final = 0.05
# How often it is looked whether a batch is with a thread: one that died, of a lack of memory, never begins it.
_LOST_S: Final = 1.0

# Forks between this process and the first that loaded this module: cheaper to compare than to ask for the process id at
# each call.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - a property of the process
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class _Lane:
    """The queues and threads that serve one event loop of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        # Weak, because the lanes of a store are kept by loop and must not keep that loop alive.
        self.loop = weakref.ref(loop)
        self.forks = _forks
        self.hops = 0
        self._threads = threads
        self._executor: LastingExecutor | None = None
        self._handed: dict[int, Handed] = {}
        self._light = Queue(threads, 1, _SLOW_LIGHT_CALL_S)
        # One thread is left, where there are three or more: what takes long must not keep light calls waiting.
        self._heavy = Queue(max(1, threads - 1), 1, _SLOW_HEAVY_CALL_S)
        self._many = Queue(min(threads, max(2, threads - 1)), 1, _SLOW_MANY_S)
        self._whole = Queue(threads, threads, _SLOW_HEAVY_CALL_S)
        self._queues = self._light, self._heavy, self._many, self._whole
        self._calls = 0
        self._busy = 0
        self._scheduled = False
        self._watching = False
        self._guarding = False
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
                # The traceback holds this frame, which holds the call: without this every failure is a cycle.
                call.error = None
        return cast("T", call.result)

    async def drain(self) -> None:
        """Waits until nothing is queued or running, then lets the threads go."""
        while self._busy or self._waits():
            if self._idle is None:
                self._idle = self._new_future()
            await asyncio.shield(self._idle)
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    async def _wait_to_the_end(self, call: Call) -> None:
        # What a thread has begun cannot be called back: its outcome must be settled before cancellation goes on.
        while not call.done:
            call.waiter = self._new_future()
            try:
                await call.waiter
            except asyncio.CancelledError:
                continue

    def _new_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

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
        call = Call(function, args, weight, self._calls, self._new_future())
        if not self._scheduled and self._busy < self._threads:
            # Not now but at the end of this turn: what other coroutines ask for until then goes along.
            asyncio.get_running_loop().call_soon(self._hand_over)
            self._scheduled = True
        # Last: where memory runs out before, no caller waits for the call, and it must not be made later.
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
            # No handle is kept: it would keep the loop, and a lane must not.
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
        self._guard()
        ticket = [None]
        batch = queue.take(longest)
        self._busy += 1
        self.hops += 1
        try:
            self._handed[id(batch)] = Handed(ticket, batch)
            self._executor.submit(_run_batch, ticket, batch, asyncio.get_running_loop(), self._finish)
        except (RuntimeError, MemoryError) as error:
            # No thread can be had, or no memory, or the interpreter is going: the callers must hear of it, not wait for
            # ever. By now the batch may be in the executor's queue, where a thread may find it.
            if not _took(ticket):
                return
            for call in batch:
                call.error = error
            asyncio.get_running_loop().call_soon(self._finish, batch, 0.0)

    def _guard(self) -> None:
        if not self._guarding:
            asyncio.get_running_loop().call_later(_LOST_S, self._look_for_lost)
            self._guarding = True

    def _look_for_lost(self) -> None:
        """Hands over again what no thread began for so long: the one that took it from the executor died before it did.

        Each batch has a thread of its own to go to. One that is only slow finds the ticket taken, and does nothing. A
        thread that died, of a lack of memory, is never replaced by its executor, so there is a new one.
        """
        self._guarding = False
        if not self._busy:
            return
        self._guard()
        lost = [handed for handed in self._handed.values() if handed.looked_at and _took(handed.ticket)]
        for handed in self._handed.values():
            handed.looked_at = True
        if not lost:
            return
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        for handed in lost:
            del self._handed[id(handed.batch)]
            self._busy -= 1
            self._queue_of(handed.batch[0]).take_back(handed.batch)
        self._hand_over()

    def _finish(self, batch: list[Call], seconds: float) -> None:
        self._busy -= 1
        self._handed.pop(id(batch), None)
        try:
            self._queue_of(batch[0]).finish(batch, seconds)
        finally:
            self._settle(batch)

    def _settle(self, batch: list[Call]) -> None:
        """Tells the callers of a batch; whatever goes wrong with one, all the others are told."""
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


def _took(ticket: list[None]) -> bool:
    """Whether this thread is the one that has to do with a batch."""
    try:
        ticket.pop()
    except IndexError:
        return False
    return True


def _run_batch(
    ticket: list[None],
    batch: list[Call],
    loop: asyncio.AbstractEventLoop,
    finish: Callable[[list[Call], float], None],
) -> None:
    if not _took(ticket):
        return
    seconds = 0.0
    try:
        started = time.perf_counter()
        for call in batch:
            call.run()
        seconds = time.perf_counter() - started
    except BaseException as error:
        # Between two calls, or at the end of one: it is unknown how far that one came.
        for call in batch:
            if not call.ran:
                call.error = error
    while True:
        try:
            loop.call_soon_threadsafe(finish, batch, seconds)
        except RuntimeError:
            # The loop was closed under its own calls: no caller is left to hear of them.
            return
        except MemoryError:
            # The callers wait for this for ever, and memory may be had again.
            time.sleep(_NO_MEMORY_S)
        else:
            return


class BatchExecutor:
    """Runs blocking functions for coroutines, many per thread hop.

    Threads start at the first call and belong to the loop that made it; several loops may use one executor, each with
    threads of its own. A forked child starts afresh and never touches what it inherited.

    Args:
        threads: Threads per loop, at most.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = weakref.WeakKeyDictionary()
        self._latest: _Lane | None = None
        self._finished_hops = 0

    @property
    def hops(self) -> int:
        """Batches handed to a thread so far."""
        return self._finished_hops + sum(lane.hops for lane in self._lanes.values())

    async def run(
        self,
        function: Callable[..., T],
        *args: Any,
        weight: int = LIGHT,
        undo: Callable[[T], object] | None = None,
        insist: bool = False,
    ) -> T:
        """Calls `function` in a thread and returns its result or raises its error.

        A cancelled caller leaves the queue at once; when a thread has the call already, it is waited for and
        ``CancelledError`` goes on after it ended.

        Args:
            function: What blocks.
            args: Its arguments.
            weight: How much of a batch it fills, and so its kind: `LIGHT` for one system call; from `HEAVY` on it may
                take long; `MANY` for many calls in one; `WHOLE_BATCH` for what waits for the disk. Calls of a kind
                share one thread as long as they are quick, those of the last kind have one each. Heavy calls leave one
                thread of several to the others.
            undo: Called in a thread with the result when the caller was cancelled while `function` ran.
            insist: Run it even when the caller is cancelled before a thread took it.
        """
        return await self._lane().run(function, args, weight, undo, insist)

    async def close(self) -> None:
        """Waits for this loop's calls and ends its threads. A later call starts new ones."""
        lane = self._lanes.get(asyncio.get_running_loop())
        if lane is None or lane.forks != _forks:
            return
        await lane.drain()
        if lane._executor is None and self._lanes.pop(asyncio.get_running_loop(), None) is not None:
            self._finished_hops += lane.hops
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
