"""Time, chance and threads, in one injectable place.

Everything the engine does that differs between two identical runs goes through a `Runtime`: clocks, sleeps, jitter,
names drawn at random, and the hand-over to a thread. A test or a simulator puts its own in with `use_runtime` and gets
the same run every time, without waiting.
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
    """A callback that has yet to run."""

    def cancel(self) -> None:
        """Keeps the callback from running; does nothing when it has run."""


class Runtime(ABC):
    """Where the engine gets time, randomness and threads from. Compared and hashed by identity."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""

    @abstractmethod
    def now(self) -> datetime:
        """The date and time, aware, in UTC."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Waits; zero or less only lets other tasks run."""

    @abstractmethod
    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Has the running loop call `callback` after `seconds`. Never calls it before returning."""

    @abstractmethod
    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Runs a blocking call in a thread, with this task's context variables.

        One hop costs 25-100 us: hand over a batch, never a single system call.
        """

    @abstractmethod
    def nonce(self, nbytes: int = 6) -> str:
        """`nbytes` random bytes in hexadecimal."""

    @abstractmethod
    def uuid(self) -> str:
        """A random UUID, version 4, with its hyphens."""

    @abstractmethod
    def random(self) -> float:
        """A random number, at least 0 and below 1."""


class SystemRuntime(Runtime):
    """The machine's clocks, the system's randomness, threads of its own in each running loop."""

    # Asked twice for every store call, so without a call of its own around it.
    monotonic: staticmethod[[], float] = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """The machine's date and time, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """`asyncio.sleep`."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """A timer of the running loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """`anyio.to_thread.run_sync`, at most 32 at once in a loop; a caller that is cancelled leaves its call alone.

        None of the loop's own threads, which `asyncio.to_thread` takes: a program may have all of them write to
        blocking files, and each of those writes may wait for a call that is made here.
        """
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=_limiter())

    def nonce(self, nbytes: int = 6) -> str:
        """Random bytes of the operating system, safe to take for unique and unguessable."""
        return secrets.token_hex(nbytes)

    def uuid(self) -> str:
        """`uuid.uuid4`."""
        return str(uuid.uuid4())

    def random(self) -> float:
        """`random.random`: good enough for jitter."""
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
    """The runtime in force here; the machine's own unless `use_runtime` put in another."""
    return _current.get()


@contextmanager
def use_runtime(runtime: Runtime) -> Iterator[Runtime]:
    """Puts a runtime in force for a block and for every task started inside it."""
    previous = _current.get()
    _current.set(runtime)
    try:
        yield runtime
    finally:
        # Set back by value: a fixture may leave the block in another context than it entered, which a token refuses.
        _current.set(previous)
