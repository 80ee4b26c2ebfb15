"""Retries of store calls: which failures allow one, and how long to wait before.

`StoreThrottledError` and `StoreUnavailableError` mean no effect, so any call may be repeated. After a lost response
(`StoreOutcomeUnknownError`) only an idempotent call may, and no later failure can mean that nothing was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from committer.errors import CommitterError, StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.flow.runtime import current_runtime

T = TypeVar("T")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Number and pace of retries.

    Attributes:
        attempts: Most calls, with the first one; without throttled ones if `throttled_attempts` counts them.
        throttled_attempts: Most calls while the store asks to slow down, or says that it will serve again (as a
            starting server does for half a minute or more); None counts them as others. A busy store says nothing
            about the call and may stay busy for a while. Hadoop's S3 client has an own limit, too
            (`fs.s3a.retry.throttle.limit`, 20).
        base_s: Upper bound of the first wait in seconds; doubles with each further wait.
        cap_s: Upper bound of every wait in seconds, unless the store asks for longer.
        budget_s: Seconds from the first failure after which no further call is made; so a queue before the first
            call does not count. A wait that would end later is not begun.
    """

    attempts: int = 5
    throttled_attempts: int | None = None
    base_s: float = 0.2
    cap_s: float = 10.0
    budget_s: float = 120.0

    def is_used_up(self, failed: int, throttled: int) -> bool:
        """Whether no further call is made after `failed` failures, of which `throttled` were throttled."""
        if self.throttled_attempts is None:
            return failed >= self.attempts
        return failed - throttled >= self.attempts or throttled >= self.throttled_attempts


DEFAULT_POLICY = RetryPolicy(throttled_attempts=20)


def nothing_was_done(error: BaseException) -> bool:
    """Whether the store did not take the request, so that any call may be repeated."""
    return isinstance(error, (StoreThrottledError, StoreUnavailableError))


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    policy: RetryPolicy = DEFAULT_POLICY,
    idempotent: bool = False,
    on_retry: Callable[[BaseException, int, float], object] | None = None,
) -> T:
    """Makes a call, and repeats it after failures that allow it.

    Waits are random between nothing and a bound that doubles (full jitter), so that callers refused together do not
    return together; never shorter than the store asked for. An `idempotent` call is repeated after a lost response,
    too. `on_retry` is called with the failure, the number of attempts so far, and the seconds until the next.

    Raises:
        StoreOutcomeUnknownError: A response was lost and the last attempt was refused, so the outcome of the lost
            one is unknown. Its cause is the last failure.
        Exception: The last failure, or the first that allows no repetition. If a response was lost before, its
            outcome is ``unknown``.
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
                later = isinstance(error, StoreUnavailableError) and error.expected_back
                throttled += later or isinstance(error, StoreThrottledError)
                if isinstance(error, CommitterError) and error.outcome == "unknown":
                    unknown = error
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
        # The error's traceback has this frame. If the frame kept the error, both would be a cycle with all frames of
        # the call until the collector runs.
        unknown = None


def _wait(error: Exception, policy: RetryPolicy, made: int, drawn: float) -> float:
    # Bounded, so that a large number of attempts cannot overflow.
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
