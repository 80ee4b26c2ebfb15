"""An event loop whose clock is virtual and that knows no sockets: for simulations of many short runs.

Other than `VirtualRuntime`, which runs beside real work on any loop, this one owns time altogether: `asyncio.sleep`,
timeouts and anyio's deadlines pass at once too, and a program in which no task can go on any more is seen as such.
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

from committer.flow.endpoints import forget_limits
from committer.flow.runtime import SystemRuntime, use_runtime
from committer.testing.virtual_time import BEGINNING

T = TypeVar("T")
A = TypeVarTuple("A")


# Sums of seconds that differ by less than this are one moment, as they are to asyncio's own loop.
_SAME_MOMENT_S = 1e-9


class DeadlockError(Exception):
    """Every coroutine waits, and no timer is left that could wake one."""


class _Call:
    """A call that the loop makes as soon as it can, unless it is cancelled before."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = copy_context() if context is None else context

    def cancel(self) -> None:
        """Keeps the call from being made."""
        self.callback = None

    def cancelled(self) -> bool:
        """Whether it was."""
        return self.callback is None


class _TimedCall(float):
    """A call at a moment. It is that moment, so that the heap of timers compares two of them as numbers."""

    __slots__ = ("args", "callback", "context")

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context

    def cancel(self) -> None:
        """Keeps the call from being made."""
        self.callback = None

    def cancelled(self) -> bool:
        """Whether it was."""
        return self.callback is None

    def when(self) -> float:
        """The moment, on the loop's clock."""
        return float(self)


class VirtualLoop(base_events.BaseEventLoop):
    """A loop that is never idle: when nothing is ready its clock jumps to the next timer.

    It has no sockets, threads, signals and debug mode. Without looking for them it takes 60% of the time of
    asyncio's own loop.

    Attributes:
        passed: Virtual seconds since it was made.
    """

    # `stop` sets it, and `run_forever` takes it back.
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.passed: float = 0.0
        self._calls: deque[_Call | _TimedCall] = deque()
        self._timers: list[_TimedCall] = []

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.passed

    def call_soon(self, callback: Callable[[Unpack[A]], object], *args: *A, context: Context | None = None) -> Any:
        """Makes a call after those that are ready."""
        call = _Call(callback, args, context)
        self._calls.append(call)
        return call

    def call_at(
        self, when: float, callback: Callable[[Unpack[A]], object], *args: *A, context: Context | None = None
    ) -> Any:
        """Makes a call at a moment of the loop's clock."""
        timer = _TimedCall(when)
        timer.callback, timer.args = callback, args
        timer.context = copy_context() if context is None else context
        heappush(self._timers, timer)
        return timer

    def call_later(
        self, delay: float, callback: Callable[[Unpack[A]], object], *args: *A, context: Context | None = None
    ) -> Any:
        """Makes a call after so many seconds."""
        return self.call_at(self.passed + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Makes calls until the loop is told to stop; `run_forever` asks for one turn, and looks whether it was."""
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

    # There is one thread.
    call_soon_threadsafe = call_soon

    def close(self) -> None:
        """Forgets all calls and timers."""
        self._calls.clear()
        self._timers.clear()
        super().close()


class LoopRuntime(SystemRuntime):
    """Time from a virtual loop, chance from a seed, no threads.

    Args:
        loop: The loop.
        seed: Of everything random.
    """

    def __init__(self, loop: VirtualLoop, seed: int = 0) -> None:
        self._loop = loop
        self._random = random.Random(seed)

    def monotonic(self) -> float:
        """The loop's clock."""
        return self._loop.passed

    def now(self) -> datetime:
        """The loop's clock, counted from the beginning of 2026."""
        return BEGINNING + timedelta(seconds=self.monotonic())

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Makes the call at once, on the loop."""
        return call()

    def nonce(self, nbytes: int = 6) -> str:
        """The seed's next bytes."""
        return self._random.randbytes(nbytes).hex()

    def uuid(self) -> str:
        """The seed's next UUID."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def random(self) -> float:
        """The seed's next number."""
        return self._random.random()


@contextmanager
def virtual_loop(seed: int = 0) -> Iterator[VirtualLoop]:
    """A virtual loop for a block, with a runtime of its seed in force; what is left running is cancelled at the end."""
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
    """Runs a coroutine to its end on a virtual loop of its own.

    Args:
        main: Makes the coroutine.
        seed: Of the runtime that is in force while it runs.

    Raises:
        DeadlockError: It can never end.
    """
    with virtual_loop(seed) as loop:
        return loop.run_until_complete(main())
