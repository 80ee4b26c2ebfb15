"""Sending a store call again: which failures allow it, and how long to wait before.

Two kinds of failure leave nothing behind (`StoreThrottledError`, `StoreUnavailableError`): any call may be sent again
after them. After a lost answer (`StoreOutcomeUnknownError`) only a call whose repetition changes nothing may, and then
no later failure can claim any more that nothing was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from committer.errors import CommitterError, StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.flow.runtime import current_runtime

T = TypeVar("T")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how fast a call is sent again.

    Attributes:
        attempts: Calls made in all, the first one included; those that the store asked to slow down for, or to wait,
            are left out where `throttled_attempts` counts them.
        throttled_attempts: Calls made in all while the store asks to slow down, or says that it will serve again;
            None counts those like any other. That a store is busy says nothing about the call, and other clients may
            keep it busy for a while: Hadoop's S3 client, too, gives throttling a number of its own
            (`fs.s3a.retry.throttle.limit`, 20). So it does not if a server begins to work, for half a minute or more.
        base_s: Seconds that the first wait is below; the bound doubles with every further one.
        cap_s: Seconds that every wait is below, except where the store itself asked for longer.
        budget_s: Seconds after which no further call is made, counted from the first failure, so that a queue before
            the first call takes nothing from it; a wait that would end later is not begun.
    """

    attempts: int = 5
    throttled_attempts: int | None = None
    base_s: float = 0.2
    cap_s: float = 10.0
    budget_s: float = 120.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        if self.throttled_attempts is not None and self.throttled_attempts < 1:
            raise ValueError(f"throttled_attempts must be at least 1, or None, not {self.throttled_attempts}")
        if min(self.base_s, self.cap_s, self.budget_s) < 0:
            raise ValueError("base_s, cap_s and budget_s must not be negative")

    def is_used_up(self, failed: int, throttled: int) -> bool:
        """Whether no further call is made after so many failures, and so many of them throttled."""
        if self.throttled_attempts is None:
            return failed >= self.attempts
        return failed - throttled >= self.attempts or throttled >= self.throttled_attempts


DEFAULT_POLICY = RetryPolicy(throttled_attempts=20)


def asks_to_wait(error: BaseException) -> bool:
    """Whether the store said that it is busy, or that it will serve again."""
    return isinstance(error, StoreThrottledError) or (isinstance(error, StoreUnavailableError) and error.expected_back)


def nothing_was_done(error: BaseException) -> bool:
    """Whether the store did not take the request, so that any call may be sent again."""
    return isinstance(error, (StoreThrottledError, StoreUnavailableError))


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy = DEFAULT_POLICY,
    idempotent: bool = False,
    is_retryable: Callable[[BaseException], bool] | None = None,
    on_retry: Callable[[BaseException, int, float], object] | None = None,
) -> T:
    """Makes a call, and again while it fails in a way that allows it.

    Waits are drawn evenly between nothing and a bound that doubles (full jitter), so that callers refused together do
    not come back together; a wait is never shorter than the store asked for.

    Args:
        call: Makes one attempt.
        policy: How often and how fast.
        idempotent: Making the call twice leaves what making it once does; a lost answer is then retried too.
        is_retryable: Which failures allow another attempt, instead of the rule above.
        on_retry: Told the failure, the number of attempts made so far, and the seconds until the next.

    Returns:
        What the first attempt that succeeds returns.

    Raises:
        StoreOutcomeUnknownError: An answer was lost and the last attempt was refused: what the lost one did is still
            not known. Its cause is the last failure.
        Exception: The last failure, or the first one that allows no other attempt. When an answer was lost before, it
            keeps its type and its outcome is ``unknown``.
    """
    runtime = current_runtime()
    unknown: CommitterError | None = None
    made = throttled = 0
    first_failed = 0.0
    try:
        while True:
            try:
                return await call()
            except Exception as error:
                now = runtime.monotonic()
                if not made:
                    first_failed = now
                made += 1
                throttled += asks_to_wait(error)
                if isinstance(error, CommitterError) and error.outcome == "unknown":
                    unknown = error
                if is_retryable is not None:
                    allowed = is_retryable(error)
                else:
                    allowed = nothing_was_done(error) or (idempotent and isinstance(error, StoreOutcomeUnknownError))
                wait = _wait(error, policy, made, runtime.random())
                over = policy.is_used_up(made, throttled) or now - first_failed + wait > policy.budget_s
                if not allowed or over:
                    if unknown is None or unknown is error:
                        raise
                    if nothing_was_done(error):
                        raise _still_unknown(unknown, error) from error
                    if isinstance(error, CommitterError):
                        error.outcome = "unknown"
                    raise
                if on_retry is not None:
                    on_retry(error, made, wait)
            await runtime.sleep(wait)
    finally:
        # The error has this frame in its traceback: a frame that has the error makes a ring of both, with all the
        # frames of the call and what they hold, which waits for the cycle collector.
        unknown = None


def _wait(error: Exception, policy: RetryPolicy, made: int, drawn: float) -> float:
    # The exponent is bounded so that a generous number of attempts cannot overflow.
    jitter = drawn * min(policy.cap_s, policy.base_s * 2.0 ** min(made - 1, 60))
    asked = error.retry_after_s if isinstance(error, StoreThrottledError) else None
    return max(jitter, asked or 0.0)


def _still_unknown(unknown: CommitterError, last: Exception) -> StoreOutcomeUnknownError:
    headline = last.message if isinstance(last, CommitterError) else str(last)
    return StoreOutcomeUnknownError(
        f"{unknown.message}; sent again, it was refused: {headline}",
        operation=unknown.operation,
        path=unknown.path,
        next_step=unknown.next_step,
        causes=(unknown, last),
    )
