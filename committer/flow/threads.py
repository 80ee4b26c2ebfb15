"""Threads for blocking calls that serve their loop until the interpreter ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Call: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class LastingExecutor(ThreadPoolExecutor):
    """A thread pool that takes calls after the main thread ended, while other threads of the program still work.

    Python's own refuses every call from that moment on (``concurrent.futures.thread._python_exit``), and a file that
    such a thread writes would be cut off. The threads are daemons, so an executor that nothing shuts down does not keep
    the process alive; the callers wait for what they began.

    A subclass because ``loop.set_default_executor`` takes no other.

    Args:
        most: How many threads there may be.
        name: What their names begin with.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, name)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._starting = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a call; starts a thread where none is idle and there may be one more.

        Raises:
            RuntimeError, MemoryError: No thread could be started; another thread may still make the call.
        """
        future: Future[T] = Future()
        self._calls.put((future, fn, args, kwargs))
        if not self._idle.acquire(blocking=False):
            with self._starting:
                if self._started < self._max_workers:
                    name = f"{self._thread_name_prefix}_{self._started}"
                    threading.Thread(target=_work, args=(self._calls, self._idle), name=name, daemon=True).start()
                    self._started += 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Has the threads end once the queue is empty; does not wait for them."""
        with self._starting:
            for _thread in range(self._started):
                self._calls.put(None)
            self._started = self._max_workers

    def __del__(self) -> None:
        # The threads hold the queue alone.
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
            # An error's traceback holds this frame: without this each failure is a cycle.
            del call, future, function, args, kwargs
        idle.release()
