"""Injectable source of time, randomness and threads.

All that differs between two identical runs of the engine goes through a `Runtime`. A test or simulator injects its
own by `use_runtime` and gets the same run every time, without waiting.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

T = TypeVar("T")

_THREADS: Final = 32
_threads: RunVar[CapacityLimiter] = RunVar("committer_threads")


class Timer(Protocol):
    """Scheduled callback."""

    def cancel(self) -> None:
        """Cancels the callback; does nothing after it ran."""


class Runtime(ABC):
    """Interface of the engine's time, randomness and threads. Compared and hashed by identity."""

    @abstractmethod
    def monotonic(self) -> float:
        """Returns the seconds of a clock that never goes back; only differences have a meaning."""

    @abstractmethod
    def now(self) -> datetime:
        """Returns the date and time, aware, in UTC."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Waits; zero or less only lets other tasks run."""

    @abstractmethod
    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Schedules `callback` on the running loop after `seconds`; never calls it before returning."""

    @abstractmethod
    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Runs a blocking call in a thread, in this context. A hop costs 25-100 us: batch system calls."""

    @abstractmethod
    def nonce(self, nbytes: int = 6) -> str:
        """Returns `nbytes` random bytes in hexadecimal."""

    @abstractmethod
    def uuid(self) -> str:
        """Returns a random UUID, version 4, with hyphens."""

    @abstractmethod
    def random(self) -> float:
        """Returns a random number, at least 0 and below 1."""


class SystemRuntime(Runtime):
    """Runtime of the machine's clocks, the system's randomness, and own threads in each running loop."""

    # Called twice for every store call, so without a wrapper.
    monotonic: staticmethod[[], float] = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """Returns the machine's date and time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Calls `asyncio.sleep`."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Schedules a timer of the running loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Calls `anyio.to_thread.run_sync`, at most 32 at once per loop; a cancelled caller abandons its call.

        Does not use the loop's default threads (`asyncio.to_thread`): a program may use all of them to write to
        blocking files, and each write may wait for a call made here.
        """
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=_limiter())

    def nonce(self, nbytes: int = 6) -> str:
        """Returns random bytes of the operating system, unique and unguessable."""
        return secrets.token_hex(nbytes)

    def uuid(self) -> str:
        """Calls `uuid.uuid4`."""
        return str(uuid.uuid4())

    def random(self) -> float:
        """Calls `random.random`, which is good enough for jitter."""
        return random.random()


def _limiter() -> CapacityLimiter:
    try:
        return _threads.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _threads.set(limiter)
        return limiter


_SYSTEM = SystemRuntime()
_current: ContextVar[Runtime] = ContextVar("committer_runtime", default=_SYSTEM)


def current_runtime() -> Runtime:
    """Returns the runtime of this context: the machine's, unless `use_runtime` injected another."""
    return _current.get()


@contextmanager
def use_runtime(runtime: Runtime) -> Iterator[Runtime]:
    """Injects a runtime for a block and for every task started in it."""
    previous = _current.get()
    _current.set(runtime)
    try:
        yield runtime
    finally:
        # Reset by value: a fixture may leave the block in another context, which a token refuses.
        _current.set(previous)
