"""Blocking calls of the client, each in a thread, of which there are only so many.

The client's own coroutines cannot be used. They are polled by the thread of the event loop, which holds the lock of the
interpreter. Where a connection breaks, a thread of the client holds the lock of the calls that wait for answers and
wakes their coroutines, for which it needs the interpreter's (hdfs-native 0.14.7: ``RpcListener::start``,
``RpcConnection::call``). Each then waits for the other for ever. A blocking call gives up the interpreter's lock first,
and no thread of the client asks for it.
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
# A thread that comes back from a call while the interpreter is shut down would abort the process.
_EXIT_S: Final = 5.0
_LOOK_S: Final = 0.01


class UnansweredError(Exception):
    """A call did not end within its bound.

    Args:
        begun: Whether a thread had begun it: then it may still be done.
    """

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun: bool = begun


class _Call(Generic[T]):
    """One call: waiting, with a thread or several, or done. All but the waiter is touched under its threads' lock.

    `left` counts the threads that are still to begin it, or did not end it.
    """

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
        """Wakes who waits for it."""
        if not self.waiter.done():
            self.waiter.set_result(None)


class Threads:
    """Threads for blocking calls; each begins when it is needed, and ends when it was idle for some seconds.

    A call that a thread has begun cannot be called back. Where its caller gives up, the thread goes on to its end, and
    is one of the few until then: `drain` waits for it, and so does the end of the process.

    Args:
        most: How many there may be.
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
        """Calls that threads have begun and not ended."""
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
        """Calls a function in a thread, or in several.

        Args:
            function: What blocks. Of several threads each calls it; the last one's result counts, and the first error.
            bound_s: How long it may take, the wait for a thread included.
            settle_s: How long a caller that is cancelled waits for the end of a call that was begun, so that it has no
                effect later. One that was not begun is never made.
            undo: Called in a thread with the result where the caller gave up before it had it; of one thread's call.
            lanes: How many threads call it. Fewer where there are not as many, or where it ended before they came.

        Raises:
            UnansweredError: It did not end in time.
            RuntimeError: There is no thread, and none can be started; likewise MemoryError.
        """
        call = _Call(function, undo, lanes)
        timer = call.loop.call_later(bound_s, call.tell)
        self._enqueue(call)
        try:
            await call.waiter
        except asyncio.CancelledError:
            # The bound is the caller's: it must not end the wait for what was begun.
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
                # The traceback holds this frame, which holds the call: without this every failure is a cycle.
                call.error = None
        return call.result  # type: ignore[return-value] # it ended well

    async def drain(self, bound_s: float) -> bool:
        """Waits for calls that were begun; says whether they ended within the bound."""
        runtime = current_runtime()
        deadline = runtime.monotonic() + bound_s
        while self._running and runtime.monotonic() < deadline:
            await runtime.sleep(_LOOK_S)
        return not self._running

    async def _leave(self, call: _Call[Any], settle_s: float) -> None:
        """Gives up a call whose caller is cancelled: what was begun is ended, as far as that can be waited for."""
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
        """Gives a call up that did not end: no thread will begin it, or the one that has it undoes what comes of it."""
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
        """Takes a call from those that wait; says whether it was there. No further thread begins it."""
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
        # The loop may be closed: its callers are gone.
        with suppress(RuntimeError):
            call.loop.call_soon_threadsafe(call.tell)


async def _end_of(call: _Call[Any]) -> None:
    call.waiter = call.loop.create_future()
    if not call.done:
        await call.waiter


_all: Final[weakref.WeakSet[Threads]] = weakref.WeakSet()


def _forget_the_parents() -> None:
    # A forked child has none of its parent's threads.
    _all.clear()


def _let_calls_end() -> None:
    deadline = time.monotonic() + _EXIT_S
    while any(threads.running for threads in list(_all)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


os.register_at_fork(after_in_child=_forget_the_parents)
atexit.register(_let_calls_end)
