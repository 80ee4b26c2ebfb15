"""Blocking calls that wait for a thread, by kind, and how many threads each kind may have."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# How much of a batch a call fills, and so of which kind it is.
LIGHT: Final = 1
HEAVY: Final = 16
MANY: Final = 127
WHOLE_BATCH: Final = 128
# A call counts as at most so many slow ones.
_LONGEST_SAMPLE: Final = 8


class Call:
    """One call on its way: waiting, with a thread, or done. Only the loop's thread touches anything but the result."""

    __slots__ = ("args", "done", "error", "function", "handed_over", "number", "ran", "result", "waiter", "weight")

    def __init__(
        self,
        function: Callable[..., object],
        args: tuple[object, ...],
        weight: int,
        number: int,
        waiter: asyncio.Future[None],
    ) -> None:
        self.function: Callable[..., object] = function
        self.args: tuple[object, ...] = args
        self.weight: int = weight
        self.number: int = number
        self.waiter: asyncio.Future[None] = waiter
        self.handed_over: bool = False
        self.ran: bool = False
        self.done: bool = False
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Makes the call, in a thread."""
        try:
            self.result = self.function(*self.args)
        except BaseException as error:
            self.error = error
        self.ran = True


class Handed:
    """A batch that was handed to the executor.

    Args:
        ticket: What takes it has to do with the batch: the thread that runs it, or the loop that gives it up.
        batch: The calls.

    Attributes:
        looked_at: Whether it is with the executor for some time.
    """

    __slots__ = ("batch", "looked_at", "ticket")

    def __init__(self, ticket: list[None], batch: list[Call]) -> None:
        self.ticket: list[None] = ticket
        self.batch: list[Call] = batch
        self.looked_at: bool = False


class Queue:
    """Calls of one kind that wait for a thread, and how many threads they may have.

    Args:
        threads: How many at most.
        quick_threads: How many, as long as calls are quick and none is held up.
        slow_call_s: What a call that is not quick takes, in seconds.
    """

    __slots__ = (
        "_quick_threads",
        "_running",
        "_slow_call_s",
        "_threads",
        "finished",
        "seconds_per_call",
        "waiting",
    )

    def __init__(self, threads: int, quick_threads: int, slow_call_s: float) -> None:
        self._threads = threads
        self._quick_threads = quick_threads
        self._slow_call_s = slow_call_s
        self.waiting: deque[Call] = deque()
        # By its id, whether a batch holds up what waits.
        self._running: dict[int, bool] = {}
        self.finished: int = 0
        self.seconds_per_call: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether its calls are not quick."""
        return self.seconds_per_call > self._slow_call_s

    @property
    def ready(self) -> bool:
        """Whether calls wait that a thread may have now."""
        holding = sum(self._running.values())
        most = self._threads if self.slow else min(self._threads, self._quick_threads + holding)
        return bool(self.waiting) and len(self._running) < most

    def take(self, longest: int) -> list[Call]:
        """The next batch, of at most so many calls."""
        batch: list[Call] = []
        room = WHOLE_BATCH
        while self.waiting and len(batch) < longest and (not batch or self.waiting[0].weight <= room):
            call = self.waiting.popleft()
            call.handed_over = True
            room -= call.weight
            batch.append(call)
        self._running[id(batch)] = False
        return batch

    def take_back(self, batch: list[Call]) -> None:
        """Lets calls wait again, before all others, that no thread began."""
        del self._running[id(batch)]
        for call in reversed(batch):
            call.handed_over = False
            self.waiting.appendleft(call)

    def relieve(self) -> None:
        """Lets one more thread have calls: what runs now does not count until it ends."""
        self._running = dict.fromkeys(self._running, True)

    def finish(self, batch: list[Call], seconds: float) -> None:
        """A batch ended, and learns how long its calls took."""
        del self._running[id(batch)]
        self.finished += 1
        # One call that hung for a minute must not count for the next hundred.
        took = min(seconds / len(batch), _LONGEST_SAMPLE * self._slow_call_s)
        self.seconds_per_call += (took - self.seconds_per_call) / 4
