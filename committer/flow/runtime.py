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


class Runtime:
    """Time, randomness and threads of the engine: the machine's. Compared and hashed by identity.

    A subclass for tests overrides every method whose result must be the same in each run.
    """

    # Called twice for every store call, so without a wrapper.
    monotonic: staticmethod[[], float] = staticmethod(time.monotonic)

    def now(self) -> datetime:
        """Returns the date and time, aware, in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Waits; zero or less only lets other tasks run."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Schedules `callback` on the running loop after `seconds`; never calls it before returning."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Runs a blocking call in a thread, in this context, at most 32 at once per loop.

        A hop costs 25-100 us: batch system calls. A cancelled caller abandons its call.
        Does not use the loop's default threads (`asyncio.to_thread`): a program may use all of them to write to
        blocking files, and each write may wait for a call made here.
        """
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=_limiter())

    def nonce(self, nbytes: int = 6) -> str:
        """Returns `nbytes` random bytes of the operating system in hexadecimal, unique and unguessable."""
        return secrets.token_hex(nbytes)

    def uuid(self) -> str:
        """Returns a random UUID, version 4, with hyphens."""
        return str(uuid.uuid4())

    def random(self) -> float:
        """Returns a random number, at least 0 and below 1, good enough for jitter."""
        return random.random()


def _limiter() -> CapacityLimiter:
    try:
        return _threads.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _threads.set(limiter)
        return limiter


_MACHINE = Runtime()
_current: ContextVar[Runtime] = ContextVar("committer_runtime", default=_MACHINE)


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
