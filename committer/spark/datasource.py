"""The Python data source ``committer``: Spark's write protocol on one side, a job of this engine on the other.

Spark calls `CommitterDataSource.writer` in a process of its own on the driver's side, `CommitterWriter.write` in the
executors' Python workers, `commit` or `abort` in a third process. What connects them is the pickled writer (job spec,
references to options, no secrets) and one `TaskCommitMessage` a partition.

- A task's number is its partition; its attempt is the low 31 bits of ``taskAttemptId``. Spark's ``attemptNumber``
  starts again at 0 when a stage is resubmitted, so it would not tell two attempts apart.
- Exactly the attempts that Spark's messages name win (``delivery="message"``): what a speculative or lost attempt wrote
  lies in its own directory and goes with the job's.
- Spark calls `abort` also after a `commit` that raised. The job's persisted decision says what abort may still do.
- Nothing that stands at the destination is touched before job commit, whatever the mode.
"""

from __future__ import annotations

import asyncio
import importlib.util
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from anyio.from_thread import start_blocking_portal
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from committer.advice import blocking, to_blocking_callers
from committer.committers.results import JobReport
from committer.errors import (
    COMMIT_AGAIN,
    CommitterError,
    JobDecidedError,
    JobNotFoundError,
    RecordError,
    TargetExistsError,
    TaskMissingError,
    UnsupportedError,
)
from committer.events import JobEvent
from committer.events.logs import job_logger
from committer.job import attach_job, open_job
from committer.records.task_commit import TaskCommit
from committer.spark import missing_package
from committer.spark.destination import look_at_destination
from committer.spark.kept_report import keep_report
from committer.spark.modes import SaveMode, commit_config, mode_of_write
from committer.spark.options import WriteOptions, parse_options
from committer.spark.output import FileNames, TaskOutput
from committer.spark.schema import FilePlan, plan_files
from committer.spark.small_files import SmallFiles
from committer.spec import JobSpec
from committer.task import open_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from committer.spark.streaming import CommitterStreamWriter

_LOG = job_logger("committer.spark")
_ATTEMPT_BITS = 0x7FFFFFFF

SMALL_MESSAGE = 3 * 1024
ROWS_WRITTEN = "committer_rows_written"
"""Among the statistics of the report and of `_SUCCESS`: rows of the tasks that won."""


class CommitterDataSource(DataSource):
    """``df.write.format("committer")``. Writes only: the result is plain files that ``spark.read`` reads."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "committer"

    def schema(self) -> StructType:
        """Refuses to read.

        Raises:
            UnsupportedError: Always.
        """
        raise self._reads_nothing()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Refuses to read, as `schema` does."""
        raise self._reads_nothing()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Refuses to read, as `schema` does."""
        raise self._reads_nothing()

    def _reads_nothing(self) -> UnsupportedError:
        given = {key.lower(): value for key, value in self.options.items()}
        kind, path = given.get("format", "parquet"), given.get("path", "...")
        return UnsupportedError(
            'format("committer") only writes: what it leaves are plain files',
            operation="read",
            path=path,
            next_step=f'read them by their own format: spark.read.format("{kind}").load("{path}"); a stream with'
            f' spark.readStream.format("{kind}")',
        )

    @to_blocking_callers()
    def writer(self, schema: StructType, overwrite: bool) -> CommitterWriter | IgnoringWriter:
        """Checks everything that can be checked without data, then sets the job up.

        Args:
            schema: All columns, partition columns too.
            overwrite: Whether Spark's mode is ``overwrite``; the option ``existing`` says more.

        Raises:
            ConfigurationError: An option, or the schema, cannot be honoured. Nothing was done.
            UnsupportedError: The same, for what may come; or a table format owns the destination.
            TargetExistsError: The destination holds data, and the mode is ``error``.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise missing_package("pyarrow")
        options = parse_options(self.options)
        mode = mode_of_write(overwrite, options.existing)
        plan = plan_files(schema, options.partition_by, options.file_format, options.case_sensitive)
        return asyncio.run(_set_up(options, mode, plan))

    def streamWriter(self, schema: StructType, overwrite: bool) -> CommitterStreamWriter:  # noqa: N802
        """Checks everything that can be checked without data; see `committer.spark.streaming`.

        Raises:
            ConfigurationError: An option, or the schema, cannot be honoured.
            UnsupportedError: The output mode is not append.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise missing_package("pyarrow")
        from committer.spark.streaming import stream_writer

        return stream_writer(self.options, schema, overwrite)


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """What a task returns to Spark.

    Attributes:
        data: An encoded `TaskCommit`, at most 8 KiB.
    """

    data: bytes


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

    @to_blocking_callers()
    def write(self, iterator: Iterator[RecordBatch]) -> TaskCommitMessage:
        """Writes one attempt of one task and commits it. On an error the attempt's files are deleted.

        Raises:
            JobNotFoundError: The job is gone: it ended, and this attempt is not one of its winners.
        """
        context = TaskContext.get()
        if context is None:
            raise UnsupportedError("write() was called outside a Spark task", operation="write")
        task, attempt = context.partitionId(), context.taskAttemptId() & _ATTEMPT_BITS
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
        return TaskCommitMessage(encoded(handle.task_commit))

    @to_blocking_callers()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the job with exactly the attempts that the messages name.

        Raises:
            TaskMissingError: A task has no message, or two.
            RecordError: A message is not one of this job.
        """
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


def encoded(commit: TaskCommit) -> bytes:
    """A message as Spark takes it to the driver: at most `SMALL_MESSAGE` bytes where it can be.

    The record inside only saves job commit a call, and ``spark.driver.maxResultSize`` counts every byte, of messages
    and of what Spark sends with each, before the first one is looked at.
    """
    data = commit.encode()
    if len(data) > SMALL_MESSAGE and commit.inline is not None:
        return msgspec.structs.replace(commit, inline=None).encode()
    return data


def task_commits(messages: Sequence[WriterCommitMessage | None], job_id: str) -> list[TaskCommit]:
    """Decodes the messages of a write: one a task, all of the same job.

    Raises:
        TaskMissingError: A task has no message, or two.
        RecordError: A message is not one of this job.
    """
    commits: dict[int, TaskCommit] = {}
    for position, message in enumerate(messages):
        if message is None:
            raise TaskMissingError(
                f"Spark asks to commit, but partition {position} of {len(messages)} has no task commit message",
                operation="commit_job",
            )
        if not isinstance(message, TaskCommitMessage):
            raise RecordError(
                f"partition {position} returned a {type(message).__name__}, not a task commit message",
                operation="commit_job",
            )
        commit = TaskCommit.decode(message.data)
        if commit.job_id != job_id:
            raise RecordError(
                f"partition {position} returned a message of job {commit.job_id}, and this is job {job_id}",
                field="job_id",
                operation="commit_job",
            )
        if commit.task in commits:
            raise TaskMissingError(
                f"task {commit.task} has two task commit messages, of attempts {commits[commit.task].attempt} and"
                f" {commit.attempt}",
                operation="commit_job",
            )
        if commit.task >= len(messages):
            raise TaskMissingError(
                f"there is a message of task {commit.task}, but the job has {len(messages)} tasks",
                operation="commit_job",
            )
        commits[commit.task] = commit
    return list(commits.values())


async def _set_up(options: WriteOptions, mode: SaveMode, plan: FilePlan) -> CommitterWriter | IgnoringWriter:
    found = await look_at_destination(options, mode)
    if found.used and mode == "ignore":
        _LOG.info("%s holds data, and the mode is ignore: nothing is written", options.path)
        return IgnoringWriter()
    if found.used and mode == "error":
        raise TargetExistsError(
            "the destination holds data already, and the mode is error",
            operation="save",
            path=options.path,
            next_step="use append or overwrite as the mode (existing=... of the data source), or another destination",
        )
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
    job = await attach_job(spec, storage_options=await options.resolve_storage(), listeners=[_log_event])
    try:
        return await job.commit(task_commits=commits, tasks=len(commits))
    except CommitterError as error:
        # Spark aborts the job of a write that could not be committed.
        error.next_step = error.next_step.replace(COMMIT_AGAIN, "write again")
        raise
    finally:
        await job.close()


async def _abort(spec: JobSpec, options: WriteOptions) -> None:
    job = await attach_job(spec, storage_options=await options.resolve_storage(), listeners=[_log_event])
    try:
        await job.abort()
    finally:
        await job.close()


def _log_event(event: JobEvent) -> None:
    # The process is not the user's: its log is the only way to be heard before `_SUCCESS` tells the rest.
    if event.kind in {"heartbeat", "message"}:
        _LOG.info(
            "job %s: %s %d of %s, %d bytes, after %.1f s %s",
            event.job_id,
            event.stage,
            event.done,
            "?" if event.total is None else event.total,
            event.bytes_done,
            event.at_s,
            event.message,
        )
