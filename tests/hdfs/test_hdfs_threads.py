"""The threads that make blocking calls: how many, in what turn, and what becomes of calls that were given up."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest

from committer.errors import StoreUnavailableError
from committer.stores.hdfs.connection import Threads, UnansweredError

BOUND_S = 30.0


class Gate:
    """A blocking call that goes on when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self._open = threading.Event()
        self.made = 0

    def __call__(self) -> int:
        self.made += 1
        self.begun.release()
        assert self._open.wait(BOUND_S)
        return self.made

    def open(self) -> None:
        self._open.set()

    async def until_begun(self) -> None:
        await asyncio.to_thread(self.begun.acquire)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def run(threads: Threads, function: Callable[[], object], **options: object) -> asyncio.Task[object]:
    return asyncio.create_task(threads.run(function, **{"bound_s": BOUND_S, **options}))  # type: ignore[arg-type]


async def test_results_and_errors() -> None:
    threads = Threads(2)
    assert await run(threads, lambda: 1) == 1
    with pytest.raises(KeyError):
        await run(threads, lambda: {}["x"])
    assert threads.running == 0


async def test_there_are_only_so_many(gate: Gate) -> None:
    threads = Threads(3)
    calls = [run(threads, gate) for _call in range(10)]
    for _thread in range(3):
        await gate.until_begun()
    assert (gate.made, threads.running) == (3, 3)
    gate.open()
    await asyncio.gather(*calls)
    assert gate.made == 10


async def test_one_thread_serves_calls_that_come_one_by_one() -> None:
    threads, served = Threads(8), set[object]()
    for _call in range(20):
        served.add(await run(threads, threading.get_ident))
        while threads.running:
            await asyncio.sleep(0)
        # It ended its call, and is on its way to wait for the next.
        await asyncio.sleep(0.01)
    assert len(served) == 1


async def test_a_call_that_waits_is_never_made_once_its_caller_is_cancelled(gate: Gate) -> None:
    threads = Threads(1)
    first = run(threads, gate)
    await gate.until_begun()
    second = run(threads, gate)
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.open()
    await first
    assert await run(threads, lambda: gate.made) == 1


@pytest.mark.parametrize(("bound_s", "looked_for_s", "lanes"), [(BOUND_S, 0.05, 1), (0.5, 0.7, 1), (BOUND_S, 0.05, 3)])
async def test_a_call_that_was_begun_is_waited_for(gate: Gate, bound_s: float, looked_for_s: float, lanes: int) -> None:
    """The bound of a call does not end the wait of a caller that is cancelled; no further thread begins it."""
    threads = Threads(1)
    call = run(threads, gate, bound_s=bound_s, settle_s=BOUND_S, lanes=lanes)
    await gate.until_begun()
    call.cancel()
    for _turn in range(5):
        await asyncio.sleep(0)
    call.cancel()
    done, _pending = await asyncio.wait({call}, timeout=looked_for_s)
    assert not done
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (gate.made, threads.running) == (1, 0)


async def test_the_wait_for_it_is_bounded(gate: Gate) -> None:
    threads = Threads(1)
    call = run(threads, gate, settle_s=0.01)
    await gate.until_begun()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert threads.running == 1
    assert not await threads.drain(0.02)
    gate.open()
    assert await threads.drain(BOUND_S)


async def test_one_call_by_several_threads(gate: Gate) -> None:
    """It ends when all of them did; so many are not there, and each is one of the few."""
    threads = Threads(3)
    call = run(threads, gate, lanes=5)
    for _thread in range(3):
        await gate.until_begun()
    assert threads.running == 3
    assert not call.done()
    gate.open()
    await call
    assert (gate.made, threads.running) == (5, 0)


async def test_the_first_error_of_several_threads_is_told_when_all_ended(gate: Gate) -> None:
    threads, turn = Threads(2), iter(range(2))

    def fail_once() -> None:
        if next(turn) == 0:
            raise KeyError
        gate()

    call = run(threads, fail_once, lanes=2)
    await gate.until_begun()
    done, _pending = await asyncio.wait({call}, timeout=0.05)
    assert not done
    gate.open()
    with pytest.raises(KeyError):
        await call


@pytest.mark.parametrize("settle_s", [0.0, BOUND_S])
async def test_what_a_call_made_is_undone_where_its_caller_is_gone(gate: Gate, settle_s: float) -> None:
    threads, undone = Threads(1), list[object]()
    call = run(threads, gate, settle_s=settle_s, undo=undone.append)
    await gate.until_begun()
    call.cancel()
    await asyncio.sleep(0)
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await threads.drain(BOUND_S)
    assert undone == [1]


async def test_what_was_made_at_the_moment_of_the_cancellation_is_undone() -> None:
    """The call ended, and its caller did not come to know yet."""
    threads, undone = Threads(1), list[object]()
    ended = threading.Event()
    call = run(threads, ended.set, settle_s=BOUND_S, undo=undone.append)
    await asyncio.sleep(0)
    assert ended.wait(BOUND_S)
    while threads.running:
        pass
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert undone == [None]


@pytest.mark.parametrize(("number", "lanes"), [(1, 1), (2, 3)])
async def test_a_call_that_takes_too_long(gate: Gate, number: int, lanes: int) -> None:
    threads = Threads(number)
    with pytest.raises(UnansweredError) as begun:
        await run(threads, gate, lanes=lanes, bound_s=0.05)
    with pytest.raises(UnansweredError) as waiting:
        await run(threads, gate, lanes=lanes, bound_s=0.05)
    assert (begun.value.begun, waiting.value.begun) == (True, False)
    gate.open()
    assert await threads.drain(BOUND_S)
    assert gate.made == number


async def test_an_error_keeps_nothing_alive() -> None:
    class Failed(Exception):
        pass

    def fail() -> None:
        raise Failed

    async def kept() -> weakref.ref[Failed]:
        try:
            await Threads(1).run(fail, bound_s=BOUND_S)
        except Failed as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        assert (await kept())() is None
    finally:
        gc.enable()


@pytest.mark.allow_blocking("another interpreter is waited for")
def test_a_process_waits_at_its_end_for_what_was_begun() -> None:
    script = """
import asyncio, time
from committer.stores.hdfs.connection import Threads

async def main():
    async with asyncio.timeout(0.1):
        await Threads(1).run(lambda: (time.sleep(0.5), print("ended")), bound_s=30)

try:
    asyncio.run(main())
except TimeoutError:
    print("given up")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "given up\nended\n"), done.stderr


async def test_no_thread_for_a_call(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without a thread was not made, and may be repeated; one of several threads does the work of all."""
    threads = Threads(3)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(StoreUnavailableError, match="can't start new thread"):
            await run(threads, gate)
    first = run(threads, gate)
    await gate.until_begun()
    gate.open()
    await first
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert await run(threads, gate, lanes=3) in (2, 3, 4)


async def test_an_undo_takes_no_thread_of_others(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the call undoes it; so a pool of one still can, and none has to be started."""
    threads = Threads(1)
    undone: list[int] = []

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert await run(threads, lambda: 0) == 0
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(UnansweredError) as unanswered:
        await run(threads, gate, bound_s=0.05, undo=undone.append)
    assert unanswered.value.begun
    gate.open()
    assert await threads.drain(BOUND_S)
    assert undone == [1]
    assert await run(threads, lambda: 2) == 2


async def test_a_call_keeps_its_pool_until_it_ends(gate: Gate) -> None:
    """The exit of the process waits for the calls of the pools that exist."""
    threads = Threads(1)
    with pytest.raises(UnansweredError):
        await run(threads, gate, bound_s=0.05)
    alive = weakref.ref(threads)
    del threads
    gc.collect()
    assert alive() is not None
