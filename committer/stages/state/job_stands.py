"""Checks whether a job still exists and is undecided.

left to others.

Hadoop's job setup makes the directory of the job attempt and no record (``SetupJobStage``); of its magic committer what
task attempts keep beside is all there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from committer.errors import (
    JobDecidedError,
    JobNotFoundError,
    JobStateError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.layout import JobLayout, has_nonce
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.state.job_directory import JobDirectory, look_at_job
from committer.stages.state.success_content import read_success
from committer.stores.base import Store
from committer.stores.helpers import children_of, exists


def anchor_of(context: StageContext) -> StorePath | None:
    """What stands as long as the job does; None where nothing is sure to.

    The setup record; of a job of Hadoop's a directory, where directories are real.
    """
    layout = context.layout
    if not context.spec.hadoop:
        return layout.setup
    if layout.beside is not None:
        return layout.beside
    return layout.job_attempt_directory if context.store.capabilities.directories else None


def is_told_by_directory(context: StageContext) -> bool:
    """Whether a directory is all that says that the job stands, so that a write into it would bring a job back."""
    return context.spec.hadoop


def is_told_elsewhere(context: StageContext) -> bool:
    """Whether nothing at the destination says that the job stands: Hadoop set it up, and its records are elsewhere."""
    return context.spec.hadoop and context.layout.keeps_elsewhere


def is_set_up(context: StageContext, found: JobDirectory) -> bool:
    """Whether what stands in a job's directory says that the job was set up, and not cleaned up since."""
    if found.set_up or is_told_elsewhere(context):
        return True
    return context.spec.hadoop and context.layout.job_attempt_directory.name in found.children


async def make_tasks(context: StageContext) -> None:
    """Makes the directory of the task attempt directories where job setup did not: one call then.

    Hadoop's job setup leaves it to the first task; the job attempt directory is there.
    """
    if context.spec.hadoop:
        await context.store.make_directory(context.layout.tasks, parents=False)


async def make_superseded(context: StageContext) -> None:
    """Makes the directory that old files are moved to where job setup did not: one call then.

    Every other job's was made at setup. A driver that made it later could do so after a rollback took it away, and
    another driver of the job would move an old file to where no driver looks for it.
    """
    if context.spec.hadoop:
        await context.store.make_directory(context.layout.superseded, parents=False)


def names_not_forced(context: StageContext) -> set[StorePath]:
    """Directories above the task attempts' whose names job setup did not force to the disk, as Hadoop's never does."""
    layout = context.layout
    if not context.spec.hadoop:
        return set()
    above = {layout.job_attempt_directory, layout.job_directory, layout.temporary}
    return above | {layout.destination, layout.destination.parent}


async def check_job_stands(context: StageContext, *, operation: str) -> JobDirectory:
    """Refuses work for a job that is gone or decided: one call.

    Of a job of Hadoop's whose records are elsewhere, and that no driver of this engine joined, 2 calls: the one, and
    where the store of the records is open a look at their directory.

    Returns:
        What stands in the job's directory.

    Raises:
        JobNotFoundError: The job was never set up here, or was cleaned up.
        JobDecidedError: The job is decided; nothing written now can become part of it.
    """
    layout = context.layout
    if is_told_elsewhere(context):
        found = await _look_elsewhere(context, operation)
    else:
        found = await look_at_job(context.store, layout)
    if not is_set_up(context, found):
        raise JobNotFoundError(
            f"job {layout.job_id} at {layout.destination} is not set up, or was cleaned up",
            operation=operation,
            path=layout.job_directory,
            next_step="stop this task: its job is over",
        )
    if found.decided or found.ended:
        raise JobDecidedError(
            f"job {layout.job_id} is decided already: nothing this task attempt writes can become part of it",
            operation=operation,
            path=layout.decision,
            next_step="stop this task: its job is over",
        )
    return found


async def _look_elsewhere(context: StageContext, operation: str) -> JobDirectory:
    """What stands in the directory of a job of Hadoop's, most often nothing."""
    layout = context.layout
    if context.records is not None and not await exists(context.records, layout.manifests):
        raise no_job_elsewhere(layout, operation)
    try:
        return await look_at_job(context.store, layout)
    except JobNotFoundError:
        return JobDirectory(layout, {})


def no_job_elsewhere(layout: JobLayout, operation: str) -> JobNotFoundError:
    """The error of a process that would take part in a job of Hadoop's whose records' directory does not stand."""
    return JobNotFoundError(
        f"there is no job {layout.job_id} of Hadoop's: {layout.manifests} does not stand",
        operation=operation,
        path=layout.manifests,
        next_step="look whether it ended; whether its driver runs as another user (pending_set_user) or has another "
        "fs.s3a.committer.staging.tmp.path (pending_set_directory); and whether its application attempt is another",
    )


def too_late(
    layout: JobLayout, how: str, *, operation: str, path: StorePath, causes: Sequence[BaseException] = ()
) -> JobStateError:
    """The error of a task attempt that would commit while a driver commits its job.

    Args:
        layout: The job.
        how: How late it is.
        operation: What it did.
        path: What it would commit.
        causes: What told.
    """
    return JobStateError(
        f"job {layout.job_id} is being committed: {how}",
        operation=operation,
        path=path,
        next_step="stop this task: its job is over",
        causes=causes,
    )


def may_vanish(context: StageContext) -> bool:
    """Whether the setup record of the job can go while its directory stays, so that it is to be looked for again.

    Elsewhere a removal renames the directory, and every call that names it fails from then on.
    """
    can, config = context.store.capabilities, context.config
    return (
        config.outcome_kept or config.cleanup_skipped or not (can.refuses_late_writes and can.atomic_directory_rename)
    )


async def has_setup(context: StageContext, found: JobDirectory | None = None) -> bool:
    """Whether what says that the job is live stands: see `anchor_of`. No call where that was listed, else one.

    The setup record counts beside `opened` alone: a repeated request can create it once more after a removal.

    Args:
        context: The job.
        found: What stands in its directory, where that was listed.
    """
    if found is not None:
        return is_set_up(context, found) and found.opened
    layout, anchor = context.layout, anchor_of(context)
    if anchor == layout.setup:
        names = {child.path.name for child in await children_of(context.store, layout.job_directory)}
        return layout.setup.name in names and (layout.opened.name in names or not layout.setup_name)
    return anchor is None or await exists(context.store, anchor)


async def is_marked_over(context: StageContext, found: JobDirectory) -> bool:
    """Whether a directory without setup record is left over: a late Java task makes its job's directory again.

    Only Hadoop's jobs have no setup record, and Hadoop's job setup deletes `_SUCCESS`; so one that names this job says
    that it is over. At most one call.
    """
    if found.set_up:
        return False
    marker = await read_success(context)
    return marker is not None and marker.success and marker.jobId == context.layout.job_id


async def is_hadoops(store: Store, layout: JobLayout) -> bool:
    """Whether a job without records of this engine is Hadoop's, and not what late writes left of a job that is over.

    Where a write makes missing directories again, a task that outlived its job makes those of the job too. But what a
    task attempt of this engine writes to has a nonce in its name, and each of Hadoop's task attempts has a directory
    without one until the job's cleanup (``SetupTaskStage``). One call, where late writes are taken.
    """
    if store.capabilities.refuses_late_writes:
        return True
    if not store.capabilities.directories:
        return False
    try:
        async for child in store.list(layout.tasks):
            if child.is_directory and not has_nonce(child.path.name):
                return True
    except (StoreNotFoundError, StoreNotADirectoryError):
        pass
    return False
