"""Structured Streaming: each micro-batch is one job, committed exactly once.

    df.writeStream.format("committer").option("checkpointLocation", ...).start("file:///data/events")
    df.writeStream.foreachBatch(foreach_batch("file:///data/events", partition_by=["day"])).start()

A query that died, or was stopped, repeats its last batch under the same number when Spark had not yet noted that it
committed. So the job's id is made from the query's id and the batch's number, and a committed job keeps its outcome
(`CommitterConfig.outcome_kept`): a repeated batch finds it, and is done. Once the same query's second-next batch has
committed, Spark has noted this one for sure, and the outcome is removed.

What an earlier try left is ended before a batch is written: what was decided is finished, what was aborted is removed.
Tasks of an earlier try may still run. They commit into a job that is over, or beside the winners, which the messages of
the new try name.

Spark tells the id and the number to tasks alone (local properties of a task), and to `commit` and `abort` the number.
So the first task of a batch sets its job up, the others join it, and messages carry the query's id.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from committer.advice import to_blocking_callers
from committer.committers.opened_store import open_store
from committer.committers.results import JobReport
from committer.errors import (
    COMMIT_AGAIN,
    CommitterError,
    ConfigurationError,
    JobDecidedError,
    JobExistsError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    PreflightError,
    RecordError,
    TaskMissingError,
    UnsupportedError,
)
from committer.events.logs import job_logger
from committer.job import Destination, attach_job, open_job
from committer.layout import JobLayout
from committer.operations import forget_outcome, recover
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spark.arguments import check_frame, column_names, option_texts
from committer.spark.carried_errors import error_behind
from committer.spark.datasource import CommitterWriter, TaskCommitMessage, _log_event, task_commits
from committer.spark.options import WriteOptions, parse_options, path_option
from committer.spark.schema import FilePlan, plan_files
from committer.spark.session_settings import add_from_session, telling
from committer.spark.sessions import case_sensitive, is_connect, save
from committer.spec import JobSpec
from committer.stores.helpers import exists

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame

_LOG = job_logger("committer.spark")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

_JOB_IDS: Final = uuid.UUID("6d1f0ba5-2f6c-5d0e-9a3b-5b7a6f5e4c21")
# Spark hands the query's own options to its sink too.
_OF_THE_QUERY: Final = frozenset({"checkpointlocation", "queryname"})
_TRIES: Final = 10
_SETUP_LOOKS: Final = 25
_SETUP_PAUSE_S: Final = 0.2

Before: TypeAlias = Literal["committed", "open", "nothing"]
"""What an earlier try of a batch left, once what could be ended is."""


def batch_job_id(query: str, batch: int, sink: str = "") -> str:
    """The job id of one micro-batch: a UUID of version 5.

    The destination is not part of it: jobs of one id at two destinations know nothing of each other, and a destination
    that is spelled differently after a restart is the same.

    Args:
        query: The query's id, as the checkpoint has it.
        batch: The batch's number.
        sink: Tells several writes of one query into one destination apart.
    """
    return str(uuid.uuid5(_JOB_IDS, msgspec.json.encode([query, batch, sink]).decode()))


# -- one batch, by any writer ------------------------------------------------------------------------------------


async def end_earlier_try(options: WriteOptions, job_id: str) -> Before:
    """Finishes what an earlier try of a batch decided, removes what it aborted; 2 calls where it left nothing.

    Raises:
        CommitterError: It was decided and cannot be finished; nothing is lost, and the batch may be tried again.
    """
    storage = await options.resolve_storage()
    try:
        report = await recover(options.path, job_id, config=options.config, storage_options=storage)
    except JobUndecidedError:
        return "open"
    except (JobNotFoundError, JobRolledBackError):
        return "nothing"
    except JobDecidedError:
        # Aborted, and the process that did it died before all of it was removed.
        await _forget(options, job_id)
        return "nothing"
    except (PreflightError, RecordError, TaskMissingError) as error:
        # Its driver died right before the decision, and what it was about to decide is refused.
        if error.outcome != "unchanged" or not await abort_batch(options, job_id):
            raise
        return "nothing"
    return "committed" if report.success else "nothing"


async def abort_batch(options: WriteOptions, job_id: str) -> bool:
    """Aborts an undecided job; whether it is not, and will not be, committed by it."""
    try:
        async with attach_job(
            options.path, job_id=job_id, config=options.config, storage_options=await options.resolve_storage()
        ) as job:
            await job.abort()
    except JobNotFoundError:
        return True
    except JobDecidedError as error:
        _LOG.warning("%s", error)
        return False
    return True


async def forget_batch(options: WriteOptions, query: str, batch: int, sink: str = "") -> None:
    """Removes the outcome of a batch that cannot be repeated any more. A failure is logged, and harmless."""
    if batch < 0:
        return
    try:
        await _forget(options, batch_job_id(query, batch, sink))
    except CommitterError as error:
        _LOG.warning("the outcome of batch %d of query %s could not be removed: %s", batch, query, error)


async def _forget(options: WriteOptions, job_id: str) -> None:
    try:
        await forget_outcome(
            options.path, job_id, storage_options=await options.resolve_storage(), config=options.config
        )
    except JobNotFoundError:
        return


async def enter_batch(options: WriteOptions, job_id: str) -> JobSpec | None:
    """Sets the job of a batch up, or joins it; None when the batch committed before.

    Tasks of one batch do this side by side, without a driver. A job left open by an earlier try is joined too: only
    the attempts that messages name are ever committed.

    Raises:
        JobStateError: Others kept coming in between.
        CommitterError: What an earlier try decided cannot be finished.
    """
    storage = await options.resolve_storage()
    for _try in range(_TRIES):
        try:
            job = await open_job(
                options.path,
                job_id=job_id,
                committer=options.committer,
                delivery="message",
                config=options.config,
                storage_options=storage,
            )
        except JobExistsError:
            pass
        else:
            await job.close()
            return job.spec
        before = await end_earlier_try(options, job_id)
        if before == "committed":
            return None
        if before == "nothing":
            continue
        try:
            if await _is_set_up(options, job_id):
                job = await attach_job(options.path, job_id=job_id, config=options.config, storage_options=storage)
                await job.close()
                return job.spec
        except JobNotFoundError:
            continue
        await abort_batch(options, job_id)
    raise JobStateError(
        f"job {job_id} was set up and ended by others, again and again",
        operation="write",
        path=options.path,
        next_step="see that the query runs only once; the batch may be tried again",
    )


async def _is_set_up(options: WriteOptions, job_id: str) -> bool:
    """Whether a job has its directories; waits for who is making them, who may have died."""
    destination = StorePath.of(options.path)
    layout = JobLayout(destination, job_id)
    store = await open_store(destination, await options.resolve_storage(), options.config)
    try:
        for _look in range(_SETUP_LOOKS):
            # The last directory that a setup makes (`SetupJob`).
            if not store.capabilities.directories or await exists(store, layout.attempts):
                return True
            await asyncio.sleep(_SETUP_PAUSE_S)
        return False
    finally:
        await store.close()


# -- writeStream.format("committer") ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchMessage(WriterCommitMessage):
    """What a task of a micro-batch returns to Spark.

    Attributes:
        query: The query's id.
        batch: The batch's number.
        data: An encoded `TaskCommit`; None when the task found the batch committed already, and wrote nothing.
    """

    query: str
    batch: int
    data: bytes | None


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> CommitterStreamWriter:
    """The writer of a streaming query, checked as far as can be without data. Makes no store call.

    Raises:
        ConfigurationError: An option, or the schema, cannot be honoured.
        UnsupportedError: The output mode is not append.
    """
    if overwrite:
        raise UnsupportedError(
            'output mode "complete" is not supported: every batch would have to replace all that is there',
            operation="writeStream",
            next_step='use outputMode("append"), or foreachBatch with committer.spark.foreach_batch(..., '
            'mode="overwrite")',
        )
    parsed = parse_options({key: value for key, value in options.items() if key.lower() not in _OF_THE_QUERY})
    _refuse_job_id(parsed)
    if parsed.existing not in (None, "append") or parsed.overwrite_mode is not None:
        raise UnsupportedError(
            "a stream appends: the options existing and partitionOverwriteMode have no meaning for it",
            operation="writeStream",
            next_step='leave them out, or use foreachBatch with committer.spark.foreach_batch(..., mode="overwrite")',
        )
    plan = plan_files(schema, parsed.partition_by, parsed.file_format, parsed.case_sensitive)
    return CommitterStreamWriter(_keeping(parsed), plan)


def _refuse_job_id(options: WriteOptions) -> None:
    if options.job_id is not None:
        raise ConfigurationError(
            "the option job_id is not for streams: every batch is a job of its own",
            operation="writeStream",
            next_step="leave it out: the id is made from the query's id and the batch's number",
        )


def _keeping(options: WriteOptions) -> WriteOptions:
    return msgspec.structs.replace(options, config=options.config.replace(outcome_kept=True))


class CommitterStreamWriter(DataSourceStreamArrowWriter):
    """The jobs of one query, as Spark sees them. Spark makes one for the tasks, and one each for commit and abort.

    Args:
        options: The query's options.
        plan: What goes into directory names and what into files.
    """

    def __init__(self, options: WriteOptions, plan: FilePlan) -> None:
        self.options = options
        self.plan = plan

    @to_blocking_callers()
    def write(self, iterator: Iterator[RecordBatch]) -> BatchMessage:
        """Writes one attempt of one task and commits it; reads on to no effect where the batch committed before.

        Raises:
            JobNotFoundError, JobDecidedError: The job ended meanwhile, by another try; the next attempt sees how.
        """
        query, batch = _of_this_task()
        spec = asyncio.run(enter_batch(self.options, batch_job_id(query, batch)))
        if spec is None:
            for _rows in iterator:
                pass
            return BatchMessage(query, batch, None)
        written = CommitterWriter(self.options, self.plan, spec).write(iterator)
        return BatchMessage(query, batch, written.data)

    # Spark calls them with arguments by position.
    @to_blocking_callers()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits a batch with exactly the attempts that the messages name; does nothing for one that committed.

        Raises:
            TaskMissingError: A task has no message, or two.
            RecordError: A message is not one of this batch.
        """
        query = query_of(messages, batchId)
        if query is None:
            return
        job_id = batch_job_id(query, batchId)
        data = [message.data for message in messages if isinstance(message, BatchMessage)]
        named = [TaskCommitMessage(one) for one in data if one is not None]
        report = asyncio.run(
            _commit(self.options, job_id, task_commits(named, job_id) if len(named) == len(data) else None)
        )
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
        """Aborts a batch's job, unless it is decided; where no task succeeded it stays open, to be joined next time."""
        found = [message for message in messages if isinstance(message, BatchMessage)]
        for query in {message.query for message in found if message.batch == batchId and message.data is not None}:
            asyncio.run(abort_batch(self.options, batch_job_id(query, batchId)))


def _of_this_task() -> tuple[str, int]:
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(BATCH_ID) if context is not None else None
    if not query or not batch or not batch.isdecimal():
        raise UnsupportedError(
            "this task is not told which batch of which query it belongs to: is it a continuous query?",
            operation="write",
            next_step="use a trigger that makes micro-batches",
        )
    return query, int(batch)


def query_of(messages: Sequence[WriterCommitMessage | None], batch: int) -> str | None:
    """The query whose tasks returned the messages of a batch; None when there are none.

    Raises:
        TaskMissingError: A task has no message.
        RecordError: A message is of something else, another batch, or another query.
    """
    queries: set[str] = set()
    for position, message in enumerate(messages):
        if message is None:
            raise TaskMissingError(
                f"Spark asks to commit, but partition {position} of {len(messages)} has no task commit message",
                operation="commit_job",
            )
        if not isinstance(message, BatchMessage) or message.batch != batch:
            what = f"batch {message.batch}" if isinstance(message, BatchMessage) else type(message).__name__
            raise RecordError(
                f"partition {position} returned a message of {what}, and this is batch {batch}",
                operation="commit_job",
            )
        queries.add(message.query)
    if len(queries) > 1:
        raise RecordError(
            f"the messages of batch {batch} are of {len(queries)} queries", field="query", operation="commit_job"
        )
    return queries.pop() if queries else None


async def _commit(options: WriteOptions, job_id: str, commits: list[TaskCommit] | None) -> JobReport:
    """Commits a batch's job; without `commits`, sees that it committed, as tasks say."""
    storage = await options.resolve_storage()
    if commits is None:
        return await recover(options.path, job_id, config=options.config, storage_options=storage)
    async with attach_job(
        options.path, job_id=job_id, config=options.config, storage_options=storage, listeners=[_log_event]
    ) as job:
        try:
            return await job.commit(task_commits=commits, tasks=len(commits))
        except CommitterError as error:
            # Spark aborts the job of a batch that could not be committed, and stops the query.
            error.next_step = error.next_step.replace(COMMIT_AGAIN, "start the query again")
            raise


# -- foreachBatch ----------------------------------------------------------------------------------------------------


def foreach_batch(
    uri: Destination,
    *,
    format: str = "parquet",
    partition_by: str | Iterable[str] | None = (),
    mode: str = "append",
    compression: str | None = None,
    query: str | None = None,
    sink: str = "",
    options: Mapping[str, object] | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for ``writeStream.foreachBatch`` that writes every batch exactly once.

    It may be called from a function of one's own, with the batch's DataFrame or one made from it, and the number. What
    it raises then are errors of this library, or Spark's own.

    Args:
        uri: The destination: an absolute path or a URI.
        format: What the files are, as for the data source.
        partition_by: Names of partition columns, outermost first.
        mode: ``append`` or ``overwrite``, as for a batch write.
        compression: The codec, as the data source's option; the format's default when None.
        query: What tells this query from all others, and stays the same when it is started again; None takes Spark's
            own id. Spark Connect does not tell that id to the function, so there it must be given.
        sink: A name for this write, where one query writes several times into the same destination.
        options: Further options of the data source, by name. In a classic session its keys ``spark.hadoop.*`` make the
            choices that these do not, and say how to reach the store, but for secrets.

    Raises:
        ConfigurationError: An option cannot be honoured.
    """
    given = option_texts(options, "options", "foreach_batch")
    if compression is not None:
        given["compression"] = compression
    columns = column_names(partition_by, "foreach_batch")
    if columns:
        given["partitionBy"] = msgspec.json.encode(columns).decode()
    written = {**given, "format": format, "path": path_option(uri), "outcome_kept": "true"}
    _refuse_job_id(parse_options(written))
    chosen = str(mode).strip().lower()
    if chosen not in ("append", "overwrite"):
        raise ConfigurationError(
            f"the mode {mode!r} cannot be used for a stream: batches follow one another into one destination",
            operation="foreach_batch",
            next_step='use "append" or "overwrite"',
        )
    name: object = query
    if name is not None and not (isinstance(name, str) and name):
        raise ConfigurationError(
            f"query cannot be {name!r}", operation="foreach_batch", next_step="give a name as text, or leave it out"
        )
    return _BatchSink(written, chosen, query, sink)


class _BatchSink:
    """What `foreach_batch` returns: may be pickled, as Spark Connect does."""

    def __init__(self, written: Mapping[str, str], mode: str, query: str | None, sink: str) -> None:
        self._written = dict(written)
        self._mode = mode
        self._query = query
        self._sink = sink
        self._said = False

    @to_blocking_callers()
    def __call__(self, df: DataFrame, batch_id: int) -> None:
        check_frame(df, "foreach_batch")
        query = self._query or _query_of(df)
        job_id = batch_job_id(query, batch_id, self._sink)
        settings = dict(self._written)
        withheld = add_from_session(df, settings)
        if withheld and not self._said:
            self._said = True
            _LOG.warning("%s", withheld)
        options = _keeping(parse_options(settings))
        with telling(withheld):
            if asyncio.run(_was_committed(options, job_id)):
                _LOG.info("batch %d of query %s is committed already, as job %s", batch_id, query, job_id)
            else:
                self._save(df, settings, job_id)
            asyncio.run(forget_batch(options, query, batch_id - 2, self._sink))

    def _save(self, df: DataFrame, settings: Mapping[str, str], job_id: str) -> None:
        writer = df.write.format("committer").option("caseSensitive", case_sensitive(df)).options(**settings)
        try:
            save(df.sparkSession, writer.option("job_id", job_id).mode(self._mode))
        except Exception as error:
            raised = error_behind(error)
            if raised is None:
                raise
            raise raised from error


async def _was_committed(options: WriteOptions, job_id: str) -> bool:
    before = await end_earlier_try(options, job_id)
    if before == "open":
        # No driver began to commit it: its driver is gone, and its id is needed.
        if await abort_batch(options, job_id):
            # Another driver may have committed it meanwhile.
            return await end_earlier_try(options, job_id) == "committed"
        return await _was_committed(options, job_id)
    return before == "committed"


def _query_of(df: DataFrame) -> str:
    """The id of the query that this thread runs a batch of."""
    query = None if is_connect(df) else df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise ConfigurationError(
            "which query this batch belongs to cannot be told here: Spark Connect does not say it, nor is it known"
            " outside of a foreachBatch function",
            operation="foreach_batch",
            next_step='name the query with foreach_batch(..., query="..."), a name that no other query has and that'
            " stays when it is started again",
        )
    return query
