"""CleanupJob: removes what a job that is over keeps, all but what says how it ended; RemoveJob: the rest."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import StoreError, StoreNotFoundError
from committer.events import names
from committer.flow.together import together
from committer.logs import job_logger
from committer.records.job_state import JobOutcome, encode_record
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import looking_again
from committer.stages.remove.abort_uploads import AbortUploads
from committer.stages.remove.removal import (
    delete_each,
    keep_outcome,
    raise_failures,
    remove_directory,
    remove_temporary,
)
from committer.stages.state.job_directory import list_job_directories
from committer.stores.helpers import children_of

_log = job_logger("committer.stages")


class CleanupJob(Stage[None, list[str]]):
    """Removes what tasks of the job wrote, and what it has outside its own directory.

    The records that say how the job ended stay: a crash half way leaves a job that any driver cleans up again. Unlike
    Hadoop's, it never touches another job's directory.

    Preconditions: the job ended, or was aborted, or the caller vouches for it.
    Postconditions: nothing of the job is left but its own directory; `RemoveJob` removes that.
    Returns: the uploads that `AbortUploads` leaves alone: they may be another job's.
    Failure modes: what cannot be deleted stays, and the error says so; the job's result does not change.
    Cost: one delete a task attempt, none where the store deletes trees in one call or with `cleanup_base_first`; one
    a root outside the destination; on stores with uploads those of `AbortUploads`; where task records are on another
    store 2 there; where the job shares directories with others two listings, and one of `_temporary`.
    Hadoop: ``CleanupJobStage``.
    """

    name = statistic = names.JOB_STAGE_CLEANUP

    async def execute(self, value: None) -> list[str]:
        """Ends uploads, then deletes, task attempts in parallel."""
        context, layout = self.context, self.context.layout
        left_alone: list[str] = []
        if context.store.capabilities.multipart:
            # Before what says which uploads are the job's is deleted.
            left_alone = await AbortUploads(context).run(None)
        await together(
            self._delete_attempts(),
            delete_outside(context),
            self._delete_elsewhere(),
            *map(self._remove_probe, sorted(layout.roots)),
        )
        return left_alone

    async def _delete_attempts(self) -> None:
        """Deletes task attempts' directories many at once, where one call does not delete all of them as well."""
        context, layout = self.context, self.context.layout
        base_first = context.config.cleanup_base_first or context.store.capabilities.deletes_trees or layout.is_sealed
        if base_first or not (context.config.cleanup_parallel_delete and context.store.capabilities.directories):
            return
        standing = {child.path for child in await children_of(context.store, layout.drivers)}
        places = [layout.tasks, *sorted({layout.sealed, layout.tasks_fenced} & standing - {layout.tasks})]
        found = [child for place in places for child in await children_of(context.store, place)]
        failures: list[StoreError] = []
        await delete_each(context, (child for child in found if child.is_directory), failures)
        for error in failures:
            # The removal of the job's directory deletes it as well, and raises what it cannot delete.
            _log.warning("could not delete %s: %s", error.path, error)

    async def _delete_elsewhere(self) -> None:
        """Removes the job's task records where they are on another store."""
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
            # Of this job's id alone; another committer's files may be in it.
            await context.records.delete_directory(root.parent, recursive=False)
        except StoreError as error:
            _log.debug("%s stays: %s", root.parent, error)

    async def _remove_probe(self, root: str) -> None:
        """Removes what a driver that died in the job's setup left outside the destination."""
        try:
            await self.context.store.delete_directory(self.context.layout.probe_in(root), recursive=False)
        except StoreError as error:
            _log.warning("could not look for what the setup of job %s left: %s", self.context.layout.job_id, error)


class RemoveJob(Stage[JobOutcome | None, None]):
    """Removes the job's directory; of a job that keeps its outcome all but a copy of that.

    Preconditions: `CleanupJob` ran; whatever else answers "did the job commit" (the summary) is saved.
    Cost: see `remove_directory` and `keep_outcome`; for a kept outcome one call more.
    """

    name = "job_stage_cleanup_last_records"

    async def execute(self, value: JobOutcome | None) -> None:
        """Removes it.

        Args:
            value: The outcome that is kept: of a job whose outcome this driver found committed, and whose setup record
                it saw after that, so that the copy is true however late it arrives. None keeps nothing.
        """
        if value is None:
            await remove_directory(self.context)
            if self.context.layout.shared:
                # What a driver gave back meanwhile: it comes from the job's directory, so nothing more can follow.
                await delete_outside(self.context)
                await remove_temporary(self.context)
            return
        await put_kept(self.context, value)
        await keep_outcome(self.context)


async def delete_outside(context: StageContext) -> None:
    """Deletes what the job has where other jobs have theirs.

    Names there may be another job's of the same id. A job of that id is only set up where nothing of an earlier one is
    left there: so what was listed before no other directory of the id was found is this job's.
    """
    layout = context.layout
    outside = await context.forms.outside(context)
    if not outside:
        return
    if layout.shared and await _another_stands(context):
        _log.warning("what tasks of job %s committed stays: another job of that id is there", layout.job_id)
        return
    failures: list[StoreError] = []
    await delete_each(context, outside, failures)
    raise_failures(failures)


async def _another_stands(context: StageContext) -> bool:
    layout = context.layout
    try:
        found = await list_job_directories(context.store, layout.temporary, layout.job_id)
    except StoreNotFoundError:
        return False
    return any(not name.suffix and name.setup != layout.setup_name for name in found)


async def put_kept(context: StageContext, outcome: JobOutcome) -> None:
    """Writes the copy of the outcome that a committed job keeps: one call."""
    layout, data = context.layout, encode_record(outcome)
    temporary = layout.temporary_of(layout.kept, context.driver)
    # Each driver writes what the outcome says, so a second request changes nothing. Where there is no place for it any
    # more another driver wrote it, and removed the rest.
    with suppress(StoreNotFoundError):
        await looking_again(lambda: context.store.put(layout.kept, data, temporary=temporary, durable=context.durable))
