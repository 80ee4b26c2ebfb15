"""Writer of a batch write, as Spark's data source API sees it.

Rows are encoded in the thread that Spark's iterator belongs to, files are written by the loop's. Each hand-over costs
two switches of threads, 0.2 ms, and a file of its own needs three: to be opened, written, closed. Parquet needs 0.05 ms
for a file of a hundred rows. So a file that ends before it has `SMALL_BYTES` is kept in memory, and 64 of them
go over at once, where the store takes their calls together. Meanwhile the next ones are encoded.

Spark calls `CommitterWriter.write` in the executors' Python workers, `commit` or `abort` in a process of its own beside
the driver. What connects them is the pickled writer (job spec, references to options, no secrets) and one
`TaskCommitMessage` a partition.

- Exactly the attempts that Spark's messages name win (``delivery="message"``): what a speculative or lost attempt wrote
  lies in its own directory and goes with the job's.
- Spark calls `abort` also after a `commit` that raised. The job's persisted decision says what abort may still do.
- Nothing that stands at the destination is touched before job commit, whatever the mode.
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

from committer.advice import COMMIT_AGAIN, blocking, to_blocking_callers
from committer.api.job_opening import attach_job, open_job
from committer.api.opening import open_task
from committer.committers.failures import without_the_end
from committer.committers.results import JobReport
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError, MultipleError
from committer.flow.workers import run_workers
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit
from committer.spark.carried_errors import to_caller
from committer.spark.commit_log import log_event
from committer.spark.destination import look_at_destination
from committer.spark.fetching import keep_report
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
"""What a file may have and still be small: as much as one that is written at once holds back."""
GROUP_FILES: Final = 64
GROUP_BYTES: Final = 4 << 20


class SmallFiles:
    """Opens the files of one task attempt, and writes the small ones in groups; used as a context manager.

    Memory: one group that is being filled and one that is being written, at most `group_bytes` and a file each.

    A file is part of the attempt once its group is written: at the latest when the block is left. Leaving it with an
    error gives up what is not written yet.

    Args:
        portal: Where the attempt's loop runs.
        attempt: What the files become part of.
        small_bytes: Files that grow beyond it are written as they come.
        group_files: How many files make a group.
        group_bytes: How many bytes make one.
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
        """A file object for pyarrow and the like. Nothing is opened on the store before it has something to write."""
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
            # What it began must have ended before the attempt is aborted.
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
                # Interrupted, it must be waited for by the code that leaves the block.
                self._writing = writing
                raise


class SmallFile(io.RawIOBase):
    """A file being written: in memory, and on the store once it has grown.

    Args:
        name: Its name, relative to the destination.
        limit: How many bytes are kept in memory.
        add: Takes the name and bytes of one that ended small.
        begin: Opens it on the store.
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
        self._position = 0

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: object, /) -> int:
        """Appends a buffer."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._position += len(view)
        if self._file is None:
            if self._position <= self._limit:
                return self._kept.write(view)
            self._file = self._begin(self._name)
            self._file.write(self._kept.getbuffer())
            self._kept = io.BytesIO()
        self._file.write(view)
        return len(view)

    def close(self) -> None:
        """Finishes the file. A second call does nothing."""
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
        # IOBase would close, and so finish, a file that was forgotten half way.
        if not self.closed:
            super().close()


async def _write_all(attempt: TaskAttempt, files: list[tuple[str, bytes]]) -> None:
    async def write(file: tuple[str, bytes]) -> None:
        name, data = file
        async with attempt.open(name) as opened:
            await opened.write(data)

    try:
        # All at once: calls that wait together go to the store together, and its limits bound them.
        await run_workers(files, write, workers=len(files), operation="write")
    except MultipleError as error:
        # A vanished job, or a full disk, fails all of them alike: the first tells what each would have told alone.
        raise error.causes[0] from error


_LOG = job_logger("committer.spark")

ROWS_WRITTEN: Final = "committer_rows_written"
"""Among the statistics of the report and of `_SUCCESS`: rows of the tasks that won."""


class CommitterWriter(DataSourceArrowWriter):
    """One job, as Spark sees it. Pickled into every task, and for commit or abort.

    Args:
        options: The write's options.
        plan: What goes into directory names and what into files.
        spec: The job, which is set up.
    """

    def __init__(self, options: WriteOptions, plan: FilePlan, spec: JobSpec) -> None:
        self.options = options
        self.plan = plan
        self.spec = spec

    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommitMessage:
        """Writes one attempt of one task and commits it. On an error the attempt's files are deleted.

        Raises:
            JobNotFoundError: The job is gone: it ended, and this attempt is not one of its winners.
        """
        with to_caller(self.options.carry_errors):
            return TaskCommitMessage(self._written(iterator))

    def _written(self, iterator: Iterator[RecordBatch]) -> bytes:
        """The message of one attempt of one task, which committed."""
        task, attempt = current_task("write")
        names = FileNames(self.spec.job_id, task, self.options.file_format.suffix)
        storage = self.options.storage_options()
        # The loop runs in a thread of its own for as long as this task; this one, to which Spark's iterator belongs, is
        # free to wait for rows.
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
        """Commits the job with exactly the attempts that the messages name.

        Raises:
            TaskMissingError: A task has no message, or two.
            RecordError: A message is not one of this job.
        """
        with to_caller(self.options.carry_errors):
            commits = task_commits(messages, self.spec.job_id)
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
        """Aborts the job; where the decision to commit it stands, nothing is deleted and the log says what to do."""
        try:
            asyncio.run(_abort(self.spec, self.options))
        except JobNotFoundError:
            _LOG.info("job %s is gone already, there is nothing to abort", self.spec.job_id)
        except JobDecidedError as error:
            error.next_step = blocking(error.next_step)
            _LOG.warning("%s", error)


class IgnoringWriter(DataSourceArrowWriter):
    """What mode ``ignore`` makes of a destination that holds data: tasks run, and write nothing."""

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Takes no row."""
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing."""


async def set_up(options: WriteOptions, mode: SaveMode, plan: FilePlan) -> CommitterWriter | IgnoringWriter:
    """Inspects the destination and opens the job of a write: the calls of `look_at_root` and of `open_job`.

    Raises:
        TargetExistsError: The destination holds data, and the mode is ``error``.
        ConfigurationError: The mode cannot be honoured there.
    """
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
    job = await attach_job(spec, storage_options=await options.resolve_storage(), listeners=[log_event])
    try:
        return await job.commit(task_commits=commits, tasks=len(commits))
    except CommitterError as error:
        # Spark aborts the job of a write that could not be committed.
        error.next_step = without_the_end(error.next_step).replace(COMMIT_AGAIN, "write again")
        raise
    finally:
        await job.close()


async def _abort(spec: JobSpec, options: WriteOptions) -> None:
    job = await attach_job(spec, storage_options=await options.resolve_storage(), listeners=[log_event])
    try:
        await job.abort()
    finally:
        await job.close()
