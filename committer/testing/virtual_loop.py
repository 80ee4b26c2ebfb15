"""An event loop whose clock is virtual and that knows no sockets: for simulations of many short runs.

Other than `VirtualRuntime`, which runs beside real work on any loop, this one owns time altogether: `asyncio.sleep`,
timeouts and anyio's deadlines pass at once too, and a program in which no task can go on any more is seen as such.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from asyncio import base_events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from committer.flow.runtime import SystemRuntime, use_runtime
from committer.testing.virtual_time import BEGINNING

T = TypeVar("T")


class DeadlockError(Exception):
    """Every coroutine waits, and no timer is left that could wake one."""


class _NoSockets:
    """What the loop asks for input: there never is any, so waiting means that time passes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise DeadlockError("every coroutine waits for another one")
        if timeout > 0:
            self._loop.jump()
        return []

    def close(self) -> None:
        return


class VirtualLoop(base_events.BaseEventLoop):
    """A loop that is never idle: when nothing is ready its clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0
        self._selector = _NoSockets(self)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._passed

    def jump(self) -> None:
        """Moves the clock to the next timer."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009
        self._passed = max(self._passed, scheduled[0].when())

    def _process_events(self, event_list: list[object]) -> None:
        return

    def _write_to_self(self) -> None:
        return


class LoopRuntime(SystemRuntime):
    """Time from the running loop, chance from a seed, no threads.

    Args:
        seed: Of everything random.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def monotonic(self) -> float:
        """The loop's clock."""
        return asyncio.get_running_loop().time()

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
        with use_runtime(LoopRuntime(seed)):
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
