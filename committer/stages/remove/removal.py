"""Removes a job's directory. No other job ever uses a name in it, so a delayed request only affects this job."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from committer.errors import (
    CommitterError,
    JobStateError,
    MultipleError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    UnsupportedError,
)
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both_in_full
from committer.flow.workers import run_workers
from committer.layout import REMOVED
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.decide.commit_state import looking_again
from committer.stages.decide.entries import drop_entries
from committer.stages.durability import sync_directories
from committer.stages.state.job_directory import list_job_directories
from committer.stores.abilities import BATCH_DELETE
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of
from committer.stores.object_store import delete_odd

_log = job_logger("committer.stages")

_TRIES: Final = 5


async def remove_directory(context: StageContext) -> None:
    """Removes the job's directory, and `_temporary` if no other job is in it. Idempotent."""
    # Where directories are renamed in one step it is renamed, then deleted. Elsewhere the setup record goes
    # first: from then on no driver can decide, publish or end the job. The record of its end goes last, for a
    # driver that finds an unfinished removal. 3 calls; without such renames about 6.
    if not await _rename_away(context, context.layout.job_directory, context.layout.removed):
        await _remove_in_order(context)
    await remove_temporary(context)


async def end_without_removal(context: StageContext) -> None:
    """Ends a job whose directory stays: no driver can decide, publish or end it any more. Idempotent. 2 calls."""
    await context.store.delete_file(context.layout.setup)
    await _fence_drivers(context)
    await drop_entries(context)


async def _fence_drivers(context: StageContext) -> None:
    """Renames `work`, so that the renames of a stale driver fail, which read the setup record before the deletion."""
    # Until then the job's entry counts.
    layout, store = context.layout, context.store
    if not (store.capabilities.directories and layout.setup_name):
        # A job of Hadoop's has no such directory.
        return
    try:
        await looking_again(lambda: store.rename_directory(layout.work, layout.work_fenced))
    except StoreNotFoundError:
        return
    except (StoreExistsError, UnsupportedError):
        # A delayed request created it again; or the disk has no rename that replaces nothing.
        await store.delete_directory(layout.work, recursive=True)


async def keep_outcome(context: StageContext) -> None:
    """Removes all of a committed job's directory except the copy of its outcome, `kept`, and `opened`. Idempotent."""
    # Without `opened`, a setup of the same id that found the directory before the job was opened could close
    # it. Cost: that of `end_without_removal`, one listing, and the deletes.
    layout = context.layout
    await end_without_removal(context)
    kept = {layout.kept, layout.opened}
    children = await children_of(context.store, layout.job_directory)
    await _delete(context, [child for child in children if child.path not in kept])


async def remove_leftover(context: StageContext, directory: StorePath) -> None:
    """Removes a directory in `_temporary` that a setup or a removal left unfinished: 2 calls."""
    if directory.name.endswith(REMOVED) or not await _rename_away(
        context, directory, directory.parent / f"{directory.name}{REMOVED}"
    ):
        await context.store.delete_directory(directory, recursive=True)
    await _remove_shared(context)


async def remove_leftovers(context: StageContext) -> None:
    """Deletes directories of the job's id that removals left unfinished: one listing. A failure is logged."""
    layout = context.layout
    try:
        names = await list_job_directories(context.store, layout.temporary, layout.job_id)
        for name in names:
            if name.suffix.endswith(REMOVED):
                await remove_leftover(context, layout.temporary / f"{name.job_id}~{name.setup}{name.suffix}")
        await _remove_shared(context)
    except (StoreNotFoundError, StoreNotADirectoryError):
        return
    except CommitterError as error:
        _log.warning("could not remove what is left of job %s: %s", layout.job_id, error)


async def remove_failed_setup(context: StageContext) -> bool:
    """Removes what a failed setup created, shielded and bounded; logs errors, since the setup's error matters more."""
    done = False

    async def remove() -> None:
        nonlocal done
        layout = context.layout
        try:
            if not await _rename_away(context, layout.building, layout.removed):
                await context.store.delete_directory(layout.building, recursive=True)
            await remove_directory(context)
            if layout.beside is not None:
                await context.store.delete_directory(layout.beside, recursive=True)
        except CommitterError as error:
            _log.warning("could not remove %s after a failed setup: %s", layout.job_directory, error)
            return
        done = True

    await run_shielded(remove, bound_s=UNDO_BOUND_S)
    return done


async def remove_temporary(context: StageContext) -> None:
    """Deletes the entries of a finished job, then the directories that jobs share if they are empty."""
    with suppress(StoreError):
        await drop_entries(context)
    await _remove_shared(context)


async def _remove_shared(context: StageContext) -> None:
    layout = context.layout
    for directory in (*layout.shared, layout.temporary):
        try:
            await context.store.delete_directory(directory, recursive=False)
        except StoreError:
            # Another job is in it, or a late task attempt has just written there: `list_jobs` shows both.
            return


async def _rename_away(context: StageContext, directory: StorePath, removed: StorePath) -> bool:
    """Renames a directory and deletes it; returns False where this store cannot."""
    store = context.store
    if not (store.capabilities.directories and store.capabilities.atomic_directory_rename):
        return False

    async def rename() -> bool:
        try:
            await store.rename_directory(directory, removed)
        except StoreNotFoundError:
            return True
        except StoreExistsError:
            return False
        return True

    for _try in range(_TRIES):
        try:
            renamed = await looking_again(rename)
        except UnsupportedError:
            # A disk shows this only when a rename is tried; from now on the store's capabilities say it, too.
            return False
        # On a disk that reorders them, no delete may survive a power loss that the rename does not survive.
        await sync_directories(context, [directory.parent], missing_ok=True)
        # It may also be from a removal that died, beside a directory that a delayed request created again.
        await store.delete_directory(removed, recursive=True)
        if renamed:
            return True
    raise JobStateError(
        f"{directory} was made again each of {_TRIES} times that it was removed",
        operation="remove_job",
        path=directory,
        next_step="find out which process writes there, and end it; then make the call again",
    )


async def _remove_in_order(context: StageContext) -> None:
    layout, store = context.layout, context.store
    await _delete(context, [FileStatus(layout.setup, False, 0)])
    children = await children_of(store, layout.job_directory)
    standing = {child.path for child in children}
    last = next((path for path in (layout.outcome, layout.decision, layout.opened) if path in standing), None)
    # A disk that reorders deletes must not lose the last record while anything else of the job is left.
    await sync_directories(context, [layout.job_directory], missing_ok=True)
    await _delete(context, [child for child in children if child.path != last])
    await sync_directories(context, [layout.job_directory], missing_ok=True)
    if last is not None:
        await _delete(context, [FileStatus(last, False, 0)])
    try:
        await store.delete_directory(layout.job_directory, recursive=False)
    except StoreNotEmptyError:
        if not store.capabilities.directories:
            await delete_odd(store, layout.job_directory)
        await store.delete_directory(layout.job_directory, recursive=True)


async def _delete(context: StageContext, children: Iterable[FileStatus]) -> None:
    """Deletes files and directories, files in batches where the store can; raises what failed."""
    store, found = context.store, list(children)
    files = [child.path for child in found if not child.is_directory]
    able = BATCH_DELETE.of(store)
    alone: list[FileStatus] = [child for child in found if child.is_directory]
    if able is None or len(files) < 2:
        alone += [child for child in found if not child.is_directory]
        able = None

    async def in_batches() -> list[StoreError]:
        failures: list[StoreError] = []
        if able is not None:
            most = store.capabilities.max_batch_delete or len(files)
            for first in range(0, len(files), most):
                failures.extend((await able.delete_files(dict.fromkeys(files[first : first + most]))).values())
        return failures

    together, singly = await both_in_full(in_batches(), delete_each(context, alone))
    raise_failures(together + singly)


async def delete_each(context: StageContext, found: Iterable[FileStatus]) -> list[StoreError]:
    """Deletes files and directories concurrently, one call each; returns the errors."""
    failures: list[StoreError] = []

    async def delete(child: FileStatus) -> None:
        try:
            if child.is_directory:
                await context.store.delete_directory(child.path, recursive=True)
            else:
                await context.store.delete_file(child.path)
        except StoreError as error:
            failures.append(error)

    await run_workers(found, delete, workers=context.config.io_concurrency, operation="cleanup")
    return failures


def raise_failures(failures: list[StoreError]) -> None:
    """Raises the errors as one."""
    if failures:
        raise failures[0] if len(failures) == 1 else MultipleError.of("cleanup", failures)
