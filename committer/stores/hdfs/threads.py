"""Threads for blocking calls of the HDFS client.

The client's own coroutines can deadlock (hdfs-native 0.14.7: ``RpcListener::start``, ``RpcConnection::call``). The
event loop's thread polls them with the interpreter's lock. When a connection breaks, a thread of the client holds
the lock of the waiting calls and wakes their coroutines, which needs the interpreter's lock: each waits for the
other. A blocking call releases the interpreter's lock first, and no thread of the client asks for it.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, Literal, TypeVar

from committer.flow.runtime import current_runtime
from committer.flow.shielded import run_shielded

T = TypeVar("T")

_IDLE_S: Final = 5.0
# A thread that returns from a call while the interpreter shuts down would abort the process.
_EXIT_S: Final = 5.0
_LOOK_S: Final = 0.01


class UnansweredError(Exception):
    """Error of a call that did not end within its deadline. If `begun`, it may still be done."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun: bool = begun


class _Call(Generic[T]):
    """Queued call; all but the waiter is used under its threads' lock. `left`: threads that have not ended it."""

    __slots__ = ("begun", "done", "ended", "error", "function", "given_up", "left", "loop", "result", "undo", "waiter")

    def __init__(self, function: Callable[[], T], undo: Callable[[T], object] | None, lanes: int = 1) -> None:
        self.function = function
        self.left = lanes
        self.begun = False
        self.undo = undo
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[None] = self.loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None
        self.given_up = False
        self.ended = False
        self.done = False

    def tell(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(None)


class Threads:
    """Pool of at most `most` threads for blocking calls; threads start on demand and end when idle.

    A begun call cannot be stopped. If its caller leaves, its thread works to the end, and `drain` and the exit of
    the process wait for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition(threading.Lock())
        self._waiting: deque[_Call[Any]] = deque()
        self._threads = 0
        self._idle = 0
        self._running = 0
        _all.add(self)

    @property
    def running(self) -> int:
        """The number of calls that threads have begun and not ended."""
        return self._running

    async def run(
        self,
        function: Callable[[], T],
        *,
        bound_s: float,
        settle_s: float = 0.0,
        undo: Callable[[T], object] | None = None,
        lanes: int = 1,
    ) -> T:
        """Calls a function in a thread, or in up to `lanes` threads: the last result and the first error count.

        A call that takes longer than `bound_s`, with the wait for a thread, raises `UnansweredError`. A cancelled
        caller waits `settle_s` for the end of a begun call, so that it has no later effect; a call that was not
        begun is dropped. `undo` is called in a thread with the result of one thread's call if the caller left
        before. Raises RuntimeError or MemoryError if no thread can be started.
        """
        call = _Call(function, undo, lanes)
        timer = call.loop.call_later(bound_s, call.tell)
        self._enqueue(call)
        try:
            await call.waiter
        except asyncio.CancelledError:
            # The deadline must not end the wait for a begun call.
            timer.cancel()
            await self._leave(call, settle_s)
            raise
        finally:
            timer.cancel()
        stands = "ended" if call.ended else self._give_up(call)
        if stands != "ended":
            raise UnansweredError(begun=stands == "begun")
        if call.error is not None:
            try:
                raise call.error
            finally:
                # The traceback holds this frame, which holds the call: else every failure is a reference cycle.
                call.error = None
        return call.result  # type: ignore[return-value] # it ended well

    async def drain(self, bound_s: float) -> bool:
        """Waits for begun calls; returns whether they ended in time."""
        runtime = current_runtime()
        deadline = runtime.monotonic() + bound_s
        while self._running and runtime.monotonic() < deadline:
            await runtime.sleep(_LOOK_S)
        return not self._running

    async def _leave(self, call: _Call[Any], settle_s: float) -> None:
        """Drops the call of a cancelled caller, or waits for the end of a begun one."""
        stands = self._give_up(call)
        if stands == "ended" and call.undo is not None and call.error is None:
            undo, result = call.undo, call.result
            call = _Call(lambda: undo(result), None)
            self._enqueue(call)
            stands = "begun"
        if stands == "begun" and settle_s:
            await run_shielded(lambda: _end_of(call), bound_s=settle_s)

    def _enqueue(self, call: _Call[Any]) -> None:
        with self._changed:
            self._waiting.extend([call] * call.left)
            self._changed.notify(min(self._idle, call.left))
            missing = min(len(self._waiting) - self._idle, self._most - self._threads)
            self._threads += max(0, missing)
        while missing > 0:
            try:
                threading.Thread(target=self._work, name="committer-hdfs", daemon=True).start()
            except (RuntimeError, MemoryError):
                with self._changed:
                    self._threads -= missing
                    if self._threads == 0 and self._withdraw(call) and not call.begun:
                        raise
                return
            missing -= 1

    def _give_up(self, call: _Call[Any]) -> Literal["withdrawn", "begun", "ended"]:
        """Drops a call that no thread has begun, or marks it so that its thread undoes the result."""
        with self._changed:
            if not call.ended:
                self._withdraw(call)
            if call.ended:
                return "ended"
            if not call.begun:
                return "withdrawn"
            call.given_up = True
            return "begun"

    def _withdraw(self, call: _Call[Any]) -> bool:
        """Removes a call from the queue; returns True if found."""
        waiting = self._waiting.count(call)
        for _lane in range(waiting):
            self._waiting.remove(call)
        call.left -= waiting
        call.ended = call.done = call.begun and not call.left
        return waiting > 0

    def _work(self) -> None:
        while (call := self._next()) is not None:
            self._run(call)
            del call

    def _next(self) -> _Call[Any] | None:
        with self._changed:
            while not self._waiting:
                self._idle += 1
                told = self._changed.wait(_IDLE_S)
                self._idle -= 1
                if not told and not self._waiting:
                    self._threads -= 1
                    return None
            self._running += 1
            call = self._waiting.popleft()
            call.begun = True
            return call

    def _run(self, call: _Call[Any]) -> None:
        try:
            call.result = call.function()
        except BaseException as error:
            call.error = call.error or error
        with self._changed:
            call.left -= 1
            if call.left:
                self._running -= 1
                return
            call.ended = True
            undo = call.undo if call.given_up and call.error is None else None
        if undo is not None:
            with suppress(BaseException):
                undo(call.result)
        with self._changed:
            call.done = True
            self._running -= 1
        # The loop may be closed.
        with suppress(RuntimeError):
            call.loop.call_soon_threadsafe(call.tell)


async def _end_of(call: _Call[Any]) -> None:
    call.waiter = call.loop.create_future()
    if not call.done:
        await call.waiter


_all: Final[weakref.WeakSet[Threads]] = weakref.WeakSet()


def _forget_the_parents() -> None:
    _all.clear()


def _let_calls_end() -> None:
    deadline = time.monotonic() + _EXIT_S
    while any(threads.running for threads in list(_all)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


os.register_at_fork(after_in_child=_forget_the_parents)
atexit.register(_let_calls_end)
