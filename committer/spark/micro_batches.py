"""Runs each micro-batch of a stream as one job, for any writer.

A restarted query repeats its last batch under the same number if Spark had not recorded the batch's commit. So the
job id is derived from the query's id and the batch's number, and a committed job keeps its outcome
(`CommitterConfig.outcome_kept`) for the repetition to find. Spark has recorded a batch for certain once the same
query committed the second batch after it: then its outcome is deleted.

Before a batch is written, the job of an earlier try is finished if decided, and removed if aborted. Tasks of an
earlier try may still run: their job is over, or they commit attempts that no message of the new try names.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Final, Literal, TypeAlias

import msgspec

from committer.api.cleanup import clean_and_report
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
"""Default wait, in seconds, of a batch's commit for other jobs; without it an overwrite of another partition ends
the query."""

Before: TypeAlias = Literal["committed", "open", "nothing"]
"""State of an earlier try of a batch after its job was settled as far as possible."""


def batch_job_id(query: str, batch: int, sink: str = "") -> str:
    """Returns the job id of one micro-batch: a UUID of version 5; `sink` distinguishes writes of one query.

    The destination is not part of it: jobs of one id at two destinations are independent, and a restarted query
    may spell its destination differently.
    """
    return str(uuid.uuid5(_JOB_IDS, msgspec.json.encode([query, batch, sink]).decode()))


def options_of_batches(options: WriteOptions) -> WriteOptions:
    """Returns the options for a stream's jobs: outcomes are kept, and a commit waits for conflicting jobs."""
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
    """Finishes a decided job of an earlier try, removes an aborted one; 2 calls if there is no job.

    Raises CommitterError if the decided job cannot be finished; nothing is lost, and the batch may be tried again.
    """
    storage = await options.resolve_storage()
    try:
        await recover(options.path, job_id, config=options.config, storage_options=storage)
    except JobUndecidedError:
        return "open"
    except (JobNotFoundError, JobRolledBackError):
        return "nothing"
    except JobDecidedError:
        # An aborting driver died before it removed everything.
        await _forget(options, job_id)
        return "nothing"
    except (PreflightError, RecordError, TaskMissingError) as error:
        # The driver died right before its decision, which would have been refused.
        if error.outcome != "unchanged" or not await abort_batch(options, job_id):
            raise
        return "nothing"
    return "committed"


async def abort_batch(options: WriteOptions, job_id: str) -> bool:
    """Aborts an undecided job; returns True if the job is not and will not be committed."""
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
    """Deletes the outcome of a batch that cannot be repeated any more; a failure is logged and harmless."""
    if batch < 0:
        return
    try:
        await _forget(options, batch_job_id(query, batch, sink))
    except CommitterError as error:
        _LOG.warning("the outcome of batch %d of query %s could not be removed: %s", batch, query, error)


async def _forget(options: WriteOptions, job_id: str) -> None:
    try:
        await clean_and_report(
            options.path,
            job_id=job_id,
            forgets=True,
            storage_options=await options.resolve_storage(),
            config=options.config,
        )
    except JobNotFoundError:
        return


async def enter_batch(options: WriteOptions, job_id: str) -> JobSpec | None:
    """Sets up or joins the job of a batch; returns None if the batch is committed.

    Tasks of one batch call it concurrently, without a driver. They also join a job that an earlier try left open:
    only attempts that messages name are committed. Raises JobStateError if other drivers ended the job after each
    setup.
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
    """Settles an earlier try for a driver that writes the whole batch anew; returns True if it committed."""
    before = await end_earlier_try(options, job_id)
    if before == "open":
        # Undecided and without a driver: its id is needed.
        if await abort_batch(options, job_id):
            # Another driver may have committed the job meanwhile.
            return await end_earlier_try(options, job_id) == "committed"
        return await was_committed(options, job_id)
    return before == "committed"
