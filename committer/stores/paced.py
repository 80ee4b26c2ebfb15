"""Store wrapper that paces, counts and retries calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Sized
from copy import copy
from functools import partial
from typing import Final, NoReturn, TypeVar

from committer.errors import (
    StoreError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.events import Statistics, names
from committer.flow.pacing import ONE_EACH, Claim, Pacer, Weights
from committer.flow.retry import DEFAULT_POLICY, RetryPolicy, nothing_was_done, retry
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stores.abilities import BATCH_DELETE, BATCH_RENAME
from committer.stores.base import Store
from committer.stores.forwarding import (
    CHANGES_NOTHING,
    DELETE_FILES,
    MAKE_DIRECTORY,
    REPEATABLE,
    ForwardingStore,
    Operation,
    Repetition,
)

_log = job_logger("committer.stores")

T = TypeVar("T")


_ONE: Final = (None,)


class PacedStore(ForwardingStore):
    """Wrapper that takes a permit of the endpoint for each attempt, counts calls and retries refused ones.

    After `StoreThrottledError` and `StoreUnavailableError`, which mean no effect, every call is retried. After a
    lost response (`StoreOutcomeUnknownError`) it depends on the call; `committer.stores.forwarding` has the table:

    - Calls that change nothing are retried, listings until their first entry. A response that stays lost is raised
      as `StoreUnavailableError`.
    - Idempotent calls are retried: `put` that may replace, `make_directory`, deletes, `sync`, aborts, parts and
      blocks. The first request may have done it: `make_directory`, a delete or an abort may then return False, and a
      conditional delete may meet a file that another job put there (its outcome is ``unknown`` then). A repeated
      delete or put also hits a file that another job put there in between, so a name that several parties create (a
      lock) must be released by renaming it away.
    - `put` with `exclusive`, `open_writer`, writes and closes of a file, renames, links, completed uploads and block
      lists are not retried: the second request would fail because of the first, or destroy its effect. Nor is
      `create_upload`: the first upload would stay pending unknown. The caller looks.

    Statistics have Hadoop's names. Each operation counts once, with its duration including waits and retries;
    ``store_io_request`` counts attempts, ``store_io_retry`` repeated ones, ``store_io_throttled`` refusals, and
    ``store_io_rate_limited`` is the time of waits for a permit. A listing takes one permit and is timed until its
    first entry. Names that `delete_files` reports as refused are sent again, as a further attempt.

    `close` releases the `claim` and, if `owned`, closes the inner store; one that the user gave is not owned.
    """

    def __init__(
        self,
        inner: Store,
        *,
        pacer: Pacer,
        statistics: Statistics,
        retry_policy: RetryPolicy = DEFAULT_POLICY,
        owned: bool = True,
        weights: Weights = ONE_EACH,
        claim: Claim | None = None,
    ) -> None:
        super().__init__(inner)
        self.owned = owned
        self.claim = claim
        self.pacer = pacer
        self.statistics = statistics
        self.retry_policy = retry_policy
        self.weights = weights
        self._retries = 0
        self._retries_to_log = 10

    async def call(
        self,
        operation: Operation,
        send: Callable[[], Awaitable[T]],
        path: StorePath,
        destination: StorePath | None = None,
    ) -> T:
        """Makes a call with a permit per attempt, counts and times it, and retries where that is safe."""
        # The usual case, a free permit and success, takes no further coroutine: a job makes 100,000s of calls.
        statistic = operation.statistic
        if not statistic:
            return await self._attempts(operation, send)
        statistics, pacer = self.statistics, self.pacer
        monotonic = pacer.runtime.monotonic
        started = monotonic()
        if not pacer.take(operation.kind, started, self.weights):
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
        """Continues after a first attempt without a wait, which began at `started` and raised `error`."""
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
        """Makes a call, with retries; a permit costs the kind's weight for each item left in `of`."""
        first = [failed] if failed is not None else []
        del failed  # see `_fail`
        kind, repetition = operation.kind, operation.repetition

        async def attempt() -> T:
            if first:
                self._fail(first.pop(), repetition)
            async with self.pacer.permit(kind, self.weights[kind] * len(of)) as permit:
                if permit.waited_s > 0.0:
                    self.statistics.duration(names.STORE_IO_RATE_LIMITED, permit.waited_s)
                self.statistics.count(names.STORE_IO_REQUEST)
                try:
                    return await send()
                except (StoreThrottledError, StoreOutcomeUnknownError, MemoryError) as error:
                    self._fail(error, repetition)

        return await retry(attempt, policy=self.retry_policy, idempotent=repetition == REPEATABLE, on_retry=self._again)

    def _fail(self, error: Exception, repetition: Repetition) -> NoReturn:
        """Counts a failed attempt and raises its error, adapted to the kind of call."""
        try:
            if isinstance(error, MemoryError):
                error = out_of_memory(error)
            if isinstance(error, StoreThrottledError):
                self.statistics.count(names.STORE_IO_THROTTLED)
            elif isinstance(error, StoreOutcomeUnknownError) and repetition == CHANGES_NOTHING:
                raise _unanswered(error) from error
            raise error
        finally:
            # The error's traceback has this frame. If the frame kept the error, both would be a cycle with all
            # frames of the call until the collector runs: 60 objects for a missing file.
            del error

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
        """Makes a listing: retried until its first entry; takes one permit, and holds none between entries."""

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
            self.statistics.count(names.STORE_IO_THROTTLED)
            self.pacer.throttled(error.retry_after_s)
            raise
        except StoreOutcomeUnknownError as error:
            raise _unanswered(error) from error
        except MemoryError as error:
            raise _unanswered(out_of_memory(error)) from error
        finally:
            await _close(opened)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """See `Store.make_directory`; False may be wrong after a lost response."""
        made = await self.call(MAKE_DIRECTORY, partial(self.inner.make_directory, path, parents=parents), path)
        if not made:
            self.statistics.count(names.OP_MKDIR_RETURNED_FALSE)
        return made

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        """See `SupportsBatchRename.rename_files`; one permit, tokens and counts for each file."""
        inner, many = BATCH_RENAME.required(self.inner, "rename_files"), len(renames)
        statistics = self.statistics
        async with self.pacer.permit("write", many * self.weights["write"]) as permit:
            if permit.waited_s > 0.0:
                statistics.duration(names.STORE_IO_RATE_LIMITED, permit.waited_s)
            statistics.count(names.STORE_IO_REQUEST, many)
            started = self.pacer.runtime.monotonic()
            try:
                errors = await inner.rename_files(renames, seen=seen, looks=looks)
            except MemoryError as error:
                # Any number of them may have been renamed.
                errors = dict.fromkeys(range(many), out_of_memory(error))
        each = (self.pacer.runtime.monotonic() - started) / max(1, many)
        if len(errors) < many:
            statistics.done(names.COMMIT_FILE_RENAME, each, many - len(errors))
        if errors:
            statistics.count(names.COMMIT_FILE_RENAME, len(errors))
            statistics.count(names.COMMIT_FILE_RENAME + names.FAILURES, len(errors))
        return errors

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """See `SupportsBatchDelete.delete_files`; sends single refused names again.

        A permit costs the weight of a delete for each name, since the service counts names, not calls (as in
        Hadoop's S3 client, `S3AStoreImpl.deleteObjects`).
        """
        inner = BATCH_DELETE.required(self.inner, "delete_files")
        left = dict(files)
        failed: dict[StorePath, StoreError] = {}
        refused: dict[StorePath, StoreError] = {}
        lost = False

        async def attempt() -> None:
            nonlocal refused, lost
            try:
                found = await inner.delete_files(dict(left))
            except StoreOutcomeUnknownError:
                lost = True
                raise
            refused = {path: error for path, error in found.items() if nothing_was_done(error)}
            failed.update((path, error) for path, error in found.items() if path not in refused)
            for path in left.keys() - refused.keys():
                del left[path]
            for error in refused.values():
                raise error

        try:
            if left:
                with self.statistics.timed(DELETE_FILES.statistic):
                    await self._attempts(DELETE_FILES, attempt, of=left)
        except StoreError as error:
            # Swallowed if it is the error of one name, not of the call.
            if not any(error is one for one in refused.values()):
                raise
        for unmet in failed.values():
            if lost and isinstance(unmet, StorePreconditionError):
                # The file there was not deleted; the call whose response was lost may have deleted the intended one.
                unmet.outcome = "unknown"
        return failed | refused

    async def close(self) -> None:
        """Releases the claim on the endpoint's limits, and closes an owned inner store. Takes no permit."""
        if self.claim is not None:
            self.claim.release()
        if self.owned:
            await self.inner.close()


def out_of_memory(error: MemoryError) -> StoreOutcomeUnknownError:
    """Returns the error of a call during which memory ran out: its outcome is unknown."""
    return StoreOutcomeUnknownError("the process ran out of memory in a call to the store", causes=(error,))


def _unanswered(error: StoreOutcomeUnknownError) -> StoreUnavailableError:
    return StoreUnavailableError(
        error.message, operation=error.operation, path=error.path, next_step=error.next_step, causes=(error,)
    )


async def _close(entries: AsyncIterator[T]) -> None:
    close = getattr(entries, "aclose", None)
    if close is not None:
        await close()


def without_retries(store: Store) -> Store:
    """Returns the same store, limits and statistics without retries, for a caller that counts attempts itself."""
    if not isinstance(store, PacedStore):
        return store
    once = copy(store)
    once.retry_policy = RetryPolicy(attempts=1)
    return once
