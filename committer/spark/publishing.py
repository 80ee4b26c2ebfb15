"""Publishes on Spark's executors: each chunk of a decided job is one task of its own Spark job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from committer import sync
from committer.api.publishing import PublishAccount, PublishChunk
from committer.errors import CommitterError, UnsupportedError
from committer.logs import job_logger
from committer.options.config import CommitterConfig
from committer.options.references import Found, is_reference
from committer.options.storage import OptionTable, check_text
from committer.paths import StorePath
from committer.stores.registry import options_of

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = job_logger("committer.spark")

# A thread waits for each chunk's Spark job.
_MOST_AT_ONCE: Final = 256


class SparkPool:
    """Pool of a classic session's executors that publish for a driver: ``job.commit(publish_with=pool)``.

    Spark repeats a task whose executor was lost; if Spark gives up, the driver publishes the chunk. Creating the
    pool and closing it, which cancels running tasks, block: not for an event loop. `storage` are the storage options
    of the workers, which resolve their references.
    """

    def __init__(self, context: SparkContext, storage: Mapping[str, object]) -> None:
        self._context: Any = context
        self._storage = storage
        self._slots = self._find_slots()
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="committer-publish")
        self._groups: set[str] = set()

    def workers(self) -> int:
        """Number of task slots of the executors at the last check."""
        return min(self._slots, _MOST_AT_ONCE)

    async def publish(self, chunk: PublishChunk) -> PublishAccount:
        """Publishes a chunk in one task."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, chunk)

    def _run(self, chunk: PublishChunk) -> PublishAccount:
        context, spec = self._context, chunk.spec
        group = f"committer-publish-{spec.job_id}"
        self._groups.add(group)
        # Spark's job group belongs to this thread only.
        what = f"{chunk.files:,} files (chunk {chunk.number}) of job {spec.job_id} to {spec.destination}"
        context.setJobGroup(group, f"committer publishes {what}")
        [account] = context.parallelize([chunk], 1).map(partial(publish_in_task, self._storage)).collect()
        self._slots = self._find_slots()
        if not isinstance(account, PublishAccount):
            raise TypeError(f"a task of Spark's returned a {type(account).__name__}")
        return account

    def _find_slots(self) -> int:
        context = self._context
        conf = context.getConf()
        if conf.get("spark.default.parallelism") is None:
            # Spark's default is the cores of the present executors.
            return max(1, int(context.defaultParallelism))
        executors = int(context._jsc.sc().getExecutorMemoryStatus().size())
        others = max(1, executors - 1)  # the driver is one of them
        return max(1, others * int(conf.get("spark.executor.cores", "1")))

    def close(self) -> None:
        """Cancels running tasks, which is harmless."""
        for group in self._groups:
            try:
                self._context.cancelJobGroup(group)
            except Exception as error:  # such as a stopped session
                _LOG.debug("jobs of %s were not cancelled: %s", group, error)
        self._threads.shutdown(wait=False, cancel_futures=True)


def publish_in_task(storage: Mapping[str, object], chunk: PublishChunk) -> PublishAccount:
    """Publishes a chunk inside a Spark task, where references are resolved."""
    found = {key: Found.by(value, key) if isinstance(value, str) else value for key, value in storage.items()}
    return sync.publish_chunk(chunk, found or None)


def sendable_storage(destination: StorePath, options: Mapping[str, object]) -> dict[str, object]:
    """Selects the storage options that may be sent to workers: references and values that are no secrets.

    Without the others, workers use the store's default credentials; if these fail, the driver publishes.
    """
    table = options_of(destination.scheme)
    texts = {key: value.reference if isinstance(value, Found) else value for key, value in options.items()}
    return {key: text for key, text in texts.items() if _may_be_sent(table, key, text)}


def _may_be_sent(table: OptionTable | None, key: str, value: object) -> bool:
    if isinstance(value, bool | int | float):
        return True
    # A URL may hold a password or a signature.
    if not isinstance(value, str) or (not is_reference(value) and not {"@", "?"}.isdisjoint(value)):
        return False
    try:
        check_text(table, key, value, shown=key, why="Spark keeps what its tasks are sent")
    except CommitterError:
        return False
    return True


def refuse_without_executors(config: CommitterConfig, where: str, operation: str) -> None:
    """Refuses ``publish="spark"`` if the committing process cannot start Spark jobs."""
    if config.publish == "spark":
        raise UnsupportedError(
            f"publish='spark' cannot be had {where}: the process that commits cannot start jobs of Spark's",
            operation=operation,
            next_step="write in a classic session of committer.spark.configure, or by foreach_partition in a classic "
            "session; or leave publish out",
        )
