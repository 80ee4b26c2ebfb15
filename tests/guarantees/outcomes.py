"""What may come after trouble, and how another process ends the job."""

from __future__ import annotations

import asyncio
from typing import Literal

import committer
from committer.errors import (
    CommitterError,
    JobDecidedError,
    JobError,
    JobNotFoundError,
    JobRolledBackError,
    JobUndecidedError,
    OutcomeUnknownError,
)
from committer.testing.faults import SimulatedCrash
from tests.guarantees.checker import Fate, GuaranteeBrokenError
from tests.guarantees.cluster import JOB_ID, Cluster, TaskFailedError

Choice = Literal["commit", "abort"]


def causes(error: BaseException):
    """An error and everything inside it."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from causes(inner)
    if isinstance(error, CommitterError):
        for inner in error.causes:
            yield from causes(inner)


def died(error: BaseException) -> bool:
    return any(isinstance(inner, SimulatedCrash) for inner in causes(error))


async def drive(cluster: Cluster, **how) -> BaseException | None:
    """Runs the job with its trouble; what came of it, None for a report."""
    cluster.driver = asyncio.create_task(cluster.run(**how))
    try:
        report = await cluster.driver
    except asyncio.CancelledError as error:
        return error
    except TaskFailedError as error:
        return error
    except CommitterError as error:
        return error
    except BaseException as error:
        if not died(error):
            raise
        return error
    expected = cluster.plan.tasks * cluster.plan.files
    if not report.success or report.files_committed != expected:
        raise GuaranteeBrokenError(f"the report says {report.files_committed} of {expected} files, {report.success}")
    return None


async def settle(cluster: Cluster, error: BaseException | None, undecided: Choice = "commit", **how) -> str:
    """Has another process end the job, and checks how it ended. Returns a word for it."""
    if cluster.broken is not None:
        raise cluster.broken
    if error is None:
        cluster.checker.end("committed")
    elif isinstance(error, CommitterError) and error.outcome == "unchanged" and cluster.at:
        cluster.checker.step()
        if cluster.checker._visible_changed():
            raise GuaranteeBrokenError(f"the error says unchanged: {error!r}")
    word = await recover(cluster, undecided, **how)
    if cluster.broken is not None:
        raise cluster.broken
    if error is None and word != "committed":
        raise GuaranteeBrokenError(f"it committed, then recover said {word}")
    return word


async def recover(cluster: Cluster, undecided: Choice, *, rollback: bool = False, force: bool = False) -> str:
    checker, destination = cluster.checker, cluster.world.destination
    options = {"store": cluster.process()}
    try:
        report = await committer.recover(
            destination, JOB_ID, rollback=rollback, force=force, storage_options=options
        )
    except JobUndecidedError:
        checker.end("untouched", left_over=True)
        return await _finish_undecided(cluster, undecided)
    except JobNotFoundError:
        if checker.is_committed():
            if cluster.plan.config.mark_successful_jobs:
                raise GuaranteeBrokenError("recover does not know a job that committed")
            checker.end("committed")
            return "committed"
        checker.end("untouched")
        return "aborted"
    except JobDecidedError as error:
        # Aborted half way.
        if cluster.checker._decided:
            raise
        checker.end("untouched", left_over=True)
        await committer.cleanup(destination, job_id=JOB_ID, storage_options=options)
        checker.end("untouched")
        return "aborted"
    except JobRolledBackError:
        checker.end("untouched")
        return "rolled back"
    except CommitterError as error:
        can = cluster.world.store().capabilities
        if any(isinstance(inner, OutcomeUnknownError) for inner in causes(error)) and error.outcome == "unknown" and not (can.identity and can.identity_through_rename):
            checker.end("unknown", left_over=True)
            return "unknown"
        raise
    if report.success:
        checker.end("committed")
        return "committed"
    checker.end("untouched")
    return "rolled back"


async def _finish_undecided(cluster: Cluster, choice: Choice) -> str:
    destination = cluster.world.destination
    options = {"store": cluster.process()}
    if choice == "commit" and all(cluster.ledger.may_win(task) for task in range(cluster.plan.tasks)):
        job = await committer.attach_job(destination, job_id=JOB_ID, storage_options=options)
        if len(cluster.messages) == cluster.plan.tasks:
            report = await job.commit(cluster.named(), tasks=cluster.plan.tasks)
            cluster.checker.end("committed")
            return "committed"
    try:
        job = await committer.attach_job(destination, job_id=JOB_ID, storage_options=options)
        await job.abort()
    except JobNotFoundError:
        await committer.cleanup(destination, job_id=JOB_ID, storage_options=options)
    cluster.checker.end("untouched")
    return "aborted"
