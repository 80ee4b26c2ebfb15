"""One micro-batch of a stream as one job, by any writer.

A query that died, or was stopped, repeats its last batch under the same number when Spark had not yet noted that it
committed. So the job's id is made from the query's id and the batch's number, and a committed job keeps its outcome
(`CommitterConfig.outcome_kept`): a repeated batch finds it, and is done. Once the same query's second-next batch has
committed, Spark has noted this one for sure, and the outcome is removed.

What an earlier try left is ended before a batch is written: what was decided is finished, what was aborted is removed.
Tasks of an earlier try may still run. They commit into a job that is over, or beside the winners, which the messages of
the new try name.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec

from committer.api.cleanup import forget_outcome
from committer.api.job_opening import attach_job, open_job
from committer.api.recover import recover
from committer.errors import (
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
)
from committer.logs import job_logger
from committer.spark.destination import look_at_destination
from committer.spark.options import WriteOptions
from committer.spark.publishing import refuse_without_executors
from committer.spec import JobSpec

_LOG = job_logger("committer.spark")

_JOB_IDS: Final = uuid.UUID("6d1f0ba5-2f6c-5d0e-9a3b-5b7a6f5e4c21")
_TRIES: Final = 10

STREAM_BUSY_TIMEOUT_S: Final = 300.0
"""Seconds that the commit of a batch waits for other jobs, unless the query says otherwise: without it one overwrite of
another partition ends the query."""

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


def options_of_batches(options: WriteOptions) -> WriteOptions:
    """The options of a stream's jobs: as given, with outcomes that are kept, and a wait for jobs that are in the way.

    Raises:
        ConfigurationError: They give a job id.
    """
    if options.job_id is not None:
        raise ConfigurationError(
            "the option job_id is not for streams: every batch is a job of its own",
            operation="writeStream",
            next_step="leave it out: the id is made from the query's id and the batch's number",
        )
    config = options.config
    waits_s = STREAM_BUSY_TIMEOUT_S if config.busy_timeout is None else config.busy_timeout
    return msgspec.structs.replace(options, config=config.replace(outcome_kept=True, busy_timeout=waits_s))


async def end_earlier_try(options: WriteOptions, job_id: str) -> Before:
    """Finishes what an earlier try of a batch decided, removes what it aborted; 2 calls where it left nothing.

    Raises:
        CommitterError: It was decided and cannot be finished; nothing is lost, and the batch may be tried again.
    """
    storage = await options.resolve_storage()
    try:
        await recover(options.path, job_id, config=options.config, storage_options=storage)
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
    return "committed"


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
        UnsupportedError: The destination holds another writer's table or log, which its readers follow.
        JobStateError: Other drivers ended the job each time that it was set up.
        CommitterError: What an earlier try decided cannot be finished.
    """
    refuse_without_executors(options.config, "in a stream", "write")
    await look_at_destination(options, "append")
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
        with suppress(JobNotFoundError):
            job = await attach_job(options.path, job_id=job_id, config=options.config, storage_options=storage)
            await job.close()
            return job.spec
    raise JobStateError(
        f"job {job_id} was set up and ended by other drivers, again and again",
        operation="write",
        path=options.path,
        next_step="see that the query runs only once; the batch may be tried again",
    )


async def was_committed(options: WriteOptions, job_id: str) -> bool:
    """Ends what an earlier try of a batch left, for a driver that writes all of it anew; whether it committed.

    Raises:
        CommitterError: As `end_earlier_try`.
    """
    before = await end_earlier_try(options, job_id)
    if before == "open":
        # No driver began to commit it: its driver is gone, and its id is needed.
        if await abort_batch(options, job_id):
            # Another driver may have committed it meanwhile.
            return await end_earlier_try(options, job_id) == "committed"
        return await was_committed(options, job_id)
    return before == "committed"
