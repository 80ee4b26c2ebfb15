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
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

from committer.errors import StoreUnavailableError
from committer.flow.runtime import current_runtime
from committer.flow.shielded import run_shielded
from committer.flow.threads import LastingExecutor

T = TypeVar("T")

# A thread that returns from a call while the interpreter shuts down would abort the process.
_EXIT_S: Final = 5.0
_LOOK_S: Final = 0.01


class UnansweredError(Exception):
    """Error of a call that did not end within its deadline. If `begun`, it may still be done."""

    def __init__(self, *, begun: bool) -> None:
        super().__init__()
        self.begun: bool = begun


class _Undoable(Generic[T]):
    """Function whose thread undoes the result if the caller left before the end."""

    def __init__(self, function: Callable[[], T], undo: Callable[[T], object]) -> None:
        self._function = function
        self._undo = undo
        self._lock = threading.Lock()
        self._left = False
        self._ended = False

    def __call__(self) -> T:
        result = self._function()
        with self._lock:
            self._ended = True
        if self._left:
            self.undo(result)
        return result

    def leave(self) -> bool:
        """Tells that the caller left; returns False if the function had ended before."""
        with self._lock:
            self._left = not self._ended
        return self._left

    def undo(self, result: T) -> None:
        """Undoes a result; its failure means nothing to the caller, who left."""
        with suppress(BaseException):
            self._undo(result)


class Threads:
    """Pool of at most `most` threads for blocking calls; threads start on demand.

    A begun call cannot be stopped. If its caller leaves, its thread works to the end, and `drain` and the exit of
    the process wait for it.
    """

    def __init__(self, most: int) -> None:
        self._pool = LastingExecutor(most, "committer-hdfs")
        # Calls that have not ended; threads take theirs out.
        self._open: set[Future[Any]] = set()
        _all.add(self)

    @property
    def running(self) -> int:
        """The number of calls that threads have begun and not ended."""
        return sum(call.running() for call in list(self._open))

    async def run(
        self,
        function: Callable[[], T],
        *,
        bound_s: float,
        settle_s: float = 0.0,
        undo: Callable[[T], object] | None = None,
        lanes: int = 1,
    ) -> T:
        """Calls a function in a thread, or in up to `lanes` threads: the last result and any error count.

        A call that takes longer than `bound_s`, with the wait for a thread, raises `UnansweredError`. A cancelled
        caller waits `settle_s` for the end of a begun call, so that it has no later effect; a call that was not
        begun is dropped. `undo`, for one lane, is called in a thread with the result if the caller left before.
        Raises `StoreUnavailableError` if no thread is idle and none can be started.
        """
        undoable = None if undo is None else _Undoable(function, undo)
        calls = [self._begin(undoable or function)]
        with suppress(StoreUnavailableError):
            while len(calls) < lanes:
                calls.append(self._begin(function))
        try:
            if not await _ended(calls, bound_s):
                begun = _give_up(calls)
                if begun and undoable is not None:
                    self._undo(calls[0], undoable)
                if begun or all(call.cancelled() for call in calls):
                    raise UnansweredError(begun=bool(begun))
            return _result_of(calls)
        except asyncio.CancelledError:
            begun = _give_up(calls)
            if undoable is not None and not calls[0].cancelled():
                begun += self._undo(calls[0], undoable)
            if begun and settle_s:
                await run_shielded(partial(_ended, begun, settle_s), bound_s=settle_s)
            raise
        finally:
            # The traceback of an error holds this frame: with the calls every failure would be a reference cycle.
            del calls, undoable

    async def drain(self, bound_s: float) -> bool:
        """Waits for begun calls; returns whether they ended in time."""
        runtime = current_runtime()
        deadline = runtime.monotonic() + bound_s
        while self._open and runtime.monotonic() < deadline:
            await runtime.sleep(_LOOK_S)
        return not self._open

    def _undo(self, call: Future[T], undoable: _Undoable[T]) -> list[Future[Any]]:
        """Has the result of a left call undone: by its own thread, or by the returned call if it has ended."""
        if undoable.leave():
            return []
        # Without a thread the result stays: the error of the caller matters more.
        with suppress(StoreUnavailableError):
            return [self._begin(lambda: undoable.undo(call.result()))]
        return []

    def _begin(self, function: Callable[[], T]) -> Future[T]:
        try:
            call = self._pool.submit(function)
        except (RuntimeError, MemoryError) as error:
            raise StoreUnavailableError(f"no thread can be started: {error}") from error
        self._open.add(call)
        # A bound method: the pool lives, and the exit of the process waits, while a call runs.
        call.add_done_callback(self._end)
        return call

    def _end(self, call: Future[Any]) -> None:
        self._open.discard(call)


async def _ended(calls: Sequence[Future[Any]], bound_s: float) -> bool:
    """Waits for the end of calls; returns whether all ended in time."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def end(_call: Future[Any]) -> None:
        # The loop may be closed.
        if all(call.done() for call in calls):
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell)

    for call in calls:
        call.add_done_callback(end)
    timer = loop.call_later(bound_s, tell)
    try:
        await waiter
    finally:
        timer.cancel()
    return all(call.done() for call in calls)


def _give_up(calls: Sequence[Future[Any]]) -> list[Future[Any]]:
    """Drops calls that no thread has begun; returns those that run."""
    return [call for call in calls if not call.cancel() and not call.done()]


def _result_of(calls: Sequence[Future[T]]) -> T:
    """Returns the last result of calls that ended, or raises an error of theirs."""
    try:
        for call in calls:
            if not call.cancelled():
                result = call.result()
        return result
    finally:
        # As in `Threads.run`.
        del calls, call


_all: Final[weakref.WeakSet[Threads]] = weakref.WeakSet()


def _forget_the_parents() -> None:
    _all.clear()


def _let_calls_end() -> None:
    deadline = time.monotonic() + _EXIT_S
    while any(threads.running for threads in list(_all)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


os.register_at_fork(after_in_child=_forget_the_parents)
atexit.register(_let_calls_end)
