"""What may be sent again, how long to wait before, and what is known afterwards."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable

import pytest

from committer.errors import (
    CommitterError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.retry import DEFAULT_POLICY, RetryPolicy, nothing_was_done, retry
from committer.flow.runtime import use_runtime
from committer.testing.virtual_time import VirtualRuntime

pytestmark = pytest.mark.every_loop


class Script:
    """A call that fails as told, then returns ``done``."""

    def __init__(self, *failures: BaseException) -> None:
        self.failures = list(failures)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def down() -> StoreUnavailableError:
    return StoreUnavailableError("down")


def lost() -> StoreOutcomeUnknownError:
    return StoreOutcomeUnknownError("the answer was lost", operation="put", path="file:/x", next_step="look")


async def test_success_costs_one_call_and_no_wait() -> None:
    with use_runtime(VirtualRuntime()) as runtime:
        call = Script()
        assert await retry(call) == "done"
        assert (call.made, runtime.monotonic()) == (1, 0.0)


@pytest.mark.parametrize("failure", [down, lambda: StoreThrottledError("slow down")])
async def test_what_was_not_done_is_sent_again(failure: Callable[[], Exception]) -> None:
    with use_runtime(VirtualRuntime()):
        call = Script(failure(), failure(), failure())
        assert await retry(call) == "done"
        assert call.made == 4


@pytest.mark.parametrize("failure", [lost(), StoreNotFoundError("no"), StoreExistsError("yes"), ValueError("bug")])
async def test_anything_else_is_raised_at_once(failure: Exception) -> None:
    call = Script(failure)
    with pytest.raises(type(failure)) as caught:
        await retry(call)
    assert caught.value is failure
    assert call.made == 1
    assert not nothing_was_done(failure)


async def test_a_lost_answer_is_sent_again_only_when_repeating_changes_nothing() -> None:
    with use_runtime(VirtualRuntime()):
        call = Script(lost(), lost())
        assert await retry(call, idempotent=True) == "done"
        assert call.made == 3


async def test_the_last_failure_is_raised_when_attempts_run_out() -> None:
    with use_runtime(VirtualRuntime()):
        failures = [down() for _ in range(3)]
        call = Script(*failures)
        with pytest.raises(StoreUnavailableError) as caught:
            await retry(call, policy=RetryPolicy(attempts=3))
        assert caught.value is failures[2]
        assert call.made == 3


async def test_after_a_lost_answer_a_refusal_is_no_proof_that_nothing_happened() -> None:
    with use_runtime(VirtualRuntime()):
        with pytest.raises(StoreOutcomeUnknownError) as caught:
            await retry(Script(lost(), down(), down()), policy=RetryPolicy(attempts=3), idempotent=True)
        error = caught.value
        assert (error.outcome, error.operation, error.path, error.next_step) == ("unknown", "put", "file:/x", "look")
        assert isinstance(error.__cause__, StoreUnavailableError)
        assert len(error.causes) == 2


async def test_after_a_lost_answer_a_definite_error_says_unknown() -> None:
    with use_runtime(VirtualRuntime()):
        with pytest.raises(StoreNotFoundError) as caught:
            await retry(Script(lost(), StoreNotFoundError("gone")), idempotent=True)
        assert caught.value.outcome == "unknown"


async def test_waits_are_full_jitter_below_a_doubling_bound() -> None:
    waits: list[list[float]] = []
    for seed in range(50):
        with use_runtime(VirtualRuntime(seed)) as runtime:
            waits.append([])
            policy = RetryPolicy(attempts=7, base_s=1.0, cap_s=8.0, budget_s=1000.0)
            with pytest.raises(StoreUnavailableError):
                await retry(
                    Script(*(down() for _ in range(7))),
                    policy=policy,
                    on_retry=lambda error, made, wait: waits[-1].append(wait),
                )
            assert runtime.monotonic() == pytest.approx(sum(waits[-1]))
    for number, bound in enumerate([1.0, 2.0, 4.0, 8.0, 8.0, 8.0]):
        drawn = [wait[number] for wait in waits]
        assert 0 <= min(drawn) < 0.2 * bound
        assert 0.8 * bound < max(drawn) < bound


async def test_a_wait_is_never_shorter_than_the_store_asked_for() -> None:
    with use_runtime(VirtualRuntime()) as runtime:
        assert await retry(Script(StoreThrottledError("slow down", retry_after_s=30.0))) == "done"
        assert runtime.monotonic() == pytest.approx(30.0)


async def test_no_attempt_after_the_budget() -> None:
    with use_runtime(VirtualRuntime()) as runtime:

        async def slow() -> None:
            await runtime.sleep(10)
            raise down()

        with pytest.raises(StoreUnavailableError):
            await retry(slow, policy=RetryPolicy(attempts=100, base_s=0.0, budget_s=35.0))
        # The first failure comes after 10 s, the last that is followed by another call 30 s later.
        assert runtime.monotonic() == pytest.approx(50.0)


async def test_waiting_for_the_first_call_takes_nothing_from_the_budget() -> None:
    with use_runtime(VirtualRuntime()) as runtime:
        call = Script(StoreThrottledError("slow down", retry_after_s=5.0))

        async def queued() -> str:
            if not call.made:
                await runtime.sleep(1000)
            return await call()

        assert await retry(queued, policy=RetryPolicy(budget_s=10.0)) == "done"


async def test_throttling_has_attempts_of_its_own_and_one_budget_with_the_rest() -> None:
    def slow() -> StoreThrottledError:
        return StoreThrottledError("slow down")

    policy = RetryPolicy(attempts=3, throttled_attempts=6, budget_s=1e6)
    with use_runtime(VirtualRuntime()):
        call = Script(slow(), down(), slow(), slow(), down(), slow(), slow())
        assert await retry(call, policy=policy) == "done"
        assert call.made == 8
        call = Script(*(slow() for _ in range(9)))
        with pytest.raises(StoreThrottledError):
            await retry(call, policy=policy)
        assert call.made == 6
        call = Script(slow(), down(), slow(), down(), down())
        with pytest.raises(StoreUnavailableError):
            await retry(call, policy=policy)
        assert call.made == 5
        call = Script(*(slow() for _ in range(9)))
        with pytest.raises(StoreThrottledError):
            await retry(call, policy=RetryPolicy(attempts=3, budget_s=1e6))
        assert call.made == 3


async def test_a_server_that_will_serve_again_is_waited_for_as_a_busy_one() -> None:
    """A NameNode that begins to work refuses calls for half a minute and more; one that cannot be reached is no such."""
    for seed in range(20):
        with use_runtime(VirtualRuntime(seed)) as runtime:

            async def begins_to_work(runtime: VirtualRuntime = runtime) -> str:
                if runtime.monotonic() < 35.0:
                    error = StoreUnavailableError("it is in safe mode")
                    error.expected_back = True
                    raise error
                return "done"

            assert await retry(begins_to_work) == "done"
            assert runtime.monotonic() < 46.0
            with pytest.raises(StoreUnavailableError):
                await retry(Script(*(down() for _ in range(9))))


async def test_a_store_that_stays_busy_is_given_up_after_the_budget() -> None:
    for seed in range(20):
        with use_runtime(VirtualRuntime(seed)) as runtime:
            call = Script(*(StoreThrottledError("slow down", retry_after_s=10.0) for _ in range(50)))
            with pytest.raises(StoreThrottledError):
                await retry(call, policy=DEFAULT_POLICY)
            assert (call.made, runtime.monotonic()) == (13, pytest.approx(DEFAULT_POLICY.budget_s))


async def test_a_wait_that_would_end_after_the_budget_is_not_begun() -> None:
    with use_runtime(VirtualRuntime()) as runtime:
        with pytest.raises(StoreThrottledError):
            await retry(Script(StoreThrottledError("slow", retry_after_s=60.0)), policy=RetryPolicy(budget_s=59.0))
        assert runtime.monotonic() == 0.0


async def test_on_retry_is_told_each_failure_that_is_followed_by_another_attempt() -> None:
    told: list[tuple[type[BaseException], int]] = []
    with use_runtime(VirtualRuntime()), pytest.raises(CommitterError):
        await retry(
            Script(down(), lost(), down()),
            policy=RetryPolicy(attempts=3),
            idempotent=True,
            on_retry=lambda error, made, wait: told.append((type(error), made)),
        )
    assert told == [(StoreUnavailableError, 1), (StoreOutcomeUnknownError, 2)]


@pytest.mark.parametrize("during", ["call", "wait"])
async def test_cancellation_goes_through(during: str) -> None:
    reached = asyncio.Event()

    async def call() -> None:
        reached.set()
        if during == "call":
            await asyncio.Event().wait()
        raise down()

    policy = RetryPolicy(base_s=1000.0, cap_s=1000.0, budget_s=1e6)
    with use_runtime(VirtualRuntime(auto_advance=False)):
        task: asyncio.Task[None] = asyncio.create_task(_retrying(call, policy))
        await reached.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def _retrying(call: Callable[[], Awaitable[None]], policy: RetryPolicy) -> None:
    await retry(call, policy=policy)


async def test_a_great_many_attempts_do_not_overflow() -> None:
    with use_runtime(VirtualRuntime()):
        call = Script(*(down() for _ in range(2000)))
        policy = RetryPolicy(attempts=5000, base_s=0.001, cap_s=0.01, budget_s=1e6)
        assert await retry(call, policy=policy) == "done"


@pytest.mark.parametrize(
    ("then", "raises"),
    [
        pytest.param([], None, id="it succeeds"),
        pytest.param([StoreExistsError], StoreExistsError, id="another failure"),
        pytest.param([StoreUnavailableError] * 2, StoreOutcomeUnknownError, id="it is refused"),
        pytest.param([StoreOutcomeUnknownError] * 2, StoreOutcomeUnknownError, id="answers keep being lost"),
    ],
)
async def test_the_error_of_a_lost_answer_is_freed_at_once(
    then: list[type[CommitterError]], raises: type[CommitterError] | None
) -> None:
    """It has the frame of the retry in its traceback: a frame that has the error makes a ring of both."""
    lost = [StoreOutcomeUnknownError("lost"), *(kind("again") for kind in then)]
    witness, script = weakref.ref(lost[0]), Script(*lost)
    lost.clear()
    gc.collect()
    gc.disable()
    try:
        with use_runtime(VirtualRuntime()):
            if raises is None:
                await retry(script, idempotent=True)
            else:
                with pytest.raises(raises) as caught:
                    await retry(script, policy=RetryPolicy(attempts=3), idempotent=True)
                assert caught.value.outcome == "unknown"
                del caught
        assert witness() is None
    finally:
        gc.enable()
