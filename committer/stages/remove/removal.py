"""Removes what a finished job keeps: first all but its last records, then its directory.

No other job ever uses a name in that directory, so a delayed request only affects this job.
"""

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
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both_in_full, together
from committer.flow.workers import run_workers
from committer.layout import REMOVED
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.job_state import JobOutcome, encode_record
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import looking_again
from committer.stages.decide.entries import drop_entries
from committer.stages.durability import sync_directories
from committer.stages.remove.abort_uploads import AbortUploads
from committer.stages.state.job_directory import list_job_directories
from committer.stages.state.own_records import put_record
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


async def remove_probes(context: StageContext) -> None:
    """Removes the probes that a driver left which died in the job's setup: one call for each root; logs errors."""
    for root in sorted(context.layout.roots):
        try:
            await context.store.delete_directory(context.layout.probe_in(root), recursive=False)
        except StoreError as error:
            _log.warning("could not look for what the setup of job %s left: %s", context.layout.job_id, error)


async def remove_leftover(context: StageContext, directory: StorePath) -> None:
    """Removes a directory in `_temporary` that a setup or a removal left unfinished: 2 calls, and one for each root."""
    await remove_probes(context)
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
    if store.capabilities.atomic_file_rename:
        # A slow driver that finds no `opened` takes the job for rolled back, and puts back what old files it finds.
        await _delete(context, [child for child in children if child.path == layout.work])
        children = [child for child in children if child.path != layout.work]
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


_log = job_logger("committer.stages")


class CleanupJob(Stage[None, list[str]]):
    """The stage that removes what tasks of the job wrote, and what the job has outside its own directory.

    The records that tell how the job ended stay, so any driver can repeat a cleanup that crashed. Unlike
    Hadoop's, it never touches another job's directory.

    Preconditions: the job ended, or was aborted, or the caller vouches for it.
    Postconditions: nothing of the job is left but its own directory, which `RemoveJob` removes.
    Returns: the uploads that `AbortUploads` left alone, since they may be another job's.
    Failure modes: what cannot be deleted stays, and the error says so; the job's result does not change.
    Cost: one delete per task attempt, none where the store deletes trees in one call or with
    `cleanup_base_first`; one per root; that of `AbortUploads` on stores with uploads; 2 if task records are on
    another store; two listings if the job shares directories with others, and one of `_temporary`.
    Hadoop: ``CleanupJobStage``.
    """

    name = statistic = names.JOB_STAGE_CLEANUP

    async def execute(self, value: None) -> list[str]:
        """Aborts uploads, then deletes concurrently."""
        context = self.context
        left_alone: list[str] = []
        if context.store.capabilities.multipart:
            # First, since the lists that name the job's uploads are deleted below.
            left_alone = await AbortUploads(context).run(None)
        await together(
            self._delete_attempts(), delete_outside(context), self._delete_elsewhere(), remove_probes(context)
        )
        return left_alone

    async def _delete_attempts(self) -> None:
        """Deletes task attempts' directories concurrently, unless one call deletes them all."""
        context, layout = self.context, self.context.layout
        base_first = context.config.cleanup_base_first or context.store.capabilities.deletes_trees or layout.is_sealed
        if base_first or not (context.config.cleanup_parallel_delete and context.store.capabilities.directories):
            return
        standing = {child.path for child in await children_of(context.store, layout.work)}
        places = [layout.tasks, *sorted({layout.sealed, layout.tasks_fenced} & standing - {layout.tasks})]
        found = [child for place in places for child in await children_of(context.store, place)]
        for error in await delete_each(context, (child for child in found if child.is_directory)):
            # The removal of the job's directory tries again and raises.
            _log.warning("could not delete %s: %s", error.path, error)

    async def _delete_elsewhere(self) -> None:
        """Removes the job's task records on another store."""
        context, layout = self.context, self.context.layout
        root = layout.record_root
        if root is None or context.records is None:
            if context.spec.records_at:
                _log.warning(
                    "what tasks of job %s recorded stays at %s: %s was not given, and a record may not name it",
                    layout.job_id,
                    context.spec.records_at,
                    "pending_set_directory",
                )
            return
        await context.records.delete_directory(root, recursive=True)
        try:
            # The parent is this job id's alone, but may contain another committer's files.
            await context.records.delete_directory(root.parent, recursive=False)
        except StoreError as error:
            _log.debug("%s stays: %s", root.parent, error)


class RemoveJob(Stage[JobOutcome | None, None]):
    """The stage that removes the job's directory, except a copy of its outcome if the job keeps it.

    Preconditions: `CleanupJob` ran; the summary, which also tells whether the job committed, is saved.
    Cost: see `remove_directory` and `keep_outcome`; for a kept outcome one call more.
    """

    name = "job_stage_cleanup_last_records"

    async def execute(self, value: JobOutcome | None) -> None:
        """Removes the directory; `value` is the outcome to keep, if any."""
        # This driver must have read the setup record after that outcome, so that the copy is true however
        # late it is written.
        if value is None:
            await remove_directory(self.context)
            if self.context.layout.shared:
                # What a driver gave back, or a late task committed, since the listing before.
                await delete_outside(self.context)
                await remove_temporary(self.context)
            return
        await put_kept(self.context, value)
        await keep_outcome(self.context)


async def delete_outside(context: StageContext) -> None:
    """Deletes what the job has in directories that it shares with other jobs."""
    # Names there may be another job's of the same id. Such a job is only set up once nothing of an earlier
    # one is left there: so what was listed before no other directory of the id was found is this job's.
    layout = context.layout
    outside = await context.forms.outside(context)
    if not outside:
        return
    if layout.shared and await _another_stands(context):
        _log.warning("what tasks of job %s committed stays: another job of that id is there", layout.job_id)
        return
    raise_failures(await delete_each(context, outside))


async def _another_stands(context: StageContext) -> bool:
    layout = context.layout
    try:
        found = await list_job_directories(context.store, layout.temporary, layout.job_id)
    except StoreNotFoundError:
        return False
    return any(not name.suffix and name.setup != layout.setup_name for name in found)


async def put_kept(context: StageContext, outcome: JobOutcome) -> None:
    """Writes the copy of the outcome that a committed job keeps: one call."""
    path, data = context.layout.kept, encode_record(outcome)
    # Every driver writes the same, so a second request changes nothing. If the directory is gone, another
    # driver has written it and removed the rest.
    with suppress(StoreNotFoundError):
        await looking_again(lambda: put_record(context, path, data))
