"""What may come after trouble, and how other processes end the job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import committer
from committer.errors import (
    CommitterError,
    DestinationBusyError,
    JobDecidedError,
    JobNotFoundError,
    JobRolledBackError,
    JobStateError,
    JobUndecidedError,
    OutcomeUnknownError,
)
from committer.testing.faults import SimulatedCrash
from committer_testing.simulate.checker import GuaranteeBrokenError
from tests.guarantees.cluster import JOB_ID, Cluster, TaskFailedError


def inside(error: BaseException) -> Iterator[BaseException]:
    """An error and everything in it."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from inside(inner)
    if isinstance(error, CommitterError):
        for inner in error.causes:
            yield from inside(inner)


def is_crash(error: BaseException) -> bool:
    """Whether a process died of it."""
    return any(isinstance(inner, SimulatedCrash) for inner in inside(error))


def can_prove(cluster: Cluster) -> bool:
    """Whether the store can prove which file is which after a rename, so that nothing ever stays unknown."""
    capabilities = cluster.world.store().capabilities
    return capabilities.identity and capabilities.identity_through_rename


def is_unknown(cluster: Cluster, error: BaseException) -> bool:
    """Whether an error is the honest answer of a store that proves nothing."""
    honest = any(isinstance(inner, OutcomeUnknownError) for inner in inside(error))
    return honest and isinstance(error, CommitterError) and error.outcome == "unknown" and not can_prove(cluster)


async def drive(cluster: Cluster) -> BaseException | None:
    """Runs the job with its trouble. Returns what came of it, None for a report, which is checked."""
    cluster.driver = asyncio.create_task(cluster.run())
    try:
        report = await cluster.driver
    except (CommitterError, TaskFailedError, asyncio.CancelledError) as error:
        failure: BaseException = error
    except BaseException as error:
        if not is_crash(error):
            raise
        failure = error
    else:
        cluster.over = True
        cluster.raise_broken()
        expected = cluster.plan.tasks * cluster.plan.files
        if not report.success or report.files_committed != expected:
            raise GuaranteeBrokenError(f"{report.files_committed} of {expected} files, success is {report.success}")
        # A directory whose deletion met trouble may stay: the job is committed all the same.
        cluster.checker.end("committed", left_over=cluster.trouble is not None or bool(cluster.more))
        return None
    cluster.over = True
    cluster.raise_broken()
    if isinstance(failure, CommitterError):
        if failure.outcome == "unchanged" and cluster.checker.is_changed():
            raise GuaranteeBrokenError(f"the destination changed, and the error says it did not: {failure!r}")
        if failure.outcome == "committed" and not cluster.checker.is_complete():
            raise GuaranteeBrokenError(f"the job is not complete, and the error says it is: {failure!r}")
    return failure


async def end(cluster: Cluster, *, commit: bool = False) -> str:
    """Has a fresh process end the job, whatever state it is in, and checks how it ended.

    Args:
        cluster: The world after the trouble.
        commit: Commit a job that no driver began to commit, where all its tasks are done; else abort it.

    Returns:
        ``committed``, ``untouched`` or ``unknown``.
    """
    checker, destination = cluster.checker, cluster.world.destination
    options = {"store": cluster.process()}
    try:
        report = await committer.recover(destination, JOB_ID, config=cluster.vouched, storage_options=options)
    except JobUndecidedError:
        checker.end("untouched", left_over=True)
        word = await _end_undecided(cluster, commit=commit)
    except JobNotFoundError:
        # Without a marker nothing speaks of a job that committed and was cleaned up.
        committed = not cluster.plan.config.mark_successful_jobs and checker.is_complete()
        word = "committed" if committed else "untouched"
    except JobDecidedError:
        checker.end("untouched", left_over=True)
        await committer.cleanup(destination, job_id=JOB_ID, storage_options=options)
        word = "untouched"
    except JobRolledBackError:
        word = "untouched"
    except CommitterError as error:
        cluster.raise_broken()
        if not is_unknown(cluster, error):
            raise
        word = "unknown"
    else:
        word = "committed" if report.success else "untouched"
    cluster.raise_broken()
    if cluster.trouble == "permanent" and cluster.hit is not None and "committer-probe" in cluster.hit.path.name:
        # A setup that may not delete its probe names it in its error, and leaves no record for a cleanup to go by.
        await cluster.process().delete_directory(cluster.hit.path, recursive=False)
    checker.end(word, left_over=word == "unknown" or await _swept(cluster))
    return word


async def _end_undecided(cluster: Cluster, *, commit: bool) -> str:
    destination, options = cluster.world.destination, {"store": cluster.process()}
    job = await committer.attach_job(destination, job_id=JOB_ID, config=cluster.vouched, storage_options=options)
    if commit and len(cluster.messages) == cluster.plan.tasks:
        await job.commit(cluster.named(), tasks=cluster.plan.tasks)
        return "committed"
    await job.abort()
    return "untouched"


async def _swept(cluster: Cluster) -> bool:
    """Sweeps up what a driver that came too late left in the job's directory; always False."""
    if cluster.checker.left_over():
        options = {"store": cluster.process()}
        found = await committer.list_jobs(cluster.world.destination, storage_options=options)
        assert JOB_ID in {job.job_id for job in found}, "what is left is not found by list_jobs"
        # Only who names the roots outside the destination reaches what a setup left there.
        await committer.cleanup(
            cluster.world.destination, job_id=JOB_ID, config=cluster.vouched, storage_options=options
        )
    return False


# -- what other processes do ----------------------------------------------------------------------------------------


async def recover(cluster: Cluster) -> None:
    """An operator recovers the job."""
    await _recover(cluster)


async def roll_back(cluster: Cluster) -> None:
    """An operator rolls the job back."""
    cluster.checker.late = not cluster.over
    await _recover(cluster, rollback=True)


async def roll_back_by_force(cluster: Cluster) -> None:
    """An operator rolls the job back and vouches that its driver is dead."""
    await _recover(cluster, rollback=True, force=True)


async def abort(cluster: Cluster) -> None:
    """An operator aborts the job; of a committed job that says nothing."""
    options = {"store": cluster.process()}
    try:
        job = await committer.attach_job(
            cluster.world.destination, job_id=JOB_ID, config=cluster.vouched, storage_options=options
        )
        await job.abort()
    except (JobDecidedError, JobNotFoundError):
        return
    cluster.claims.append("untouched" if not cluster.checker.is_complete() else "committed")


async def commit(cluster: Cluster) -> None:
    """Another driver commits the job, where all its tasks are done."""
    if len(cluster.messages) < cluster.plan.tasks:
        return
    options = {"store": cluster.process()}
    try:
        job = await committer.attach_job(
            cluster.world.destination, job_id=JOB_ID, config=cluster.vouched, storage_options=options
        )
        await job.commit(cluster.named(), tasks=cluster.plan.tasks)
    except (JobDecidedError, JobNotFoundError, DestinationBusyError):
        return
    except JobRolledBackError:
        cluster.claims.append("untouched")
    else:
        cluster.claims.append("committed")


async def zombie(cluster: Cluster) -> None:
    """An attempt of a task that is done commits as well, or comes too late."""
    if cluster.spec is not None:
        await cluster.run_attempt(0, 9)


async def _recover(cluster: Cluster, *, rollback: bool = False, force: bool = False) -> None:
    options = {"store": cluster.process()}
    try:
        report = await committer.recover(
            cluster.world.destination,
            JOB_ID,
            rollback=rollback,
            force=force,
            config=cluster.vouched,
            storage_options=options,
        )
    except JobRolledBackError:
        cluster.claims.append("untouched")
    except (JobUndecidedError, JobNotFoundError, JobDecidedError):
        return
    except JobStateError as error:
        # Committed; or it can only go forward, or not be fenced.
        if error.outcome == "committed":
            cluster.claims.append("committed")
        elif not rollback:
            raise
    except CommitterError as error:
        if not is_unknown(cluster, error):
            raise
    else:
        cluster.claims.append("committed" if report.success else "untouched")


async def check_claims(cluster: Cluster, driver: BaseException | None) -> str:
    """Ends the job, and makes sure that every process that said how it ended was right. Returns how it did."""
    cluster.raise_broken()
    said = set(cluster.claims) | ({"committed"} if driver is None else set())
    word = await end(cluster)
    if not said <= {word}:
        raise GuaranteeBrokenError(f"it ended {word}, and a process said {sorted(said)}")
    return word
