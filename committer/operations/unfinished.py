"""The last steps of a job that ended, before a forced cleanup deletes what they need."""

from __future__ import annotations

from committer.committers.registry import committer_for
from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    MultipleError,
    OutcomeUnknownError,
    RecordError,
    StoreCrossDeviceError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
)
from committer.logs import job_logger
from committer.stages.base import StageContext

_log = job_logger("committer.operations")

# What the job's own records and files say. All else may pass, or go with another configuration: a refused call, a lost
# answer, a store that is down.
_FOR_GOOD = (
    RecordError,
    JobStateError,
    OutcomeUnknownError,
    StoreCrossDeviceError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
)


def _is_for_good(error: BaseException) -> bool:
    """Whether a later call meets the same failure again: it and each of its causes say so."""
    if isinstance(error, MultipleError):
        return all(map(_is_for_good, error.causes))
    return isinstance(error, _FOR_GOOD) and all(map(_is_for_good, getattr(error, "causes", ())))


async def end_unfinished(context: StageContext, *, rollback: bool) -> str:
    """Does what `recover` would for a job whose outcome exists.

    A job that is being taken back is taken back to its end: its files leave the destination, the old ones come back. A
    committed one gets its `_SUCCESS`.

    Returns:
        Why it cannot be done, where the job's own records or files stand against it; empty where it was.

    Raises:
        CommitterError: It failed for a reason that may pass. Nothing was given up; a later cleanup goes on from there.
    """
    job_id = context.layout.job_id
    try:
        await committer_for(context.spec.committer).recover_job(context, rollback=rollback, force=True)
    except (JobNotFoundError, JobRolledBackError):
        # Another driver of the job did it meanwhile.
        return ""
    except CommitterError as error:
        if not _is_for_good(error):
            raise
        _log.warning("job %s is removed without its last steps, which fail: %s", job_id, error, extra={"job": job_id})
        return error.message
    return ""
