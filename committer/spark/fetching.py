"""What the caller of a write learns from where the store can be reached: the report, or that nothing is to be written.

Spark brings nothing back from a data source's commit. In a classic session the caller's process fetches the report
itself (`committer.spark.kept_report`) where it reaches the store; else, and through Connect, a Spark job of one task
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from committer.committers.results import JobReport
from committer.errors import CommitterError
from committer.flow.portal import wait_for
from committer.logs import job_logger
from committer.spark.destination import look_at_destination
from committer.spark.kept_report import take_kept_report, take_report
from committer.spark.options import WriteOptions
from committer.spark.sessions import is_connect, missing_in_worker

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

_LOG = job_logger("committer.spark")


def _beside_spark(session: SparkSession, work: Callable[[], Coroutine[object, object, bytes | None]]) -> bytes | None:
    """Runs `work` in one Spark task, where the store can be reached, and brings its result back."""
    frame = session.range(0, 1, 1, 1).mapInArrow(partial(_one_result, work), "result binary")
    try:
        (row,) = frame.collect()
    except Exception as error:
        missing = missing_in_worker(error)
        if missing is None:
            raise
        raise missing from error
    return None if row.result is None else bytes(row.result)


def fetched_report(df: DataFrame, options: WriteOptions, job_id: str) -> JobReport | None:
    """The report of a job that committed; whatever keeps it from coming, the error says that it did."""
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
    """The report, if this process reaches the store as the one that committed did, on the same machine."""
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
    """The committer that a write to this destination would have, if the destination is used."""
    found = await look_at_destination(options, "ignore")
    return (options.committer or found.committer).encode() if found.used else None


def ignored_report(session: SparkSession, options: WriteOptions) -> JobReport | None:
    """The report of a write that is to be ignored; None when nothing is there."""
    used = _beside_spark(session, partial(_used, options))
    return None if used is None else JobReport(success=True, job_id="", committer=used.decode())
