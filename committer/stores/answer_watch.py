"""Watch that ends requests whose responses stall or trickle: one timer of an event loop for all of them.

aiohttp's own limit for the next byte makes two timers for each request, which take a tenth of all that the request
costs. Here a look at all requests under way, a few times in the time that one may stand still, counts those looks
that found nothing new. It counts looks and not seconds, so that a process that stood still itself, and could not
take what had come, gives nothing up.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

# Within the time that an answer may stand still. It is given up up to one part of it late.
_LOOKS: Final = 8

# A response may stay below the least bytes a second for this many times the stall limit (a minute). Requests that
# change something get more: S3 sends blanks for minutes while it completes an upload.
_PATIENCE: Final = 2
_PATIENCE_OF_CHANGES: Final = 30
_LEAST_BYTES_PER_S: Final = 1024

# No response may take longer than this many times the stall limit.
_LONGEST: Final = 60


class AnswerWatch:
    """Watches the requests of one event loop.

    Args:
        begin_s: Seconds until the head of an answer must be there.
        next_s: Seconds until the next byte of its body must be there.
    """

    def __init__(self, begin_s: float, next_s: float) -> None:
        self._every_s = next_s / _LOOKS
        # The first look may come right after a request began: it proves nothing.
        self._begin = math.ceil(begin_s / self._every_s) + 1
        self._next = _LOOKS + 1
        self._bytes_a_look = _LEAST_BYTES_PER_S * self._every_s
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def request(self, more_s: float = 0.0, *, changes: bool = False) -> Watched:
        """A context manager around one request; it raises `TimeoutError` if the response stalls or trickles.

        Args:
            more_s: Seconds more until the head must be there: what is to be sent takes so long.
            changes: Whether the request changes something: the service may then work for minutes while it responds.
        """
        begin = self._begin + math.ceil(more_s / self._every_s) if more_s else self._begin
        return Watched(self, begin, _LOOKS * (_PATIENCE_OF_CHANGES if changes else _PATIENCE))

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, one: Watched) -> None:
        """Watches a request."""
        self._watched.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def discard(self, one: Watched) -> None:
        """Watches a request no more."""
        self._watched.discard(one)

    def _look(self) -> None:
        self._timer = None
        for one in self._watched:
            one.look(self._next, self._bytes_a_look)
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)


class Watched:
    """One request; see `AnswerWatch.request`."""

    # As `asyncio.Timeout`, whose two ends are coroutines.
    __slots__ = ("_cancelling", "_content", "_given_up", "_left", "_looks", "_patience", "_seen", "_task", "_watch")

    def __init__(self, watch: AnswerWatch, looks: int, patience: int) -> None:
        self._watch = watch
        self._left = looks
        self._looks = 0
        self._patience = patience
        self._content: aiohttp.StreamReader | None = None
        self._seen = 0
        self._given_up = False

    def __enter__(self) -> Self:
        # A coroutine that no task runs cannot send anything: aiohttp waits as tasks do.
        task: Any = asyncio.current_task()
        self._task: asyncio.Task[Any] = task
        self._cancelling = task.cancelling()
        self._watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.discard(self)
        # Another's cancellation goes on; only what was asked for here alone is an answer that did not come.
        if self._given_up and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError("the response stopped, or was too slow") from error

    def begun(self, content: aiohttp.StreamReader) -> None:
        """The head of the answer is there; from now on each byte of its body counts."""
        self._content = content
        # Looks are counted anew from the next one on.
        self._seen = -1

    def look(self, most: int, least_bytes: float) -> None:
        """Counts a check of the response; ends the request if the response stalls, trickles or takes too long.

        Args:
            most: Checks in a row without a new byte after which the request ends.
            least_bytes: Bytes that must arrive between two checks, on average, after the time of patience.
        """
        if self._given_up:
            return
        content = self._content
        self._left -= 1
        if content is not None:
            self._looks += 1
            if content.total_bytes != self._seen:
                self._seen = content.total_bytes
                self._left = most - 1
            trickles = (self._looks - self._patience) * least_bytes > content.total_bytes
            if trickles or self._looks > _LONGEST * _LOOKS:
                self._left = 0
        if self._left <= 0:
            self._given_up = True
            self._task.cancel()
