"""`LastingExecutor`: calls go to threads that start when they are needed and end when nothing can call them any more."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

from committer.flow.threads import LastingExecutor


def alive(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_call_returns_or_raises_what_the_function_does() -> None:
    pool = LastingExecutor(1, "returns")
    assert pool.submit(divmod, 7, 2).result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result()
    assert alive("returns") == 1
    pool.shutdown()


def test_there_are_as_many_threads_as_calls_at_once_and_no_more_than_allowed() -> None:
    pool, hold = LastingExecutor(3, "counted"), threading.Event()
    calls = [pool.submit(hold.wait, 10) for _call in range(5)]
    assert alive("counted") == 3
    hold.set()
    assert all(call.result() for call in calls)
    assert pool.submit(int, "1").result() == 1
    assert alive("counted") == 3
    pool.shutdown()


@pytest.mark.parametrize("drop", [False, True])
def test_threads_end_after_shutdown_or_when_the_pool_is_dropped(drop: bool) -> None:
    pool: LastingExecutor | None = LastingExecutor(2, "ended")
    assert pool is not None
    hold = threading.Event()
    last = pool.submit(hold.wait, 10)
    assert alive("ended") == 1
    if drop:
        del pool
        gc.collect()
    else:
        pool.shutdown()
    hold.set()
    assert last.result()
    wait_for(lambda: alive("ended") == 0)


def test_a_pool_that_was_shut_down_takes_no_call() -> None:
    pool = LastingExecutor(1, "shut")
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(int)


def test_a_call_that_is_cancelled_before_a_thread_has_it_is_never_made() -> None:
    pool, hold, made = LastingExecutor(1, "cancelled"), threading.Event(), list[int]()
    first, second = pool.submit(hold.wait, 10), pool.submit(made.append, 1)
    assert second.cancel()
    hold.set()
    assert first.result()
    assert pool.submit(len, made).result() == 0
    pool.shutdown()


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_call_is_made_if_no_thread_could_be_started_and_another_one_took_it(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, hold, taken = LastingExecutor(2, "taken"), threading.Event(), threading.Event()
    first = pool.submit(hold.wait, 10)

    def start(_thread: threading.Thread) -> None:
        hold.set()
        assert taken.wait(10)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        second = pool.submit(taken.set)
    assert first.result()
    assert second.result() is None
    pool.shutdown()


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_call_that_found_no_thread_is_never_made(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    pool, hold, made = LastingExecutor(2, "refused"), threading.Event(), list[int]()
    first = pool.submit(hold.wait, 10)

    def start(_thread: threading.Thread) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(error):
            pool.submit(made.append, 1)
    hold.set()
    assert first.result()
    assert pool.submit(len, made).result() == 0
    pool.shutdown()
