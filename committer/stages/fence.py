"""Fencing: what keeps late requests of other drivers from a job that is taken back."""

from __future__ import annotations

from committer.errors import (
    JobStateError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.commit_state import stands_fenced
from committer.stages.seal import is_sealed_whole, seal_whole
from committer.stores.helpers import exists


async def fence(context: StageContext) -> None:
    """Renames the directories that publish actions read from or move into, so that every late request fails.

    Idempotent. Where directories cannot be renamed atomically it does nothing: see `RollBackRequest.force`.
    """
    if context.layout.is_sealed and is_sealed_whole(context):
        # First what a late seal would take: one that comes between here and there does the same.
        await seal_whole(context)
    for directory, fenced in _fences(context):
        await _fence(context, directory, fenced)


async def check_can_fence(context: StageContext) -> None:
    """Refuses a rollback that could not fence: at most 4 calls.

    Raises:
        JobStateError: A directory is gone. Nothing was changed.
    """
    for directory, fenced in _fences(context):
        sealed = directory == context.layout.sealed and await exists(context.store, context.layout.recorded_tasks)
        if not (sealed or await exists(context.store, directory) or await stands_fenced(context, fenced)):
            raise _cannot_fence(context, directory)


def _fences(context: StageContext) -> list[tuple[StorePath, StorePath]]:
    """The directories to rename, and their fenced names."""
    layout = context.layout
    if not context.store.capabilities.atomic_directory_rename:
        return []
    # Of what was sealed one by one: what a late seal would take. What was sealed is in the other directory.
    one_by_one = layout.is_sealed and not is_sealed_whole(context)
    tasks = layout.recorded_tasks if one_by_one else layout.tasks
    return [(tasks, layout.tasks_fenced), (layout.superseded, layout.superseded_fenced)]


def fenced_tasks(context: StageContext) -> StorePath:
    """Where what the job publishes is once it is fenced."""
    layout = context.layout
    return layout.superseded_fenced if layout.tasks == layout.superseded else layout.tasks_fenced


async def _fence(context: StageContext, directory: StorePath, fenced: StorePath) -> None:
    store = context.store
    try:
        await store.rename_directory(directory, fenced)
    except (StoreNotFoundError, StoreExistsError) as error:
        # Fenced before; or a task of this job that came too late made the directory again, which harms no job.
        if not await stands_fenced(context, fenced):
            raise _cannot_fence(context, directory) from error
    except StoreError:
        # A lost answer: what counts is what stands there.
        if await exists(store, directory) or not await stands_fenced(context, fenced):
            raise


def _cannot_fence(context: StageContext, directory: StorePath) -> JobStateError:
    return JobStateError(
        f"job {context.layout.job_id} cannot be fenced: {directory.name} is gone",
        operation="fence",
        path=directory,
        outcome="unknown",
        next_step="nothing was taken back; find out who removed it, and put it back; where it is gone for "
        f"good, {context.giving_up()}",
    )
