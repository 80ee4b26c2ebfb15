"""The hand-over to threads: how many hops, who waits for what, who goes when cancelled."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator

import pytest

from committer.flow.threads import LastingExecutor
from committer.stores import batches as batches_module
from committer.stores.batches import HEAVY, LIGHT, MANY, WHOLE_BATCH, BatchExecutor

pytestmark = pytest.mark.every_loop


class Gate:
    """A call that stays in its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.passed = False

    def __call__(self) -> str:
        self.entered.set()
        assert self.open.wait(30)
        self.passed = True
        return "passed"


@pytest.fixture
async def batches() -> AsyncIterator[BatchExecutor]:
    batches = BatchExecutor(4)
    yield batches
    await batches.close()


@pytest.fixture
async def single() -> AsyncIterator[BatchExecutor]:
    batches = BatchExecutor(1)
    yield batches
    await batches.close()


@pytest.fixture
def all_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is quick by the clock, however busy the machine is, and none is ever held up."""
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 600.0)


async def until(condition: threading.Event) -> None:
    while not condition.is_set():
        await asyncio.sleep(0)


def lane_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("committer-local")]


@pytest.mark.usefixtures("all_quick")
async def test_a_batch_has_a_bound(batches: BatchExecutor, hops: list[object]) -> None:
    await asyncio.gather(*(batches.run(int) for _ in range(WHOLE_BATCH * 2 + 1)))
    assert len(hops) == 3


@pytest.mark.usefixtures("all_quick")
async def test_weight_fills_a_batch(batches: BatchExecutor, hops: list[object]) -> None:
    await asyncio.gather(*(batches.run(int, weight=WHOLE_BATCH) for _ in range(3)), *(batches.run(int) for _ in "123"))
    assert len(hops) == 4


async def test_calls_run_in_order_of_arrival(single: BatchExecutor) -> None:
    seen: list[int] = []
    await asyncio.gather(*(single.run(seen.append, number) for number in range(1000)))
    assert seen == list(range(1000))


async def test_slow_calls_are_spread_over_the_threads(batches: BatchExecutor, hops: list[object]) -> None:
    await asyncio.gather(*(batches.run(time.sleep, 0.01) for _ in range(4)))
    before = len(hops)
    await asyncio.gather(*(batches.run(int) for _ in range(8)))
    assert len(hops) == before + 4


@pytest.mark.usefixtures("all_quick")
@pytest.mark.parametrize(("weight", "threads"), [(LIGHT, 1), (HEAVY, 1), (MANY, 1), (WHOLE_BATCH, 4)])
async def test_quick_calls_keep_few_threads_busy(batches: BatchExecutor, weight: int, threads: int) -> None:
    """But calls of a whole batch wait, or may: for a disk to be forced, or for much data to be written."""
    lock, busy, most = threading.Lock(), 0, 0

    def call() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.0005 if weight < WHOLE_BATCH else 0.05)
        with lock:
            busy -= 1

    await asyncio.gather(*(batches.run(call, weight=weight) for _ in range(max(8, WHOLE_BATCH * 4 // weight))))
    assert most == threads


@pytest.mark.usefixtures("all_quick")
@pytest.mark.parametrize(
    ("long", "short"),
    [(long, short) for long in (LIGHT, HEAVY, MANY, WHOLE_BATCH) for short in (LIGHT, HEAVY, MANY) if long != short],
)
async def test_calls_of_one_kind_hold_up_none_of_another(batches: BatchExecutor, long: int, short: int) -> None:
    gate = Gate()
    held = asyncio.create_task(batches.run(gate, weight=long))
    await until(gate.entered)
    for _again in range(100):
        assert await batches.run(pow, 3, 2, weight=short) == 9
    gate.open.set()
    assert await held == "passed"


@pytest.mark.parametrize("why", ["held up", "slow"])
async def test_heavy_calls_leave_a_thread(batches: BatchExecutor, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that take minutes to delete, however many, must not keep a rename waiting."""
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 0.001 if why == "held up" else 600.0)
    if why == "slow":
        await batches.run(time.sleep, 0.05, weight=HEAVY)
    gates = [Gate() for _ in range(5)]
    held = [asyncio.create_task(batches.run(gate, weight=MANY - 1)) for gate in gates]
    for gate in gates[:3]:
        await until(gate.entered)
    for _again in range(20):
        assert await batches.run(pow, 3, 2) == 9
    assert not any(gate.entered.is_set() for gate in gates[3:])
    for gate in gates:
        gate.open.set()
    assert await asyncio.gather(*held) == ["passed"] * len(gates)


async def test_what_waits_for_a_server_gets_threads_whatever_its_weight(batches: BatchExecutor) -> None:
    barrier = threading.Barrier(4)

    async def work() -> int:
        for _again in range(5):
            await batches.run(time.sleep, 0.01, weight=HEAVY - 1)
        return await batches.run(barrier.wait, 30, weight=HEAVY - 1)

    # Each waits for all others, in a thread of its own.
    assert sorted(await asyncio.gather(*(work() for _ in range(4)))) == [0, 1, 2, 3]


async def test_no_kind_starves_another(single: BatchExecutor) -> None:
    done: list[int] = []
    light_ones = 0

    async def light() -> None:
        nonlocal light_ones
        while len(done) < 3:
            light_ones += 1
            await single.run(int)

    async def heavier() -> None:
        for weight in (HEAVY, MANY, WHOLE_BATCH):
            await single.run(int, weight=weight)
            done.append(weight)

    async with asyncio.timeout(30):
        await asyncio.gather(*(light() for _ in range(50)), heavier())
    assert done == [HEAVY, MANY, WHOLE_BATCH]
    assert light_ones >= 50


async def test_a_call_that_hangs_holds_others_up_once(batches: BatchExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 0.001)
    gate = Gate()
    held = asyncio.create_task(batches.run(gate))
    await until(gate.entered)
    assert await batches.run(pow, 3, 2) == 9
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 600.0)
    found = await asyncio.gather(*(batches.run(pow, number, 2) for number in range(1000)))
    assert found == [number**2 for number in range(1000)]
    gate.open.set()
    assert await held == "passed"


async def test_a_call_that_hangs_holds_none_up_where_all_threads_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One hangs, and others take every thread the moment it is free."""
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 0.001)
    batches, gate, done = BatchExecutor(2), Gate(), False
    held = asyncio.create_task(batches.run(gate))
    await until(gate.entered)

    async def go_on() -> None:
        while not done:
            await batches.run(time.sleep, 0.002, weight=WHOLE_BATCH)

    backlog = [asyncio.create_task(go_on()) for _ in range(3)]
    await asyncio.sleep(0.02)
    async with asyncio.timeout(10):
        assert await batches.run(pow, 3, 2) == 9
    done = True
    gate.open.set()
    assert await held == "passed"
    await asyncio.gather(*backlog)
    await batches.close()


async def test_one_call_that_took_long_is_soon_forgotten(
    batches: BatchExecutor, hops: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 30.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times, 30.0))
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 600.0)
    await batches.run(int)
    handed = []
    for _again in range(2):
        before = len(hops)
        await asyncio.gather(*(batches.run(int) for _ in range(8)))
        handed.append(len(hops) - before)
    # Spread over the threads, then in one hop as ever.
    assert handed == [4, 1]


async def test_one_thread_is_enough_again_when_what_held_others_up_has_ended(
    batches: BatchExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though calls went on all the time."""
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 0.001)
    gate, beside = Gate(), Gate()
    held = asyncio.create_task(batches.run(gate, weight=MANY))
    await until(gate.entered)
    going_on = asyncio.create_task(batches.run(beside, weight=MANY))
    await until(beside.entered)
    monkeypatch.setattr(batches_module, "_HELD_UP_S", 600.0)
    gate.open.set()
    assert await held == "passed"
    waiting = Gate()
    last = asyncio.create_task(batches.run(waiting, weight=MANY))
    for _again in range(100):
        assert await batches.run(pow, 3, 2) == 9
    assert not waiting.entered.is_set()
    beside.open.set()
    waiting.open.set()
    assert await asyncio.gather(going_on, last) == ["passed", "passed"]


async def test_errors_come_to_their_caller_only(batches: BatchExecutor) -> None:
    found = await asyncio.gather(*(batches.run(int, text) for text in ("1", "x", "2")), return_exceptions=True)
    assert found[0] == 1
    assert isinstance(found[1], ValueError)
    assert found[2] == 2


async def test_an_error_is_freed_at_once(batches: BatchExecutor) -> None:
    class Witness(Exception):
        pass

    def fail() -> None:
        raise Witness

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Witness) as caught:
            await batches.run(fail)
        witness = weakref.ref(caught.value)
        del caught
        assert witness() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("weight", [LIGHT, HEAVY, MANY, WHOLE_BATCH])
async def test_cancelled_before_a_thread_took_it(single: BatchExecutor, weight: int) -> None:
    gate, second = Gate(), Gate()
    first = asyncio.ensure_future(single.run(gate))
    await until(gate.entered)
    waiting = asyncio.ensure_future(single.run(second, weight=weight))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    gate.open.set()
    assert await first == "passed"
    assert await single.run(int) == 0
    assert not second.entered.is_set()


async def test_cancelled_while_it_runs(batches: BatchExecutor) -> None:
    gate = Gate()
    task = asyncio.ensure_future(batches.run(gate))
    await until(gate.entered)
    for _ in range(3):
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.passed


async def test_a_timeout_waits_for_the_call_and_is_a_timeout(batches: BatchExecutor) -> None:
    gate = Gate()

    async def let_go() -> None:
        await until(gate.entered)
        await asyncio.sleep(0.02)
        gate.open.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(let_go())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await batches.run(gate)
        assert gate.passed


@pytest.mark.parametrize("fails", [False, True])
async def test_what_no_caller_wants_any_more_is_undone_unless_it_failed(batches: BatchExecutor, fails: bool) -> None:
    gate = Gate()
    undone: list[str] = []

    def call() -> str:
        if fails:
            gate()
            raise OSError
        return gate()

    task = asyncio.ensure_future(batches.run(call, undo=undone.append))
    await until(gate.entered)
    task.cancel()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == ([] if fails else ["passed"])


async def test_insisting_survives_cancellation(single: BatchExecutor) -> None:
    gate, second = Gate(), Gate()
    first = asyncio.ensure_future(single.run(gate))
    await until(gate.entered)
    task = asyncio.ensure_future(single.run(second, insist=True))
    await asyncio.sleep(0)
    task.cancel()
    second.open.set()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert second.passed
    await first


async def test_no_thread_to_be_had(batches: BatchExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(LastingExecutor, "submit", refuse)
    found = await asyncio.gather(*(batches.run(int) for _ in range(5)), return_exceptions=True)
    assert [str(error) for error in found] == ["can't start new thread"] * 5
    monkeypatch.undo()
    assert await batches.run(int) == 0


async def test_a_call_that_found_no_thread_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy thread finds it in the executor's queue later, when its caller has gone on."""
    batches = BatchExecutor(4)
    gate, refused = Gate(), Gate()
    held = asyncio.create_task(batches.run(gate))
    await until(gate.entered)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await batches.run(refused, weight=HEAVY)
    monkeypatch.undo()
    gate.open.set()
    assert await held == "passed"
    assert await batches.run(int) == 0
    async with asyncio.timeout(30):
        await batches.close()
    assert not refused.entered.is_set()


async def test_no_memory_between_the_calls_of_a_batch(batches: BatchExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ran have their results; of the others the thread tells, whatever it broke off at."""
    loop_thread, looks = threading.get_ident(), 0

    def clock() -> float:
        nonlocal looks
        if threading.get_ident() != loop_thread:
            looks += 1
            if looks == 1:
                raise MemoryError
        return 0.0

    monkeypatch.setattr("time.perf_counter", clock)
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(batches.run(int) for _ in range(5)), return_exceptions=True)
    assert [type(error) for error in found] == [MemoryError] * 5
    assert await batches.run(int) == 0


async def test_no_memory_to_begin_a_batch(batches: BatchExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread took it and never called anything: the callers get the error, and later calls run."""

    def without_memory(*_arguments: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("committer.stores.batches._run_batch", without_memory)
        async with asyncio.timeout(30):
            found = await asyncio.gather(*(batches.run(int) for _ in range(5)), return_exceptions=True)
    assert [type(error) for error in found] == [MemoryError] * 5
    assert await batches.run(int) == 0


async def test_close_waits_and_ends_the_threads_that_calls_began(hops: list[object]) -> None:
    batches = BatchExecutor(2)
    gate = Gate()
    before = set(lane_threads())
    await BatchExecutor(4).close()
    assert set(lane_threads()) == before
    task = asyncio.ensure_future(batches.run(gate))
    await until(gate.entered)
    closing = [asyncio.ensure_future(batches.close()) for _ in range(2)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(one.done() for one in closing)
    threads = set(lane_threads()) - before
    assert threads
    gate.open.set()
    await asyncio.gather(*closing)
    assert await task == "passed"
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert await batches.run(int) == 0
    assert len(hops) == 2
    await batches.close()


def test_several_loops_at_once() -> None:
    batches = BatchExecutor(2)
    found: list[list[int]] = []

    async def use() -> None:
        found.append(await asyncio.gather(*(batches.run(pow, number, 2) for number in range(500))))
        await batches.close()

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[number**2 for number in range(500)]] * 3


def test_loops_one_after_the_other_without_close() -> None:
    batches = BatchExecutor(2)

    async def use() -> list[int]:
        return await asyncio.gather(*(batches.run(int) for _ in range(300)))

    for _ in range(3):
        assert asyncio.run(use()) == [0] * 300
    gc.collect()
    assert len(batches._lanes) <= 1


_FORK = """
import asyncio, os, sys
from committer.stores.batches import BatchExecutor

batches = BatchExecutor(2)

async def use():
    return await asyncio.gather(*(batches.run(int) for _ in range(300)))

async def parent():
    await use()
    pid = os.fork()
    if pid == 0:
        # As multiprocessing does; to unwind into the parent's loop would take its selector apart.
        asyncio._set_running_loop(None)
        os._exit(7 if len(asyncio.run(use())) == 300 else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    await use()
    await batches.close()

asyncio.run(parent())
print("done")
"""


def test_a_forked_child_starts_afresh() -> None:
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr
