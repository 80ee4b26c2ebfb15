"""Whether the job that a process knows still stands: not gone, not decided, not another job with the same id."""

from __future__ import annotations

from collections.abc import Sequence

from committer.errors import (
    JobDecidedError,
    JobNotFoundError,
    JobStateError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.layout import JobLayout, has_nonce
from committer.paths import StorePath
from committer.records.job_state import is_of
from committer.stages.base import StageContext
from committer.stages.job_directory import JobDirectory, look_at_job
from committer.stages.origin import is_set_up, is_told_elsewhere
from committer.stages.own_records import read_outcome, read_setup
from committer.stores.base import Store
from committer.stores.helpers import exists


async def check_job_stands(context: StageContext, *, operation: str) -> JobDirectory:
    """Refuses work for a job that is gone or decided: one call; one more where its setup record is another one by now.

    Of a job of Hadoop's whose records are elsewhere, and that no driver of this engine joined, 2 calls: the one, and
    where the store of the records is open a look at their directory.

    Returns:
        What stands in the job's directory.

    Raises:
        JobNotFoundError: The job was never set up here, or was cleaned up; also when its id was set up anew: where
            directories are not real, since this process looked first.
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
    if await _is_anew(context, found):
        raise set_up_anew(layout, operation)
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


async def _is_anew(context: StageContext, found: JobDirectory) -> bool:
    """Whether another job was set up under the id, as far as what was listed raises that question: then one call."""
    store, layout, seen = context.store, context.layout, context.setups_seen
    if store.capabilities.directories:
        return await is_set_up_anew(store, layout, found)
    setup = found.children.get(layout.setup.name)
    if setup is None or setup.identity is None or setup.identity in seen:
        return False
    known = bool(seen) or context.setup_identity not in (None, setup.identity)
    if known and await is_set_up_anew(store, layout):
        return True
    seen.add(setup.identity)
    return False


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


async def is_set_up_anew(store: Store, layout: JobLayout, found: JobDirectory | None = None) -> bool:
    """Whether the setup record that stands is of another setup of the id than the layout's.

    No call where what stands in the job's directory rules it out, or the setup has no name; else one.

    Args:
        store: Where.
        layout: The job, as a process knows it.
        found: What stands in its directory, where that was listed.
    """
    if not layout.setup_name:
        return False
    if found is not None and (not found.set_up or layout.drivers.name in found.children):
        return False
    try:
        name = (await read_setup(store, layout)).spec.setup
    except (StoreNotFoundError, StoreNotADirectoryError, StoreIsADirectoryError):
        return False
    return bool(name) and name != layout.setup_name


async def is_of_other_setup(store: Store, layout: JobLayout) -> bool:
    """Whether a setup record stands that is of another setup of the id than the layout's, or an outcome that such a job
    keeps: one call; one more where no setup record stands.

    A record that cannot be read is of no job that was set up since.
    """
    try:
        return (await read_setup(store, layout)).spec.setup != layout.setup_name
    except StoreNotFoundError:
        return await is_outcome_of_other_setup(store, layout)
    except (StoreNotADirectoryError, StoreIsADirectoryError, RecordError):
        return False


async def is_outcome_of_other_setup(store: Store, layout: JobLayout) -> bool:
    """Whether an outcome stands that is of another setup of the id than the layout's: one call."""
    try:
        outcome = await read_outcome(store, layout)
    except (StoreNotADirectoryError, StoreIsADirectoryError, RecordError):
        return False
    return outcome is not None and not is_of(outcome.setup, layout.setup_name)


def set_up_anew(layout: JobLayout, operation: str) -> JobNotFoundError:
    """The error of a process whose job is over, and whose id another job has by now."""
    return JobNotFoundError(
        f"job {layout.job_id} is over, and its id was set up anew since this process set it up or joined it",
        operation=operation,
        path=layout.setup,
        next_step="stop this driver or task: the job that stands there now is another one, with tasks of its own",
    )


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
