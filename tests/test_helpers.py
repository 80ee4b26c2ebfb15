"""Helpers of the tests: short waits, samples of sweeps, and the end of a test that hangs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from committer.errors import StoreUnavailableError
from committer.flow.retry import RetryPolicy, retry
from committer.flow.runtime import use_runtime
from tests.short_waits import ShortWaits
from tests.sweeps import Share, first_of, sample, sampled


async def test_a_wait_moves_both_clocks_and_takes_a_thousandth() -> None:
    runtime = ShortWaits()
    began, clock, date = time.monotonic(), runtime.monotonic(), runtime.now()
    await runtime.sleep(60)
    assert time.monotonic() - began < 30
    assert runtime.monotonic() - clock >= 60
    assert runtime.now() - date >= timedelta(seconds=60)


async def test_waits_at_the_same_time_move_the_clocks_once() -> None:
    runtime = ShortWaits()
    clock = runtime.monotonic()
    await asyncio.gather(*(runtime.sleep(20) for _ in range(20)))
    assert 20 <= runtime.monotonic() - clock < 200


async def test_tries_end_with_their_budget() -> None:
    """The time left out of the waits counts: a call is not made again forever."""
    made = 0

    async def refused() -> None:
        nonlocal made
        made += 1
        raise StoreUnavailableError("refused")

    with use_runtime(ShortWaits()):
        with pytest.raises(StoreUnavailableError):
            await retry(refused, policy=RetryPolicy(attempts=10**6, base_s=60, cap_s=60, budget_s=600))
    assert 10 < made < 1000


async def test_a_timer_keeps_its_time() -> None:
    runtime, rang = ShortWaits(), asyncio.Event()
    clock = time.monotonic()
    runtime.call_later(0.05, rang.set)
    await rang.wait()
    assert time.monotonic() - clock >= 0.04


@pytest.mark.parametrize("one_in", [1, 2, 7, 30])
def test_a_sample_is_every_nth_place_and_at_least_one(one_in: int) -> None:
    taken = sample(range(20), one_in, "a sweep")
    assert len(taken) in {max(1, 20 // one_in), 20 // one_in + 1}
    assert {later - earlier for earlier, later in zip(taken, taken[1:], strict=False)} <= {one_in}


def test_an_empty_sweep_has_an_empty_sample() -> None:
    assert sample([], 7, "a sweep") == []


@pytest.mark.parametrize("count", [1, 5, 30])
def test_values_outside_the_sample_are_slow(count: int) -> None:
    values = sampled(range(count), 7, "a parameter")
    quick = [value for value in values if isinstance(value, int)]
    assert quick == list(sample(range(count), 7, "a parameter"))
    assert all(value.marks[0].name == "slow" for value in values if not isinstance(value, int))
    assert len(values) == count


def test_a_sweep_that_counts_takes_every_nth_number() -> None:
    first, second, third = islice(Share(5, "a sweep").counted(), 3)
    assert 1 <= first <= 5
    assert (second - first, third - second) == (5, 5)
    assert list(islice(Share(1, "a sweep").counted(), 3)) == [1, 2, 3]


def test_results_of_a_sample_are_among_those_of_the_whole_sweep() -> None:
    Share(5, "").check_seen({"a"}, {"a", "b"})
    Share(5, "").check_seen(set(), {"a", "b"})
    Share(1, "").check_seen({"a", "b"}, {"a", "b"})
    for one_in, seen in ((5, {"c"}), (1, set[str]()), (1, {"a"})):
        with pytest.raises(AssertionError):
            Share(one_in, "").check_seen(seen, {"a", "b"})


def test_sweeps_begin_at_different_places() -> None:
    assert len({first_of(9, f"sweep {number}") for number in range(100)}) == 9


HANGING = """
import time
from tests.hangs import HangingTests

watch = HangingTests(0.5, 0.5)
watch.pytest_runtest_protocol()
{before}
time.sleep(100)
"""

# pytest ends the watch before it shows a failure; the next test begins at once.
AFTER_A_FAILURE = """
import faulthandler
faulthandler.cancel_dump_traceback_later()
watch.pytest_exception_interact()
watch.pytest_runtest_protocol()
"""


@pytest.mark.parametrize("before", ["", AFTER_A_FAILURE], ids=["the first", "after a failure"])
def test_a_hanging_test_says_where_and_ends_the_run(before: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING.format(before=before)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=90,
        check=False,
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr, ended.stderr
    assert 'File "<string>"' in ended.stderr, ended.stderr


def test_this_run_is_watched(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("hanging tests")
