"""How `committer.spark.write` learns what the commit, in a process of Spark's, came to.

Spark brings nothing back from a data source's commit, so the commit leaves its report beside the jobs, under the job's
id. (`_SUCCESS` would not do: it speaks of the last job that committed there.) In a classic session the caller's process
stands on the machine that committed and takes it away. Through Connect the caller may not be able to reach the store:
a Spark task does it, which takes ten times as long.
"""

from __future__ import annotations

from typing import Final

import msgspec

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
from committer.flow.runtime import current_runtime
from committer.layout import TEMPORARY
from committer.logs import job_logger
from committer.operations import recover
from committer.paths import StorePath
from committer.records.limits import LIMITS
from committer.spark.options import WriteOptions
from committer.stores.base import FileStatus, Store
from committer.undecodable import UNDECODABLE

_LOG = job_logger("committer.spark")
_PREFIX: Final = ".report-"
_SUFFIX: Final = ".json"
_STALE_S: Final = 86_400.0


async def keep_report(options: WriteOptions, report: JobReport) -> None:
    """Leaves the report of a committed job for `take_report`: 2 calls. A failure is logged, the job is committed."""
    destination = StorePath.of(options.path)
    store = await open_store(destination, await options.resolve_storage(), options.config)
    try:
        await store.make_directory(destination / TEMPORARY, parents=True)
        await store.put(_place(destination, report.job_id), msgspec.json.encode(report))
    except CommitterError as error:
        _LOG.warning("the report of job %s could not be kept: %s", report.job_id, error)
    finally:
        await store.close()


async def take_kept_report(options: WriteOptions, job_id: str) -> JobReport | None:
    """Takes the report of a job away; None when there is none. About 4 calls.

    Reports that no caller fetched in a day, because it was interrupted, are removed on the way.

    Raises:
        StoreError: It is there and cannot be read.
    """
    destination = StorePath.of(options.path)
    store = await open_store(destination, await options.resolve_storage(), options.config)
    try:
        report = await _read(store, _place(destination, job_id))
        await _remove_reports(store, destination, job_id)
    finally:
        await store.close()
    return report


async def take_report(options: WriteOptions, job_id: str) -> JobReport | None:
    """As `take_kept_report`; where it is gone, what `_SUCCESS` says of that job.

    Raises:
        StoreError: It is there and cannot be read.
    """
    report = await take_kept_report(options, job_id)
    if report is not None:
        return report
    try:
        destination = StorePath.of(options.path)
        return await recover(
            destination, job_id, config=options.config, storage_options=await options.resolve_storage()
        )
    except (JobNotFoundError, JobStateError):
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
    """Removes this job's report and stale ones, then `_temporary` if that leaves nothing. A courtesy."""
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
        # Other jobs live there, or another call of this kind was faster.
        return
