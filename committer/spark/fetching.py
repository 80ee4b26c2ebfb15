"""Passes the report of a write from Spark's Python process to its caller.

Spark returns nothing from a data source's commit, so the commit stores its report in `_temporary` under the job's
id. (`_SUCCESS` describes the last job only.) A caller that reaches the store reads the report itself; otherwise,
and with Spark Connect, a Spark job of one task does, which takes ten times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from committer.api.recover import recover
from committer.committers.opened_store import open_store
from committer.committers.results import JobReport
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    RecordError,
    StoreError,
    StoreNotFoundError,
)
from committer.flow.portal import wait_for
from committer.flow.runtime import current_runtime
from committer.layout import TEMPORARY
from committer.logs import job_logger
from committer.paths import StorePath
from committer.readable import UNDECODABLE
from committer.records.limits import LIMITS
from committer.spark.destination import look_at_destination
from committer.spark.options import WriteOptions
from committer.spark.sessions import is_connect, telling_what_workers_miss
from committer.stores.base import FileStatus, Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession


_LOG = job_logger("committer.spark")
_PREFIX: Final = ".report-"
_SUFFIX: Final = ".json"
_STALE_S: Final = 86_400.0


async def keep_report(options: WriteOptions, report: JobReport) -> None:
    """Stores the report of a committed job for `take_report`: 2 calls. A failure is logged: the job is committed."""
    destination = StorePath.of(options.path)
    async with open_store(destination, await options.resolve_storage(), options.config) as store:
        try:
            await store.make_directory(destination / TEMPORARY, parents=True)
            await store.put(_place(destination, report.job_id), msgspec.json.encode(report))
        except CommitterError as error:
            _LOG.warning("the report of job %s could not be kept: %s", report.job_id, error)


async def take_kept_report(options: WriteOptions, job_id: str) -> JobReport | None:
    """Reads and deletes the report of a job; None if there is none. About 4 calls.

    Also deletes reports that interrupted callers did not fetch within a day.
    """
    destination = StorePath.of(options.path)
    async with open_store(destination, await options.resolve_storage(), options.config) as store:
        report = await _read(store, _place(destination, job_id))
        await _remove_reports(store, destination, job_id)
    return report


async def take_report(options: WriteOptions, job_id: str) -> JobReport | None:
    """Like `take_kept_report`; falls back to `recover`, which reads `_SUCCESS`."""
    report = await take_kept_report(options, job_id)
    if report is not None:
        return report
    try:
        destination = StorePath.of(options.path)
        return await recover(
            destination, job_id, config=options.config, storage_options=await options.resolve_storage()
        )
    except (JobNotFoundError, JobStateError, RecordError):
        # The write is committed: only its report is missing.
        return None


def _place(destination: StorePath, job_id: str) -> StorePath:
    return destination / f"{TEMPORARY}/{_PREFIX}{job_id}{_SUFFIX}"


async def _read(store: Store, path: StorePath) -> JobReport | None:
    try:
        return msgspec.json.decode(await store.read(path, limit=LIMITS["success"]), type=JobReport)
    except StoreNotFoundError:
        return None
    except UNDECODABLE as error:
        raise RecordError(f"not a job report: {error}", path=path, outcome="committed") from error


async def _remove_reports(store: Store, destination: StorePath, job_id: str) -> None:
    """Deletes this job's report and stale ones, then `_temporary` if it is empty. Best effort."""
    oldest = current_runtime().now().timestamp() - _STALE_S

    def is_over(child: FileStatus) -> bool:
        name = child.path.name
        return name == f"{_PREFIX}{job_id}{_SUFFIX}" or (
            name.startswith(_PREFIX) and child.modified is not None and child.modified < oldest
        )

    try:
        for child in [child async for child in store.list(destination / TEMPORARY)]:
            if not child.is_directory and is_over(child):
                await store.delete_file(child.path)
        await store.delete_directory(destination / TEMPORARY, recursive=False)
    except StoreError:
        # Other jobs use `_temporary`, or another call of this function was faster.
        return


def _beside_spark(session: SparkSession, work: Callable[[], Coroutine[object, object, bytes | None]]) -> bytes | None:
    """Runs `work` in one Spark task, which reaches the store, and returns its result."""
    frame = session.range(0, 1, 1, 1).mapInArrow(partial(_one_result, work), "result binary")
    with telling_what_workers_miss():
        (row,) = frame.collect()
    return None if row.result is None else bytes(row.result)


def fetched_report(df: DataFrame, options: WriteOptions, job_id: str) -> JobReport | None:
    """Returns the report of a committed job; an error says that the job is committed."""
    try:
        report = None if is_connect(df) else _report_from_here(options, job_id)
        if report is not None:
            return report
        found = _beside_spark(df.sparkSession, partial(_report, options, job_id))
        return None if found is None else msgspec.json.decode(found, type=JobReport)
    except BaseException as error:
        if isinstance(error, CommitterError):
            error.outcome = "committed"
            error.next_step = f"do not write again: the data is in place; {error.next_step}"
        error.add_note(
            f"job {job_id} is committed at {options.path}, only its report could not be fetched:"
            f" {options.recover_call(job_id)} returns it"
        )
        raise


def _report_from_here(options: WriteOptions, job_id: str) -> JobReport | None:
    """Fetches the report if this process reaches the store as the committing process did."""
    try:
        return wait_for(partial(take_kept_report, options, job_id), "write")
    except (CommitterError, OSError) as error:
        _LOG.debug("the report of job %s is fetched by a Spark task: %s", job_id, error)
        return None


def _one_result(
    work: Callable[[], Coroutine[object, object, bytes | None]], batches: Iterator[RecordBatch]
) -> Iterator[RecordBatch]:
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"result": pa.array([asyncio.run(work())], pa.binary())})


async def _report(options: WriteOptions, job_id: str) -> bytes | None:
    report = await take_report(options, job_id)
    return None if report is None else msgspec.json.encode(report)


async def _used(options: WriteOptions) -> bytes | None:
    """Returns the write's committer if the destination is used."""
    found = await look_at_destination(options, "ignore")
    return (options.committer or found.committer).encode() if found.used else None


def ignored_report(session: SparkSession, options: WriteOptions) -> JobReport | None:
    """Returns the report of a write that mode ``ignore`` skips; None if the destination is empty."""
    used = _beside_spark(session, partial(_used, options))
    return None if used is None else JobReport(success=True, job_id="", committer=used.decode())
