"""The writer of a batch write: one job, as Spark sees it.

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
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from anyio.from_thread import start_blocking_portal
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from committer.advice import COMMIT_AGAIN, blocking, to_blocking_callers
from committer.committers.refused_output import without_the_end
from committer.committers.results import JobReport
from committer.errors import CommitterError, JobDecidedError, JobNotFoundError
from committer.job_opening import attach_job, open_job
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit
from committer.spark.carried_errors import to_caller
from committer.spark.commit_log import log_event
from committer.spark.destination import look_at_destination
from committer.spark.kept_report import keep_report
from committer.spark.messages import TaskCommitMessage, encoded, task_commits
from committer.spark.modes import SaveMode, commit_config, target_exists
from committer.spark.options import WriteOptions
from committer.spark.output import FileNames, TaskOutput
from committer.spark.publishing import refuse_without_executors
from committer.spark.schema import FilePlan
from committer.spark.small_files import SmallFiles
from committer.spark.spark_task import current_task
from committer.spec import JobSpec
from committer.task_opening import open_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch

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
