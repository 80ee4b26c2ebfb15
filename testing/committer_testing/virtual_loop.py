"""Event loop that controls all time: `asyncio.sleep`, timeouts and anyio's deadlines pass at once.

It detects a program in which no task can continue.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import Any, TypeVar, TypeVarTuple, Unpack

from committer.flow.pacing import forget_limits
from committer.flow.runtime import Runtime, use_runtime
from committer.testing.virtual_time import BEGINNING

A = TypeVarTuple("A")
T = TypeVar("T")


# Moments closer than this are the same, as for asyncio's own loop.
_SAME_MOMENT_S = 1e-9


class DeadlockError(Exception):
    """Every coroutine waits, and no timer is left that could wake one."""


class _Call:
    """Call of `call_soon`, which can be cancelled."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = copy_context() if context is None else context

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None


class _TimedCall(float):
    """Timed call; as a float of its moment, so that the heap of timers compares numbers."""

    __slots__ = ("args", "callback", "context")

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return float(self)


class VirtualLoop(base_events.BaseEventLoop):
    """Event loop that never idles: when nothing is ready, its clock jumps to the next timer.

    It has no sockets, threads, signals or debug mode, and takes 60% of the time of asyncio's own loop. `passed`
    holds the virtual seconds since it was made.
    """

    # Set by `stop`, reset by `run_forever`.
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.passed: float = 0.0
        self._calls: deque[_Call | _TimedCall] = deque()
        self._timers: list[_TimedCall] = []

    def time(self) -> float:
        """Returns the virtual seconds since the loop was made."""
        return self.passed

    def call_soon(self, callback: Callable[[Unpack[A]], object], *args: *A, context: Context | None = None) -> Any:
        """Schedules a call after those that are ready."""
        call = _Call(callback, args, context)
        self._calls.append(call)
        return call

    def call_at(
        self, when: float, callback: Callable[[Unpack[A]], object], *args: *A, context: Context | None = None
    ) -> Any:
        """Schedules a call at a moment of the loop's clock."""
        timer = _TimedCall(when)
        timer.callback, timer.args = callback, args
        timer.context = copy_context() if context is None else context
        heappush(self._timers, timer)
        return timer

    def call_later(
        self, delay: float, callback: Callable[[Unpack[A]], object], *args: *A, context: Context | None = None
    ) -> Any:
        """Schedules a call after a delay in seconds."""
        return self.call_at(self.passed + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Runs calls until the loop is stopped; `run_forever` expects one turn, and then checks for the stop."""
        calls, timers = self._calls, self._timers
        while True:
            while timers and timers[0].callback is None:
                heappop(timers)
            if not (calls or self._stopping):
                if not timers:
                    raise DeadlockError("every coroutine waits for another one")
                self.passed = max(self.passed, float(timers[0]))
            due = self.passed + _SAME_MOMENT_S
            while timers and timers[0] < due:
                calls.append(heappop(timers))
            for _ in range(len(calls)):
                self._make(calls.popleft())
            if self._stopping:
                return

    def _make(self, call: _Call | _TimedCall) -> None:
        if call.callback is None:
            return
        try:
            call.context.run(call.callback, *call.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.call_exception_handler({"message": f"a call of {call.callback!r} failed", "exception": error})

    # There is only one thread.
    call_soon_threadsafe = call_soon

    def close(self) -> None:
        """Discards all calls and timers."""
        self._calls.clear()
        self._timers.clear()
        super().close()


class LoopRuntime(Runtime):
    """Runtime of a virtual loop, with randomness from a seed and without threads."""

    def __init__(self, loop: VirtualLoop, seed: int = 0) -> None:
        self._loop = loop
        self._random = random.Random(seed)

    def monotonic(self) -> float:
        """Returns the loop's clock."""
        return self._loop.passed

    def now(self) -> datetime:
        """Returns the loop's clock, counted from the beginning of 2026."""
        return BEGINNING + timedelta(seconds=self.monotonic())

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Runs the call at once, on the loop."""
        return call()

    def nonce(self, nbytes: int = 6) -> str:
        """Returns the seed's next bytes."""
        return self._random.randbytes(nbytes).hex()

    def uuid(self) -> str:
        """Returns the seed's next UUID."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def random(self) -> float:
        """Returns the seed's next number."""
        return self._random.random()


@contextmanager
def virtual_loop(seed: int = 0) -> Iterator[VirtualLoop]:
    """Opens a virtual loop and a runtime with its seed for a block; remaining tasks are cancelled at its end."""
    loop = VirtualLoop()
    try:
        with use_runtime(LoopRuntime(loop, seed)):
            try:
                yield loop
            finally:
                left = asyncio.all_tasks(loop)
                for task in left:
                    task.cancel()
                if left:
                    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
                loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
        forget_limits(loop)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]], *, seed: int = 0) -> T:
    """Runs a coroutine on a virtual loop of its own; raises `DeadlockError` if it can never end."""
    with virtual_loop(seed) as loop:
        return loop.run_until_complete(main())
