"""Batch writer of the data source, for Spark's data source API.

Spark calls `CommitterWriter.write` in Python workers of executors, and `commit` or `abort` in a process beside the
driver; the pickled writer (job spec, references to options, no secrets) and one `TaskCommitMessage` per partition
connect them. Exactly the attempts that the messages name win (``delivery="message"``). Spark calls `abort` also
after a `commit` that raised: the job's persisted decision then limits what abort may delete.
"""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from committer.advice import blocking, to_blocking_callers
from committer.api.job_opening import attach_job, open_job
from committer.api.task import open_task
from committer.committers.results import JobReport
from committer.errors import JobDecidedError, JobNotFoundError, MultipleError
from committer.flow.workers import run_workers
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit
from committer.spark.carried_errors import aborted_by_spark, to_caller
from committer.spark.commit_log import log_event
from committer.spark.destination import look_at_destination
from committer.spark.fetching import keep_report
from committer.spark.formats.base import Sink
from committer.spark.modes import SaveMode, commit_config, target_exists
from committer.spark.options import WriteOptions
from committer.spark.output import FileNames, TaskOutput
from committer.spark.publishing import refuse_without_executors
from committer.spark.schema import FilePlan
from committer.spark.spark_task import TaskCommitMessage, current_task, encoded, task_commits
from committer.spec import JobSpec

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from pyarrow import RecordBatch

    from committer.api.task import TaskAttempt


SMALL_BYTES: Final = 1 << 20
"""Files up to this size are written in groups; a larger file holds back as much memory while it is written."""
GROUP_FILES: Final = 64
GROUP_BYTES: Final = 4 << 20


class SmallFiles:
    """Opener of a task attempt's files that writes small files in groups; a context manager.

    A hand-over between the encoding thread and the loop's thread takes 0.2 ms, and a file needs three (open,
    write, close); Parquet encodes a file of a hundred rows in 0.05 ms. So files up to `small_bytes` are kept in
    memory and handed over in groups. Memory: one group being filled and one being written, each at most
    `group_bytes` plus a file.

    A file is part of the attempt once its group is written, at the latest at the end of the block. An error
    discards files that are not written yet.
    """

    def __init__(
        self,
        portal: BlockingPortal,
        attempt: TaskAttempt,
        *,
        small_bytes: int = SMALL_BYTES,
        group_files: int = GROUP_FILES,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self._portal = portal
        self._attempt = attempt
        self._small_bytes = small_bytes
        self._group_files = group_files
        self._group_bytes = group_bytes
        self._group: list[tuple[str, bytes]] = []
        self._bytes = 0
        self._writing: Future[None] | None = None

    def open(self, name: str) -> SmallFile:
        """Returns a file object for pyarrow. The store's file is opened only when there are bytes to write."""
        return SmallFile(name, self._small_bytes, self._add, self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._hand_over()
            self._wait()
            return
        self._group.clear()
        if self._writing is not None:
            # Its calls must end before the attempt is aborted.
            self._writing.cancel()
            wait([self._writing])

    def _open(self, name: str) -> io.IOBase:
        return self._portal.call(self._attempt.open_blocking, name)

    def _add(self, name: str, data: bytes) -> None:
        self._group.append((name, data))
        self._bytes += len(data)
        if len(self._group) >= self._group_files or self._bytes >= self._group_bytes:
            self._hand_over()

    def _hand_over(self) -> None:
        self._wait()
        group, self._group, self._bytes = self._group, [], 0
        if group:
            self._writing = self._portal.start_task_soon(_write_all, self._attempt, group)

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                writing.result()
            except BaseException:
                # An interrupted wait is repeated on leaving the block.
                self._writing = writing
                raise


class SmallFile(Sink):
    """File kept in memory; `begin` opens it on the store once it exceeds `limit` bytes, else `add` receives it at
    the end.
    """

    def __init__(
        self, name: str, limit: int, add: Callable[[str, bytes], None], begin: Callable[[str], io.IOBase]
    ) -> None:
        super().__init__()
        self._name = name
        self._limit = limit
        self._add = add
        self._begin = begin
        self._kept = io.BytesIO()
        self._file: Any = None

    def _take(self, data: memoryview) -> None:
        if self._file is None:
            if self.tell() + len(data) <= self._limit:
                self._kept.write(data)
                return
            self._file = self._begin(self._name)
            self._file.write(self._kept.getbuffer())
            self._kept = io.BytesIO()
        self._file.write(data)

    def close(self) -> None:
        """Finishes the file; idempotent."""
        if self.closed:
            return
        try:
            if self._file is not None:
                self._file.close()
            else:
                self._add(self._name, self._kept.getvalue())
        finally:
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            if self._file is not None:
                self._file.__exit__(kind, error, trace)
        finally:
            super().close()

    def __del__(self) -> None:
        # IOBase would close, and so finish, an incomplete file.
        if not self.closed:
            super().close()


async def _write_all(attempt: TaskAttempt, files: list[tuple[str, bytes]]) -> None:
    async def write(file: tuple[str, bytes]) -> None:
        name, data = file
        async with attempt.open(name) as opened:
            await opened.write(data)

    try:
        # All at once: the store combines calls that wait together, and its own limits bound them.
        await run_workers(files, write, workers=len(files), operation="write")
    except MultipleError as error:
        # A vanished job or a full disk fails all files alike: the first error stands for all.
        raise error.causes[0] from error


_LOG = job_logger("committer.spark")

ROWS_WRITTEN: Final = "committer_rows_written"
"""Statistic of the report and of `_SUCCESS`: rows of the winning tasks."""


class CommitterWriter(DataSourceArrowWriter):
    """Writer of one job that is set up; pickled to every task, and for commit or abort."""

    def __init__(self, options: WriteOptions, plan: FilePlan, spec: JobSpec) -> None:
        self.options = options
        self.plan = plan
        self.spec = spec

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommitMessage:
        """Writes and commits one task attempt; deletes its files on an error."""
        with to_caller(self.options.carry_errors):
            return TaskCommitMessage(self._written(iterator))

    def _written(self, iterator: Iterator[RecordBatch]) -> bytes:
        task, attempt = current_task("write")
        names = FileNames(self.spec.job_id, task, self.options.file_format.suffix)
        storage = self.options.storage_options()
        # The loop runs in another thread while this one, to which Spark's iterator belongs, waits for rows.
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(
                open_task(self.spec, task=task, attempt=attempt, storage_options=storage)
            ) as handle,
        ):
            with SmallFiles(portal, handle) as files:
                rows = TaskOutput(
                    self.plan,
                    self.options.file_format,
                    names,
                    files.open,
                    max_records_per_file=self.options.max_records_per_file,
                ).write(iterator)
            portal.call(handle.count, ROWS_WRITTEN, rows)
        return encoded(handle.task_commit)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the job with exactly the attempts that the messages name."""
        with to_caller(self.options.carry_errors):
            commits = task_commits(messages)
            report = asyncio.run(_commit(self.spec, self.options, commits))
            _LOG.info(
                "job %s committed %d files, %d bytes to %s in %.1f s",
                report.job_id,
                report.files_committed,
                report.bytes_committed,
                self.options.path,
                report.duration_s,
            )
            if self.options.keep_report:
                asyncio.run(keep_report(self.options, report))

    @to_blocking_callers()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Aborts the job; if it is decided to commit, deletes nothing and logs the next step."""
        try:
            asyncio.run(_abort(self.spec, self.options))
        except JobNotFoundError:
            _LOG.info("job %s is gone already, there is nothing to abort", self.spec.job_id)
        except JobDecidedError as error:
            error.next_step = blocking(error.next_step)
            _LOG.warning("%s", error)


class IgnoringWriter(DataSourceArrowWriter):
    """Writer for mode ``ignore`` at a destination that holds data: tasks write nothing."""

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Reads no row."""
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing."""


async def set_up(options: WriteOptions, mode: SaveMode, plan: FilePlan) -> CommitterWriter | IgnoringWriter:
    """Checks the destination and opens the job of a write; costs the calls of `look_at_root` and `open_job`."""
    refuse_without_executors(options.config, "through the data source", "write")
    found = await look_at_destination(options, mode)
    if found.used and mode == "ignore":
        _LOG.info("%s holds data, and the mode is ignore: nothing is written", options.path)
        return IgnoringWriter()
    if found.used and mode == "error":
        raise target_exists(options.path)
    config = commit_config(
        options.config, mode, partition_by=options.partition_by, overwrite_mode=options.overwrite_mode, used=found.used
    )
    job = await open_job(
        options.path,
        job_id=options.job_id or str(uuid.uuid4()),
        committer=options.committer,
        delivery="message",
        config=config,
        storage_options=await options.resolve_storage(),
    )
    spec = job.spec
    await job.close()
    return CommitterWriter(options, plan, spec)


async def _commit(spec: JobSpec, options: WriteOptions, commits: list[TaskCommit]) -> JobReport:
    async with attach_job(spec, storage_options=await options.resolve_storage(), listeners=[log_event]) as job:
        with aborted_by_spark("write again"):
            return await job.commit(task_commits=commits, tasks=len(commits))


async def _abort(spec: JobSpec, options: WriteOptions) -> None:
    async with attach_job(spec, storage_options=await options.resolve_storage(), listeners=[log_event]) as job:
        await job.abort()
