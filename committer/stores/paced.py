"""A store whose calls are paced, counted and, where that is safe, sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Final, Literal, NoReturn, TypeVar

from committer.errors import StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError, UnsupportedError
from committer.events import Statistics, names
from committer.flow.pacing import Kind, Pacer
from committer.flow.retry import DEFAULT_POLICY, RetryPolicy, retry
from committer.paths import StorePath
from committer.stores.base import (
    Capabilities,
    FileStatus,
    FileWriter,
    Store,
    SupportsHardLinks,
    SupportsLinks,
    SupportsLocalPaths,
    SupportsSync,
)

T = TypeVar("T")

_CHANGES_NOTHING: Final = "changes nothing"
_REPEATABLE: Final = "repeatable"
_ONCE: Final = "once"
_Repetition = Literal["changes nothing", "repeatable", "once"]


class PacedStore(Store):
    """Wraps a store so that each wire attempt takes one permit of its endpoint, and a definite refusal is retried.

    What is retried. After `StoreThrottledError` and `StoreUnavailableError`, which leave nothing behind: everything.
    After a lost answer (`StoreOutcomeUnknownError`):

    - `status`, `read`, `probe`, and `list` until its first entry is there. They change nothing, so an answer that stays
      lost is raised as `StoreUnavailableError`.
    - `put` that may replace, `make_directory`, `delete_file`, `delete_directory`, `sync`, and giving up a writer. The
      result is the same after the second time, but the first may have done it: `make_directory` may then say False of
      a directory it made, the deletes False of what they deleted. A repeated delete, or put, also hits what somebody
      else put under that path in between; what several parties create under one name (a lock) must be given up by
      renaming it away.
    - Never `put` with `exclusive`, `open_writer`, writing to a file and closing it, renames, links: the second time
      would fail because of the first, or destroy what it did. Who calls them looks.

    What is counted, under Hadoop's names: each operation once with its duration, waits and retries included;
    ``store_io_request`` each attempt, ``store_io_retry`` each further one, ``store_io_throttled`` each refusal,
    ``store_io_rate_limited`` (durations only) each wait for a permit. A listing takes one permit and is timed until its
    first entry; later pages are neither. Renames of files are ``commit_file_rename``, of directories ``op_rename``.

    Args:
        inner: The store.
        pacer: The limits of its endpoint.
        statistics: Where calls are counted.
        retry_policy: How often and how fast calls are sent again.
        owned: Whether closing this closes the inner store: not one that a user gave, who may have other work for it.
    """

    def __init__(
        self,
        inner: Store,
        *,
        pacer: Pacer,
        statistics: Statistics,
        retry_policy: RetryPolicy = DEFAULT_POLICY,
        owned: bool = True,
    ) -> None:
        self.owned = owned
        self.inner = inner
        self.pacer = pacer
        self.statistics = statistics
        self.retry_policy = retry_policy

    @property
    def scheme(self) -> str:
        """The inner store's."""
        return self.inner.scheme

    @property
    def endpoint(self) -> str:
        """The inner store's."""
        return self.inner.endpoint

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's."""
        return self.inner.capabilities

    async def probe(self, directory: StorePath) -> None:
        """See `Store.probe`; takes one permit for its handful of calls."""
        await self._attempts(lambda: self.inner.probe(directory), "write", _CHANGES_NOTHING)

    async def status(self, path: StorePath) -> FileStatus:
        """See `Store.status`."""
        return await self._call(names.OP_GET_FILE_STATUS, lambda: self.inner.status(path), "read", _CHANGES_NOTHING)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """See `Store.list`; no permit is held between entries."""

        async def start() -> tuple[AsyncIterator[FileStatus], FileStatus | None]:
            entries = self.inner.list(directory)
            try:
                return entries, await anext(entries, None)
            except BaseException:
                await _close(entries)
                raise

        entries, first = await self._call(names.OP_LIST_STATUS, start, "read", _CHANGES_NOTHING)
        try:
            if first is None:
                return
            yield first
            async for entry in entries:
                yield entry
        except StoreThrottledError as error:
            self._refused()
            self.pacer.throttled(error.retry_after_s)
            raise
        except StoreOutcomeUnknownError as error:
            raise _unanswered(error) from error
        finally:
            await _close(entries)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """See `Store.read`."""
        return await self._call(names.OP_OPEN, lambda: self.inner.read(path, limit=limit), "read", _CHANGES_NOTHING)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """See `Store.put`; repeated after a lost answer unless `exclusive`."""
        return await self._call(
            names.OP_CREATE,
            lambda: self.inner.put(path, data, exclusive=exclusive, temporary=temporary, durable=durable),
            "write",
            _ONCE if exclusive else _REPEATABLE,
        )

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """See `Store.open_writer`; the writer is paced too."""
        writer = await self._call(
            names.OP_CREATE, lambda: self.inner.open_writer(path, durable=durable), "write", _ONCE
        )
        return PacedWriter(self, writer)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """See `Store.make_directory`; False may be wrong after an answer was lost."""
        return await self._call(
            names.OP_MKDIRS, lambda: self.inner.make_directory(path, parents=parents), "write", _REPEATABLE
        )

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """See `Store.rename_file`; never repeated after a lost answer."""
        await self._call(
            names.COMMIT_FILE_RENAME,
            lambda: self.inner.rename_file(source, destination, replace=replace, identity=identity),
            "write",
            _ONCE,
        )

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """See `Store.rename_directory`; never repeated after a lost answer."""
        await self._call(names.OP_RENAME, lambda: self.inner.rename_directory(source, destination), "write", _ONCE)

    async def delete_file(self, path: StorePath) -> bool:
        """See `Store.delete_file`; False may be wrong after an answer was lost."""
        return await self._call(names.OP_DELETE, lambda: self.inner.delete_file(path), "delete", _REPEATABLE)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """See `Store.delete_directory`; False may be wrong after an answer was lost."""
        return await self._call(
            names.OP_DELETE_DIR if recursive else names.OP_DELETE,
            lambda: self.inner.delete_directory(path, recursive=recursive),
            "delete",
            _REPEATABLE,
        )

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """See `SupportsHardLinks.link_file`; never repeated after a lost answer.

        Raises:
            UnsupportedError: The inner store has no hard links.
        """
        inner = self.inner
        if not isinstance(inner, SupportsHardLinks):
            raise self._lacks("hard links", "link_file")
        await self._call(names.OP_LINK, lambda: inner.link_file(source, destination), "write", _ONCE)

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """See `SupportsLinks.find_link`.

        Raises:
            UnsupportedError: The inner store has no symbolic links.
        """
        inner = self.inner
        if not isinstance(inner, SupportsLinks):
            raise self._lacks("symbolic links", "find_link")
        return await self._call(
            names.OP_GET_FILE_STATUS, lambda: inner.find_link(root, directories), "read", _CHANGES_NOTHING
        )

    def local_path(self, path: StorePath) -> str:
        """See `SupportsLocalPaths.local_path`; no call.

        Raises:
            UnsupportedError: Files of the inner store have no local paths.
        """
        if not isinstance(self.inner, SupportsLocalPaths):
            raise self._lacks("local paths", "local_path")
        return self.inner.local_path(path)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """See `SupportsSync.sync`.

        Raises:
            UnsupportedError: The inner store cannot force anything to the disk.
        """
        inner = self.inner
        if not isinstance(inner, SupportsSync):
            raise self._lacks("syncing to the disk", "sync")
        await self._call(names.OP_HSYNC, lambda: inner.sync(path, kind=kind), "write", _REPEATABLE)

    async def close(self) -> None:
        """Closes the inner store where it is owned; takes no permit."""
        if self.owned:
            await self.inner.close()

    async def _call(self, statistic: str, call: Callable[[], Awaitable[T]], kind: Kind, repetition: _Repetition) -> T:
        # What nearly every call meets, a free permit and a good answer, takes no further coroutine: a job makes
        # hundreds of thousands.
        statistics, pacer = self.statistics, self.pacer
        monotonic = pacer.runtime.monotonic
        started = monotonic()
        if not pacer.take(kind, started):
            with statistics.timed(statistic):
                return await self._attempts(call, kind, repetition)
        statistics.count(names.STORE_IO_REQUEST)
        try:
            result = await call()
        except Exception as error:
            pacer.give_back(started, error)
            with statistics.timed(statistic, since=started):
                return await self._attempts(call, kind, repetition, failed=error)
        except BaseException as error:
            pacer.give_back(started, error)
            with statistics.timed(statistic, since=started):
                raise
        now = monotonic()
        pacer.give_back(started, None)
        statistics.done(statistic, now - started)
        return result

    async def _attempts(
        self,
        call: Callable[[], Awaitable[T]],
        kind: Kind,
        repetition: _Repetition,
        *,
        failed: Exception | None = None,
    ) -> T:
        """Makes a call, and again while that is allowed; `failed` is what a first attempt ended with."""
        first = [failed] if failed is not None else []

        async def attempt() -> T:
            if first:
                self._fail(first.pop(), repetition)
            async with self.pacer.permit(kind) as permit:
                if permit.waited_s > 0.0:
                    self.statistics.duration(names.STORE_IO_RATE_LIMITED, permit.waited_s)
                self.statistics.count(names.STORE_IO_REQUEST)
                try:
                    return await call()
                except (StoreThrottledError, StoreOutcomeUnknownError) as error:
                    self._fail(error, repetition)

        return await retry(
            attempt, policy=self.retry_policy, idempotent=repetition == _REPEATABLE, on_retry=self._again
        )

    def _fail(self, error: Exception, repetition: _Repetition) -> NoReturn:
        """Raises what a failed attempt means for a call of this kind."""
        if isinstance(error, StoreThrottledError):
            self._refused()
        elif isinstance(error, StoreOutcomeUnknownError) and repetition == _CHANGES_NOTHING:
            raise _unanswered(error) from error
        raise error

    def _refused(self) -> None:
        self.statistics.count(names.STORE_IO_THROTTLED)

    def _again(self, error: BaseException, made: int, wait_s: float) -> None:
        self.statistics.count(names.STORE_IO_RETRY)

    def _lacks(self, ability: str, operation: str) -> UnsupportedError:
        return UnsupportedError(
            f"the store {self.scheme}: has no {ability}",
            operation=operation,
            next_step="ask the store's capabilities before calling this",
        )


class PacedWriter(FileWriter):
    """A file being written, a permit for each call.

    A refused `write` or `close` is made again, so a writer that raises `StoreThrottledError` or `StoreUnavailableError`
    must be as it was before the call.
    """

    def __init__(self, store: PacedStore, inner: FileWriter) -> None:
        self._store = store
        self._inner = inner

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `FileWriter.write`."""
        await self._store._attempts(lambda: self._inner.write(data), "write", _ONCE)

    async def close(self) -> FileStatus:
        """See `FileWriter.close`."""
        return await self._store._attempts(self._inner.close, "write", _ONCE)

    async def abort(self) -> None:
        """See `FileWriter.abort`."""
        await self._store._attempts(self._inner.abort, "write", _REPEATABLE)


def _unanswered(error: StoreOutcomeUnknownError) -> StoreUnavailableError:
    """A lost answer to a question: nothing was changed, nothing is known."""
    return StoreUnavailableError(
        error.message, operation=error.operation, path=error.path, next_step=error.next_step, causes=(error,)
    )


async def _close(entries: AsyncIterator[FileStatus]) -> None:
    close = getattr(entries, "aclose", None)
    if close is not None:
        await close()


def without_retries(store: Store) -> Store:
    """The same store, limits and counts, each call sent once: for who counts attempts itself."""
    if not isinstance(store, PacedStore):
        return store
    return PacedStore(
        store.inner,
        pacer=store.pacer,
        statistics=store.statistics,
        retry_policy=RetryPolicy(attempts=1),
        owned=store.owned,
    )
