"""Checks whether a job still exists and is undecided.

Hadoop's job setup creates the job attempt directory and no record (``SetupJobStage``); a job of its magic
committer may consist only of what its task attempts keep beside the job's directory.
"""

from __future__ import annotations

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


def is_set_up(context: StageContext, found: JobDirectory) -> bool:
    """Whether the content of a job's directory shows that the job was set up and not cleaned up since."""
    if found.set_up or not context.spec.hadoop:
        return found.set_up
    # With records elsewhere nothing at the destination shows that a Hadoop job exists.
    return context.layout.keeps_elsewhere or context.layout.job_attempt_directory.name in found.children


async def make_superseded(context: StageContext) -> None:
    """Creates the directory for old files of a Hadoop job: one call."""
    # Other jobs have it from their setup: a driver that created it later could do so after a rollback renamed
    # it, and another driver would move an old file to where no driver looks for it.
    if context.spec.hadoop:
        await context.store.make_directory(context.layout.superseded, parents=False)


def names_not_forced(context: StageContext) -> set[StorePath]:
    """Returns directories above the task attempts' whose names job setup did not sync; Hadoop's syncs none."""
    layout = context.layout
    if not context.spec.hadoop:
        return set()
    above = {layout.job_attempt_directory, layout.job_directory, layout.temporary}
    return above | {layout.destination, layout.destination.parent}


async def check_job_is_live(context: StageContext, *, operation: str) -> JobDirectory:
    """Returns the job's directory, or raises `JobNotFoundError` or `JobDecidedError` if a task must stop."""
    # One call; 2 for a Hadoop job whose records are elsewhere and that no driver of this engine joined.
    layout = context.layout
    if context.spec.hadoop and layout.keeps_elsewhere:
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
    layout = context.layout
    if context.records is not None and not await exists(context.records, layout.manifests):
        raise no_job_elsewhere(layout, operation)
    try:
        return await look_at_job(context.store, layout)
    except JobNotFoundError:
        return JobDirectory(layout, {})


def no_job_elsewhere(layout: JobLayout, operation: str) -> JobNotFoundError:
    """Builds the error of a process that joins a Hadoop job whose directory of records does not exist."""
    return JobNotFoundError(
        f"there is no job {layout.job_id} of Hadoop's: {layout.manifests} does not exist",
        operation=operation,
        path=layout.manifests,
        next_step="look whether it ended; whether its driver runs as another user (pending_set_user) or has another "
        "fs.s3a.committer.staging.tmp.path (pending_set_directory); and whether its application attempt is another",
    )


def job_vanished(context: StageContext, operation: str, *causes: StoreNotFoundError) -> JobNotFoundError:
    """Builds the error of a driver whose job was cleaned up before it decided."""
    return JobNotFoundError(
        f"the directory of job {context.layout.job_id} vanished: a cleanup removed it, or a Hadoop committer deleted "
        "all of _temporary",
        operation=operation,
        path=context.layout.job_directory,
        next_step="run the job again; nothing was published",
        causes=causes,
    )


def too_late(layout: JobLayout, how: str, *, operation: str, path: StorePath) -> JobStateError:
    """Builds the error of a task attempt that would commit while a driver commits its job; `how` says how late."""
    return JobStateError(
        f"job {layout.job_id} is being committed: {how}",
        operation=operation,
        path=path,
        next_step="stop this task: its job is over",
    )


def may_vanish(context: StageContext) -> bool:
    """Whether the setup record can be deleted while the job's directory stays, so that drivers must read it again."""
    # Elsewhere a removal renames the directory, and every later call that names it fails.
    can, config = context.store.capabilities, context.config
    return (
        config.outcome_kept or config.cleanup_skipped or not (can.refuses_late_writes and can.atomic_directory_rename)
    )


async def has_setup(context: StageContext, found: JobDirectory | None = None) -> bool:
    """Whether what shows that the job is live exists: no call if `found` is given, else one.

    That is the setup record, or a Hadoop job's directory.
    """
    # The setup record counts only together with `opened`: a repeated request can create it again after a removal.
    if found is not None:
        return is_set_up(context, found) and found.opened
    layout, store = context.layout, context.store
    if not context.spec.hadoop:
        names = {child.path.name for child in await children_of(store, layout.job_directory)}
        return layout.setup.name in names and (layout.opened.name in names or not layout.setup_name)
    if layout.beside is not None:
        return await exists(store, layout.beside)
    return not store.capabilities.directories or await exists(store, layout.job_attempt_directory)


async def is_marked_over(context: StageContext, found: JobDirectory) -> bool:
    """Whether a directory without setup record is a remnant that a late Java task created again. At most one call."""
    # Only Hadoop's jobs have no setup record, and Hadoop's job setup deletes `_SUCCESS`; so a `_SUCCESS` that
    # names this job proves that it is over.
    if found.set_up:
        return False
    marker = await read_success(context)
    return marker is not None and marker.success and marker.jobId == context.layout.job_id


async def is_hadoops(store: Store, layout: JobLayout) -> bool:
    """Whether a job without records of this engine is Hadoop's, not what delayed writes created after a job's end."""
    # Where a write creates missing parents, a task that outlived its job creates the job's directories again. But
    # task attempts of this engine have a nonce in their directory's name, and each of Hadoop's has a directory
    # without one until the job's cleanup (``SetupTaskStage``). One call, where delayed writes succeed.
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
