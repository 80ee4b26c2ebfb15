"""Stages that remove what a finished job keeps: first all but its last records, then its directory."""

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
from committer.stages.remove.removal import delete_each, keep_outcome, raise_failures, remove_directory
from committer.stages.state.job_directory import list_job_directories
from committer.stores.helpers import children_of

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
        context, layout = self.context, self.context.layout
        left_alone: list[str] = []
        if context.store.capabilities.multipart:
            # First, since the lists that name the job's uploads are deleted below.
            left_alone = await AbortUploads(context).run(None)
        await together(
            self._delete_attempts(),
            delete_outside(context),
            self._delete_elsewhere(),
            *map(self._remove_probe, sorted(layout.roots)),
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

    async def _remove_probe(self, root: str) -> None:
        """Removes the probe that a driver left which died in the job's setup."""
        try:
            await self.context.store.delete_directory(self.context.layout.probe_in(root), recursive=False)
        except StoreError as error:
            _log.warning("could not look for what the setup of job %s left: %s", self.context.layout.job_id, error)


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
    layout, data = context.layout, encode_record(outcome)
    temporary = layout.temporary_of(layout.kept, context.driver)
    # Every driver writes the same, so a second request changes nothing. If the directory is gone, another
    # driver has written it and removed the rest.
    with suppress(StoreNotFoundError):
        await looking_again(lambda: context.store.put(layout.kept, data, temporary=temporary, durable=context.durable))
