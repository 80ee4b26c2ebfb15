"""Thread pool for blocking calls that works until the interpreter ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Call: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class LastingExecutor(ThreadPoolExecutor):
    """Thread pool that accepts calls after the main thread ended, while other threads of the program still work.

    Python's pool refuses calls then (``concurrent.futures.thread._python_exit``), which would cut off a file that
    another thread writes. The threads are daemons: an executor without a shutdown does not keep the process alive,
    and callers wait for their own calls. A subclass because ``loop.set_default_executor`` accepts only
    `ThreadPoolExecutor`.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, name)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a call, and starts a thread if none is idle and the limit allows it; for one thread, the loop's.

        Raises RuntimeError or MemoryError if no thread could be started; the call is then never made.
        """
        if self._ended:
            raise RuntimeError("the thread pool was shut down")
        future: Future[T] = Future()
        self._calls.put((future, fn, args, kwargs))
        if not self._idle.acquire(blocking=False) and self._started < self._max_workers:
            name = f"{self._thread_name_prefix}_{self._started}"
            try:
                threading.Thread(target=_work, args=(self._calls, self._idle), name=name, daemon=True).start()
            except (RuntimeError, MemoryError):
                # Another thread may have taken the call from the queue by now.
                if future.cancel():
                    raise
            else:
                self._started += 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stops the threads after the queued calls; does not wait for them."""
        for _thread in range(0 if self._ended else self._started):
            self._calls.put(None)
        self._ended = True

    def __del__(self) -> None:
        # The threads refer to the queue, not to the executor, so the executor can be collected.
        self.shutdown()


def _work(calls: SimpleQueue[_Call | None], idle: threading.Semaphore) -> None:
    while (call := calls.get()) is not None:
        future, function, args, kwargs = call
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        finally:
            # A traceback refers to this frame: without `del` each failed call would be a reference cycle.
            del call, future, function, args, kwargs
        # Without memory the thread is not counted as idle, and the next call starts another one.
        with suppress(MemoryError):
            idle.release()
