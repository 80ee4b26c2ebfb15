"""Publishing by worker processes: the function that they call, and the pool as a driver sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from threading import Lock
from typing import Final, Self

from committer.api import publishing as engine
from committer.errors import ConfigurationError
from committer.flow.runtime import current_runtime
from committer.layout import check_number
from committer.logs import job_logger
from committer.records.publish_chunk import PublishAccount, PublishChunk
from committer.sync.blocking import blocking

_log = job_logger("committer.job")

_TRIES: Final = 3


publish_chunk: Final = blocking(engine.publish_chunk)


class ExecutorPool:
    """Workers of a `concurrent.futures` executor that publish for a driver: ``job.commit(publish_with=pool)``.

    If a process of the executor dies, a new executor is created, and its unfinished chunks are sent again.
    Leaving its block shuts the executor down.

    Args:
        make: Creates the executor: processes of this machine, or anything with ``submit`` that returns a
            `concurrent.futures.Future` (``client.get_executor`` of Dask). Threads gain nothing.
        workers: Number of chunks that it works on at once.
        storage_options: Options of the store for its workers. They are sent to them, so give secrets by
            reference (``env:NAME``, ``file:PATH``).
    """

    def __init__(
        self, make: Callable[[], Executor], workers: int, *, storage_options: Mapping[str, object] | None = None
    ) -> None:
        if not callable(make):
            raise ConfigurationError(
                f"make is called for the executor, and again where its processes die: it is no {type(make).__name__}",
                operation="publish_with",
                next_step="give what makes one: ExecutorPool(lambda: ProcessPoolExecutor(4), 4)",
            )
        if check_number(workers, "workers", "publish_with") < 1:
            raise ConfigurationError(
                f"workers must be at least 1, not {workers}",
                operation="publish_with",
                next_step="give the number of processes that the executor has",
            )
        self._make = make
        self._workers = workers
        self._storage_options = dict(storage_options) if storage_options is not None else None
        self._executor: Executor | None = None
        self._lock = Lock()

    def workers(self) -> int:
        """Returns the number of workers that was given."""
        return self._workers

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """Submits the chunk; again if the executor broke."""
        for _try in range(_TRIES - 1):
            try:
                return await self._publish_once(chunk)
            except BrokenExecutor as error:
                _log.warning("a worker that publishes for job %s died: %s", chunk.spec.job_id, error)
        return await self._publish_once(chunk)

    async def _publish_once(self, chunk: PublishChunk) -> PublishAccount:
        # An executor may start processes when it gets work.
        executor, future = await current_runtime().run_blocking(lambda: self._submitted(chunk))
        try:
            return await asyncio.wrap_future(future)
        except BrokenExecutor:
            self._drop(executor)
            raise

    def _submitted(self, chunk: PublishChunk) -> tuple[Executor, Future[PublishAccount]]:
        with self._lock:
            if self._executor is None:
                self._executor = self._make()
            executor = self._executor
        try:
            return executor, self.submit(executor, chunk)
        except BrokenExecutor:
            self._drop(executor)
            raise

    def submit(self, executor: Executor, chunk: PublishChunk) -> Future[PublishAccount]:
        """Submits a call of `publish_chunk` to the executor; runs in a thread, since this may block."""
        return executor.submit(publish_chunk, chunk, self._storage_options)

    def _drop(self, executor: Executor) -> None:
        """Drops a broken executor, once for all chunks that were under way."""
        with self._lock:
            if self._executor is not executor:
                return
            self._executor = None
        executor.shutdown(wait=False)

    def close(self) -> None:
        """Shuts the executor down after its running calls."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()
