"""Errors of a job commit, and the advice that they carry."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeAlias

from committer.advice import AND_RUN_IT_AGAIN, BUCKET_GONE, LOOK_BEFORE
from committer.committers.advising import with_options
from committer.errors import (
    CommitterError,
    DestinationNotFoundError,
    JobDecidedError,
    JobError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    MultipleError,
    PreflightError,
    RecordError,
    StoreCrossDeviceError,
    StoreError,
    StoreLinkError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePartsError,
    TargetExistsError,
    TaskError,
    TaskMissingError,
)
from committer.logs import job_logger
from committer.stages.base import StageContext
from committer.stages.state.job_directory import look_at_job

_log = job_logger("committer.committers")

_MEANINGS = (JobError, RecordError, TaskError)

_GONE = f"{BUCKET_GONE}; where it comes back with all that was in it"

Refusal: TypeAlias = TargetExistsError | StoreCrossDeviceError | StorePartsError


def definite_refusal(error: CommitterError) -> Refusal | None:
    """Returns the refusal that a retry cannot change; None if any failure of the stage may be something else."""
    if isinstance(error, Refusal):
        return error
    found = [cause for cause in error.causes if isinstance(cause, Refusal)]
    return found[0] if found and len(found) == len(error.causes) else None


def as_one(error: CommitterError) -> CommitterError:
    """Merges failures into one error of their closest common class, which a caller can catch."""
    if not isinstance(error, MultipleError):
        return error
    first = error.causes[0]
    shared = next(kind for kind in type(first).__mro__ if all(isinstance(cause, kind) for cause in error.causes))
    if not (issubclass(shared, _MEANINGS) and isinstance(first, CommitterError)):
        return error
    exactly = next((cause for cause in error.causes if type(cause) is shared), None)
    if exactly is not None:
        one = copy.copy(exactly)
    else:
        one = shared(first.message, operation=first.operation, path=first.path, next_step=first.next_step)
    one.message = f"{one.message} (and {len(error.causes) - 1} more)"
    one.args = (one.message,)
    one.outcome, one.causes = error.outcome, error.causes
    return one


def typed(error: Exception) -> CommitterError:
    """Wraps an unforeseen exception, so that the commit still withdraws its intent and entry."""
    if isinstance(error, CommitterError):
        return error
    unforeseen = CommitterError(
        f"the commit failed in a way that was not foreseen: {type(error).__name__}: {error}",
        operation="commit_job",
        next_step="nothing was published; report this with its traceback",
        causes=[error],
    )
    unforeseen.__cause__ = error
    return unforeseen


def what_first(error: CommitterError) -> str:
    """Returns what the caller must do before the same call can succeed."""
    causes = error.causes if isinstance(error, MultipleError) else (error,)
    for cause in causes:
        if isinstance(cause, DestinationNotFoundError):
            return _GONE
        step = cause.next_step if isinstance(cause, CommitterError) else ""
        # Advice that names a call is about another state of the job; a refused target could be changed only while the
        # job was undecided.
        if step and step != LOOK_BEFORE and "`" not in step and not isinstance(cause, TargetExistsError):
            return step.removesuffix(AND_RUN_IT_AGAIN).rstrip(",")
    return "remove the cause"


def say_it_is_left(context: StageContext, error: BaseException, shown: str) -> None:
    """Adds the cleanup call to the error of a job that could not be aborted, unless the error advises another call."""
    if not isinstance(error, CommitterError) or error.outcome != "unchanged" or "`await " in error.next_step:
        return
    clean = f"call {context.cleanup_call()}: it removes what this job left; after that run it again"
    error.next_step = with_options(f"{what_first(error)}, then {clean}", shown)


def broken_off(context: StageContext, error: Exception) -> CommitterError:
    """Builds the error of a commit that ran out of memory at an unknown point."""
    return CommitterError(
        f"the commit of job {context.layout.job_id} broke off: {type(error).__name__}: {error}",
        operation="commit_job",
        path=context.layout.destination,
        outcome="unknown",
        next_step=f"call {context.recover_call()} in a fresh process: it finishes what was begun; "
        f"{context.recover_call(rollback=True)} aborts it or rolls it back",
        causes=[error],
    )


def advise_undecided(context: StageContext, error: CommitterError, why: str, failure: Exception | None) -> None:
    """Adds to a refusal that a recovery may still commit the job, because the intent exists."""
    job_id = context.layout.job_id
    reason = failure.message if isinstance(failure, CommitterError) else str(failure or "it took too long")
    _log.warning("the intent of job %s still exists: %s: %s", job_id, why, reason)
    error.message = (
        f"{error.message}; this driver published nothing, but a recovery would commit job {job_id}: {why}: {reason}"
    )
    error.outcome = "unknown"
    back = context.recover_call(rollback=True)
    cause = _first_of(error, failure)
    error.next_step = f"{cause}, then call {context.recover_call()} to commit it, or {back} to abort it"
    error.causes = (*error.causes, *([failure] if failure is not None else []))


def advise_records_moved(context: StageContext, error: CommitterError, failure: Exception | None) -> None:
    """Adds to a refusal that moved task output could not be returned to its place; no intent exists."""
    job_id = context.layout.job_id
    reason = failure.message if isinstance(failure, CommitterError) else str(failure or "it took too long")
    _log.warning("what tasks of job %s committed was not given back: %s", job_id, reason)
    error.message = (
        f"{error.message}; nothing was published, but what tasks of job {job_id} committed could not be given back, "
        f"and may be where none of them can commit again: {reason}"
    )
    if isinstance(error, StoreOutcomeUnknownError):
        # Whatever the lost request did, the job is not decided, and no driver uses the intent.
        error.outcome = "unchanged"
    again = "the same commit again, which brings them back where it is refused"
    error.next_step = f"{_first_of(error, failure)}, then make {again}; or abort the job"
    error.causes = (*error.causes, *([failure] if failure is not None else []))


def _first_of(error: CommitterError, failure: Exception | None) -> str:
    """Returns what the caller must do first, if a refused commit could not be withdrawn."""
    steps = [one.next_step for one in (error, failure) if isinstance(one, StoreLinkError)]
    if isinstance(failure, JobStateError):
        steps.append(failure.next_step)
    return steps[0] if steps else "remove the cause"


@contextmanager
def saying_what_is_left(context: StageContext) -> Iterator[None]:
    """Marks a failure after the outcome as committed, with advice to finish the rest."""
    try:
        yield
    except CommitterError as error:
        leave_rest(context, error)
        raise


def leave_rest(context: StageContext, error: CommitterError) -> None:
    """Marks an error after the outcome as committed, with advice to finish the rest."""
    error.outcome = "committed"
    first = what_first(error)
    complete = "the output was complete" if first == _GONE else "the output is complete"
    error.next_step = f"{complete}; {first}, then call {context.recover_call()} to finish the rest"


def advise_recovery(
    context: StageContext, error: CommitterError, *, rollback: bool = False, otherwise: str = ""
) -> CommitterError:
    """Adds the call that finishes the job, or `otherwise` another end, to a failure after the decision."""
    if error.outcome == "unchanged":
        error.outcome = "partial"
    recover = context.recover_call(rollback=rollback, force=rollback and not context.store.capabilities.fences_drivers)
    if not error.next_step or (_advises_one_call(error) and "`await committer." not in error.next_step):
        error.next_step = f"{what_first(error)}, then call {recover}"
        if otherwise and not isinstance(error, StoreLinkError):
            error.next_step = f"{error.next_step}; where the cause will stay, {otherwise}"
    return error


def _advises_one_call(error: CommitterError) -> bool:
    """Returns whether an error's advice is about one call only, or about an undecided job."""
    # An error of full local disk space is not a store error.
    return isinstance(error, StoreError | MultipleError | TargetExistsError) or error.next_step.endswith(
        AND_RUN_IT_AGAIN
    )


def advise_files_missing(context: StageContext, error: CommitterError) -> None:
    """Marks the failed lookup of a decided job's end as unknown, with advice to look again."""
    if error.outcome == "unchanged":
        error.outcome = "unknown"
        error.next_step = (
            f"{what_first(error)}, then call {context.recover_call()}: it says how the job ended, or ends it"
        )


def unsettled_refusal(context: StageContext, refusal: Refusal, error: CommitterError) -> CommitterError:
    """Builds the error of a refused job whose rollback failed."""
    return CommitterError(
        f"{refusal.message}; rolling the job back failed: {error.message}",
        operation=error.operation,
        path=refusal.path,
        outcome="partial",
        next_step=advise_recovery(context, error, rollback=True).next_step,
        causes=[refusal, error],
    )


def refuse_undecided(context: StageContext) -> JobUndecidedError:
    """Builds the error of a recovery of a job that no driver began to commit."""
    layout = context.layout
    how = "from_attempts=True, tasks=N" if context.spec.delivery == "message" else "tasks=N"
    return JobUndecidedError(
        f"no driver began to commit job {layout.job_id}, so there is nothing to recover",
        delivery=context.spec.delivery,
        operation="recover",
        path=layout.job_directory,
        next_step=f"`job = await committer.attach_job({str(layout.destination)!r}, job_id={layout.job_id!r})`, then "
        f"`await job.commit({how})` if all its tasks are done, N of them, else `await job.abort()`",
    )


def refuse_decided(context: StageContext) -> JobDecidedError:
    """Builds the error of an abort after the decision."""
    return JobDecidedError(
        f"job {context.layout.job_id} is decided to be committed: it was not aborted, nothing was deleted",
        operation="abort",
        path=context.layout.decision,
        outcome="partial",
        next_step=f"{context.recover_call()} finishes it; {context.rollback_advice()}",
    )


def refuse_aborted(context: StageContext) -> JobDecidedError:
    """Builds the error of a commit after the abort."""
    return JobDecidedError(
        f"job {context.layout.job_id} was aborted",
        operation="commit_job",
        path=context.layout.decision,
        next_step=f"run the job again under another id; {context.cleanup_call()} removes what is left of this one",
    )


def refuse_over(context: StageContext, operation: str) -> JobRolledBackError:
    """Builds the error of a removed job whose summary report names no commit."""
    return JobRolledBackError(
        f"job {context.layout.job_id} is over and was not committed: it was aborted, or rolled back",
        operation=operation,
        path=context.layout.destination,
        next_step="run the job again, under another id",
    )


def refuse_committed(context: StageContext) -> JobStateError:
    """Builds the error of a rollback after the outcome "committed"."""
    return JobStateError(
        f"job {context.layout.job_id} is committed: it cannot be rolled back",
        operation="recover",
        path=context.layout.outcome,
        outcome="committed",
        next_step=f"{context.recover_call()} cleans up behind it; remove its files by hand if you must",
    )


_OF_THE_OUTPUT: Final = (
    PreflightError,
    RecordError,
    TaskError,
    TaskMissingError,
    JobNotFoundError,
    StoreNotFoundError,
    MultipleError,
)

TO_BE_ABORTED: Final = "is to be aborted, which changes nothing"
"""Advice for a job whose work is done; `without_the_end` replaces it where the error aborts the job."""

_ABORTED: Final = "was aborted, which changed nothing"
_ENDS: Final = "ends the job with nothing published"
_CLAUSE: Final = re.compile(rf"(; )?`[^`]*` {_ENDS}")


@asynccontextmanager
async def with_abort_advice(context: StageContext) -> AsyncIterator[None]:
    """Adds the call that aborts an undecided job to errors of an attached job's commit: one listing each."""
    try:
        yield
    except _OF_THE_OUTPUT as error:
        if error.outcome == "unchanged" and await _is_undecided(context):
            stays = " by this engine; what Hadoop's driver published before stays" if context.spec.hadoop else ""
            back = f"{context.recover_call(rollback=True)} {_ENDS}{stays}"
            error.next_step = f"{error.next_step}; {back}" if error.next_step else back
        raise


def without_the_end(advice: str) -> str:
    """Removes the abort call from the advice for a job that the error aborts."""
    return _CLAUSE.sub("", advice).replace(TO_BE_ABORTED, _ABORTED)


async def _is_undecided(context: StageContext) -> bool:
    try:
        found = await look_at_job(context.store, context.layout)
    except CommitterError:
        return False
    return (found.set_up or bool(found.attempts)) and not (found.decided or found.ended)
