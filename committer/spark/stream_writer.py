"""Stream writer of the data source: each micro-batch is one job, committed exactly once.

    df.writeStream.format("committer").option("checkpointLocation", ...).start("file:///data/events")

Spark passes the query's id only to tasks (as local properties), and the batch's number also to `commit` and
`abort`. So the first task of a batch sets its job up, the others join it, and messages carry the query's id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from committer.advice import to_blocking_callers
from committer.api.job_opening import attach_job
from committer.api.recover import recover
from committer.committers.results import JobReport
from committer.errors import UnsupportedError
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit
from committer.spark.batch_writer import CommitterWriter
from committer.spark.carried_errors import aborted_by_spark
from committer.spark.commit_log import log_event
from committer.spark.micro_batches import abort_batch, batch_job_id, enter_batch, forget_batch, options_of_batches
from committer.spark.options import WriteOptions, parse_options
from committer.spark.schema import FilePlan, plan_files
from committer.spark.spark_task import TaskCommitMessage, current_batch, task_commits

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LOG = job_logger("committer.spark")

# Spark passes the query's own options to its sink too.
_OF_THE_QUERY: Final = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True)
class BatchMessage(TaskCommitMessage):
    """Message of a micro-batch's task to Spark; `data` is empty if the batch was already committed."""

    query: str


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> CommitterStreamWriter:
    """Creates the writer of a streaming query; checks all that needs no data, without a store call."""
    if overwrite:
        raise UnsupportedError(
            'output mode "complete" is not supported: every batch would have to replace all that is there',
            operation="writeStream",
            next_step='use outputMode("append"), or foreachBatch with committer.spark.foreach_batch(..., '
            'mode="overwrite")',
        )
    parsed = parse_options({key: value for key, value in options.items() if key.lower() not in _OF_THE_QUERY})
    of_batches = options_of_batches(parsed)
    if parsed.existing not in (None, "append") or parsed.overwrite_mode is not None:
        raise UnsupportedError(
            "a stream appends: the options existing and partitionOverwriteMode have no meaning for it",
            operation="writeStream",
            next_step='leave them out, or use foreachBatch with committer.spark.foreach_batch(..., mode="overwrite")',
        )
    plan = plan_files(schema, parsed.partition_by, parsed.file_format, parsed.case_sensitive)
    return CommitterStreamWriter(of_batches, plan)


class CommitterStreamWriter(DataSourceStreamArrowWriter):
    """Writer of one query's jobs. Spark creates one for the tasks, and one each for commit and abort."""

    def __init__(self, options: WriteOptions, plan: FilePlan) -> None:
        self.options = options
        self.plan = plan

    @to_blocking_callers()
    def write(self, iterator: Iterator[RecordBatch]) -> BatchMessage:
        """Writes and commits one task attempt; if the batch is already committed, only reads the rows."""
        query, batch = current_batch()
        spec = asyncio.run(enter_batch(self.options, batch_job_id(query, batch)))
        if spec is None:
            for _rows in iterator:
                pass
            return BatchMessage(b"", query)
        written = CommitterWriter(self.options, self.plan, spec).write(iterator)
        return BatchMessage(written.data, query)

    # Spark passes arguments by position.
    @to_blocking_callers()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits a batch with exactly the attempts that the messages name; does nothing for a committed batch."""
        if not messages:
            return
        found = [message for message in messages if isinstance(message, BatchMessage)]
        # The commit refuses messages of another batch or query: they name other jobs.
        commits = task_commits(messages, "run the query again") if all(message.data for message in found) else None
        query = found[0].query
        job_id = batch_job_id(query, batchId)
        report = asyncio.run(_commit(self.options, job_id, commits))
        _LOG.info(
            "batch %d of query %s: job %s committed %d files, %d bytes to %s",
            batchId,
            query,
            job_id,
            report.files_committed,
            report.bytes_committed,
            self.options.path,
        )
        asyncio.run(forget_batch(self.options, query, batchId - 2))

    @to_blocking_callers()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Aborts a batch's undecided job; if no task succeeded, the job stays open for the next try."""
        found = [message for message in messages if isinstance(message, BatchMessage)]
        for query in {message.query for message in found if message.data}:
            asyncio.run(abort_batch(self.options, batch_job_id(query, batchId)))


async def _commit(options: WriteOptions, job_id: str, commits: list[TaskCommit] | None) -> JobReport:
    """Commits a batch's job; with `commits` None, the tasks found it committed, and recover verifies that."""
    storage = await options.resolve_storage()
    if commits is None:
        return await recover(options.path, job_id, config=options.config, storage_options=storage)
    async with attach_job(
        options.path, job_id=job_id, config=options.config, storage_options=storage, listeners=[log_event]
    ) as job:
        with aborted_by_spark("start the query again"):
            return await job.commit(task_commits=commits, tasks=len(commits))
