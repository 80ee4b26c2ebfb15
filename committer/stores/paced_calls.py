"""How a paced call is made: a permit for each attempt, counted, and sent again where that is safe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from typing import Final, NoReturn, TypeVar

from committer.errors import StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.events import Statistics, names
from committer.flow.pacing import Claim, Pacer
from committer.flow.retry import DEFAULT_POLICY, RetryPolicy, retry
from committer.flow.weights import Weights
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.forwarding import ForwardingStore
from committer.stores.store_calls import CHANGES_NOTHING, REPEATABLE, Operation, Repetition

_log = job_logger("committer.stores")

T = TypeVar("T")

DEFAULT_WEIGHTS: Final = Weights()

_ONE: Final = (None,)


class PacedCalls(ForwardingStore):
    """The calls to one store under its endpoint's limits."""

    def __init__(
        self,
        inner: Store,
        *,
        pacer: Pacer,
        statistics: Statistics,
        retry_policy: RetryPolicy = DEFAULT_POLICY,
        owned: bool = True,
        weights: Weights = DEFAULT_WEIGHTS,
        claim: Claim | None = None,
    ) -> None:
        super().__init__(inner)
        self.owned = owned
        self.claim = claim
        self.pacer = pacer
        self.statistics = statistics
        self.retry_policy = retry_policy
        self.weights = weights
        self._costs = weights.by_kind
        self._retries = 0
        self._retries_to_log = 10

    async def call(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> T:
        """Makes a call: a permit for each attempt, counted and timed, sent again where that is safe."""
        # What nearly every call meets, a free permit and a good answer, takes no further coroutine: a job makes
        # hundreds of thousands.
        statistic = operation.statistic
        if not statistic:
            return await self._attempts(operation, send)
        statistics, pacer = self.statistics, self.pacer
        monotonic = pacer.runtime.monotonic
        started = monotonic()
        if not pacer.take(operation.kind, started, self._costs):
            with statistics.timed(statistic):
                return await self._attempts(operation, send)
        statistics.count(names.STORE_IO_REQUEST)
        try:
            result = await send()
        except BaseException as error:
            return await self._call_failed(operation, send, started, error)
        pacer.give_back(started, None)
        statistics.done(statistic, monotonic() - started)
        return result

    async def _call_failed(
        self, operation: Operation, send: Callable[[], Awaitable[T]], started: float, error: BaseException
    ) -> T:
        """Goes on after a first attempt that began at `started`, by a permit taken at once, and ended with `error`."""
        try:
            self.pacer.give_back(started, error)
            with self.statistics.timed(operation.statistic, since=started):
                if not isinstance(error, Exception):
                    raise error
                return await self._attempts(operation, send, failed=error)
        finally:
            # See `_fail`.
            del error

    async def _attempts(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        *,
        failed: Exception | None = None,
        of: Sized = _ONE,
    ) -> T:
        """Makes a call, and again while that is allowed.

        Args:
            operation: What it is.
            send: Makes one attempt.
            failed: What a first attempt ended with.
            of: What one attempt is for: a permit costs the weight of its kind for each, as many as there are then.
        """
        first = [failed] if failed is not None else []
        del failed  # see `_fail`
        kind, repetition = operation.kind, operation.repetition

        async def attempt() -> T:
            if first:
                self._fail(first.pop(), repetition)
            async with self.pacer.permit(kind, self._costs[kind] * len(of)) as permit:
                if permit.waited_s > 0.0:
                    self.statistics.duration(names.STORE_IO_RATE_LIMITED, permit.waited_s)
                self.statistics.count(names.STORE_IO_REQUEST)
                try:
                    return await send()
                except (StoreThrottledError, StoreOutcomeUnknownError, MemoryError) as error:
                    self._fail(error, repetition)

        return await retry(attempt, policy=self.retry_policy, idempotent=repetition == REPEATABLE, on_retry=self._again)

    def _fail(self, error: Exception, repetition: Repetition) -> NoReturn:
        """Raises what a failed attempt means for a call of this kind."""
        try:
            if isinstance(error, MemoryError):
                error = out_of_memory(error)
            if isinstance(error, StoreThrottledError):
                self._refused()
            elif isinstance(error, StoreOutcomeUnknownError) and repetition == CHANGES_NOTHING:
                raise _unanswered(error) from error
            raise error
        finally:
            # The error has this frame in its traceback. A frame that has the error makes a ring of both, with all the
            # frames of the call and what they hold, which waits for the cycle collector: 60 objects for a missing file.
            del error

    def _refused(self) -> None:
        self.statistics.count(names.STORE_IO_THROTTLED)

    def _again(self, error: BaseException, made: int, wait_s: float) -> None:
        self.statistics.count(names.STORE_IO_RETRY)
        self._retries += 1
        if self._retries == self._retries_to_log:
            self._retries_to_log *= 10
            _log.warning(
                "%d calls to %s were sent again so far; the last failed %d times: %s",
                self._retries,
                self.pacer.endpoint,
                made,
                error,
            )

    async def stream(
        self, operation: Operation, entries: Callable[[], AsyncIterator[T]], path: StorePath
    ) -> AsyncIterator[T]:
        """Makes a listing: one permit, and none is held between entries; sent again until its first entry is there."""

        async def start() -> tuple[AsyncIterator[T], list[T]]:
            opened = entries()
            try:
                async for entry in opened:
                    return opened, [entry]
                return opened, []
            except BaseException:
                await _close(opened)
                raise

        opened, first = await self.call(operation, start, path)
        try:
            if not first:
                return
            yield first[0]
            async for entry in opened:
                yield entry
        except StoreThrottledError as error:
            self._refused()
            self.pacer.throttled(error.retry_after_s)
            raise
        except StoreOutcomeUnknownError as error:
            raise _unanswered(error) from error
        except MemoryError as error:
            raise _unanswered(out_of_memory(error)) from error
        finally:
            await _close(opened)


def out_of_memory(error: MemoryError) -> StoreOutcomeUnknownError:
    """A call that broke off where memory ran out: it is unknown whether the store did it."""
    return StoreOutcomeUnknownError("the process ran out of memory in a call to the store", causes=(error,))


def _unanswered(error: StoreOutcomeUnknownError) -> StoreUnavailableError:
    """A lost answer to a question: nothing was changed, nothing is known."""
    return StoreUnavailableError(
        error.message, operation=error.operation, path=error.path, next_step=error.next_step, causes=(error,)
    )


async def _close(entries: AsyncIterator[T]) -> None:
    close = getattr(entries, "aclose", None)
    if close is not None:
        await close()
