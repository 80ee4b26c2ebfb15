"""Runtimes and an event loop with virtual time.

`VirtualRuntime` works beside real work on any loop. `VirtualLoop` controls all time: `asyncio.sleep`, timeouts
and anyio's deadlines pass at once, too, and it detects a program in which no task can continue.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import uuid
import weakref
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from committer.flow.pacing import forget_limits
from committer.flow.runtime import Runtime, SystemRuntime, Timer, use_runtime

T = TypeVar("T")

BEGINNING: Final = datetime(2026, 1, 1, tzinfo=UTC)

# On a loop that hides its ready calls (uvloop), this many turns without a new timer count as idle.
_IDLE_TURNS = 100

# Pending checks for idleness per loop: those of several runtimes are not work that holds the clock.
_looks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, int] = weakref.WeakKeyDictionary()


class VirtualRuntime(Runtime):
    """Runtime with virtual time, and randomness from a seed.

    With `auto_advance` the clock jumps to the next timer as soon as the loop has nothing else to run. It waits
    for threads started by `run_blocking`, which run one at a time, so that they finish in order. What the loop
    cannot see (sockets, another thread pool) does not hold the clock: use `hold`, or ``auto_advance=False`` and
    `advance`. On uvloop "nothing else to run" is a guess, good for hand-overs of up to a hundred turns.

    Args:
        seed: Seed of all randomness.
        start: The date and time at which the clock shows 0.
        auto_advance: Whether time passes by itself.
    """

    def __init__(self, seed: int = 0, *, start: datetime = BEGINNING, auto_advance: bool = True) -> None:
        self._random = random.Random(seed)
        self._start = start
        self._auto_advance = auto_advance
        self._now = 0.0
        self._timers: list[_VirtualTimer] = []
        self._made = 0
        self._held = 0
        self._in_threads = 0
        self._one_thread = asyncio.Lock()
        self._settling: list[asyncio.Future[None]] = []
        self._watched: weakref.ref[asyncio.AbstractEventLoop] | None = None
        self._quiet_turns = 0

    def monotonic(self) -> float:
        """Returns the virtual seconds since the runtime was made."""
        return self._now

    def now(self) -> datetime:
        """Returns `start` plus the virtual seconds since."""
        return self._start + timedelta(seconds=self._now)

    async def sleep(self, seconds: float) -> None:
        """Waits for virtual time to pass."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Starts a timer of virtual time. Timers of one moment run in the order in which they were started."""
        self._made += 1
        timer = _VirtualTimer(self._now + max(seconds, 0.0), self._made, callback, copy_context())
        heapq.heappush(self._timers, timer)
        self._watch()
        return timer

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Runs the call in a thread while the clock is stopped."""
        self._in_threads += 1
        try:
            async with self._one_thread:
                return await asyncio.to_thread(call)
        finally:
            self._in_threads -= 1
            self._watch()

    def nonce(self, nbytes: int = 6) -> str:
        """Returns the seed's next bytes."""
        return self._random.randbytes(nbytes).hex()

    def uuid(self) -> str:
        """Returns the seed's next UUID."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def random(self) -> float:
        """Returns the seed's next number."""
        return self._random.random()

    async def settle(self) -> None:
        """Waits until everything else waits; no time passes."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        self._watch()
        await settled

    async def advance(self, seconds: float) -> None:
        """Lets time pass and runs the timers on the way; each moment is settled before the next."""
        until = self._now + seconds
        with self.hold():
            await self.settle()
            while (due := self._next()) is not None and due.when <= until:
                self._run_due()
                await self.settle()
            self._now = max(self._now, until)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps time from passing by itself inside the block."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._watch()

    def _watch(self) -> None:
        """Checks for idleness after everything that is ready now."""
        self._quiet_turns = 0
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._watched is None or self._watched() is not loop:
            self._look_later(loop)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._watched = weakref.ref(loop)
        _looks[loop] = _looks.get(loop, 0) + 1
        loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        _looks[loop] -= 1
        if self._watched is None or self._watched() is not loop:
            return
        self._watched = None
        if self._in_threads or not (self._settling or self._next()):
            return
        if not self._idle(loop):
            self._look_later(loop)
            return
        self._quiet_turns = 0
        settling, self._settling = self._settling, []
        for settled in settling:
            if not settled.done():
                settled.set_result(None)
        moving = self._auto_advance and not self._held and self._next() is not None
        if moving and not settling:
            self._run_due()
        if moving or self._settling:
            self._look_later(loop)

    def _idle(self, loop: asyncio.AbstractEventLoop) -> bool:
        ready = getattr(loop, "_ready", None)
        if ready is not None:
            return len(ready) <= _looks[loop]
        self._quiet_turns += 1
        return self._quiet_turns > _IDLE_TURNS

    def _next(self) -> _VirtualTimer | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0] if self._timers else None

    def _run_due(self) -> None:
        loop = asyncio.get_running_loop()
        first = self._next()
        if first is None:
            return
        self._now = max(self._now, first.when)
        while (due := self._next()) is not None and due.when <= self._now:
            heapq.heappop(self._timers)
            loop.call_soon(due.run, context=due.context)


class _VirtualTimer:
    """Callback and due time of a timer; no callback after it ran or was cancelled."""

    __slots__ = ("callback", "context", "made", "when")

    def __init__(self, when: float, made: int, callback: Callable[[], object], context: Context) -> None:
        self.when = when
        self.made = made
        self.callback: Callable[[], object] | None = callback
        self.context = context

    def __lt__(self, other: _VirtualTimer) -> bool:
        return (self.when, self.made) < (other.when, other.made)

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


A = TypeVarTuple("A")


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


class LoopRuntime(SystemRuntime):
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
