"""CleanupJob: removes the job's own directory, what tells the job's fate last."""

from __future__ import annotations

from committer.errors import (
    CommitterError,
    DestinationNotFoundError,
    JobNotFoundError,
    MultipleError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both_in_full, together
from committer.logs import job_logger
from committer.records.job_state import JobSetup, limit_of
from committer.stages.abort_uploads import AbortUploads
from committer.stages.base import Stage, StageContext
from committer.stages.durability import sync_directories
from committer.stages.job_stands import is_of_other_setup, set_up_anew
from committer.stages.removal import Removal, removal_of, remove_emptied, remove_records, remove_shared, take_out
from committer.stages.removal_base import OPERATION
from committer.stores.base import FileStatus
from committer.stores.helpers import exists

_log = job_logger("committer.stages")


class CleanupJob(Stage[Removal | None, list[str]]):
    """Removes everything of the job but its decision and outcome, so that a crash half way leaves its fate readable.

    Unlike Hadoop's, it never touches another job's directory: `_temporary` itself goes only when it is empty.

    Args:
        context: The job.
        ended: Its outcome stands, and says all that is to be known of it: the decision goes beside what is deleted. A
            crash leaves the outcome, or both.

    Preconditions: the job ended (outcome written), or was aborted, or the caller vouches for it.
    Postconditions: of the job's directory only `decision` and `outcome` are left, and a directory of this process, with
    small records; `RemoveLastRecords` removes them, `RemoveDecision` leaves an outcome that is kept. Of what it keeps
    beside nothing is left.
    Returns: the uploads that `AbortUploads` leaves alone: they may be another job's.
    Failure modes: `JobNotFoundError` where the id was set up anew since: nothing was deleted. What cannot be deleted
    stays, and the error says so; the job's result does not change.
    Cost: one delete a task attempt, or one in all where the store deletes trees in one call, or with
    `cleanup_base_first`; one a root outside the destination; one
    rename, and where directories are renamed one more in all, for each thing in the job's directory; on stores with
    uploads those of `AbortUploads`; where task records are on another store 2, and 2 there; where the job shares
    directories with others whose output is there, their listings once more.
    Hadoop: ``CleanupJobStage``.
    """

    name = statistic = names.JOB_STAGE_CLEANUP

    def __init__(self, context: StageContext, *, ended: bool = False) -> None:
        super().__init__(context)
        self._ended = ended

    async def execute(self, value: Removal | None) -> list[str]:
        """Takes all out of the job's directory, then deletes it, task attempts in parallel before their parent.

        Args:
            value: The removal, which may have looked since the job ended, and which `RemoveLastRecords` goes on with;
                None for one of this stage's own.
        """
        layout = self.context.layout
        removal = value or removal_of(self.context)
        await together(removal.begin(), *map(self._remove_probe, sorted(layout.roots)))
        left_alone: list[str] = []
        if self.context.store.capabilities.multipart:
            # Before what says which uploads are the job's is deleted.
            left_alone = await AbortUploads(self.context).run(removal.run_lists)
        await self._remove_elsewhere()
        fate = {layout.decision, layout.outcome}
        to_take = [child for child in removal.children if child.path not in fate or child.is_directory]
        # Before the setup record, which says what else is the job's.
        failures = await self._take_outside(removal)
        failures = failures or await removal.take_all(to_take)
        if not failures and self._ended:
            _taken, failures = await both_in_full(removal.take_decision(), removal.empty())
        elif not failures:
            failures = await removal.empty()
        if failures:
            raise failures[0] if len(failures) == 1 else MultipleError.of(self.name, failures)
        if value is None:
            await removal.end()
        return left_alone

    async def _take_outside(self, removal: Removal) -> list[StoreError]:
        """Takes what the job has where other jobs have theirs. What failed is returned.

        A driver that gives back what it took, or a late task attempt, may have put something there since that was
        looked at. It comes from places that are taken by now, so a second look finds all of it.
        """
        failures = await removal.take_all(removal.outside)
        if await remove_shared(self.context) or failures:
            return failures
        await removal.look_outside()
        if removal.outside:
            failures = await removal.take_all(removal.outside)
            await remove_shared(self.context)
        return failures

    async def _remove_elsewhere(self) -> None:
        """Removes the job's task records where they are on another store: before the setup record, which says so.

        As in `removal_base.delete`, a process that stops between its look and its delete may find another job's.
        """
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
        if await is_of_other_setup(context.store, layout):
            raise set_up_anew(layout, OPERATION)
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


class RemoveLastRecords(Stage[Removal | None, None]):
    """Removes decision and outcome, the job's directory, and `_temporary` when no other job is in it.

    The outcome goes last: as long as anything of a committed job stands, it says so.

    Preconditions: `CleanupJob` ran; whatever else answers "did the job commit" (the summary) is saved.
    Cost: 4 calls; where directories are renamed one more, and without that removal 4.
    """

    name = "job_stage_cleanup_last_records"

    async def execute(self, value: Removal | None) -> None:
        """Removes records, then empty directories.

        Args:
            value: The removal of `CleanupJob`; None for one of this stage's own.
        """
        directory, outcome = self.context.layout.job_directory, self.context.layout.outcome

        async def take(removal: Removal) -> None:
            # A disk that reorders deletes must not lose the job's fate while anything of the job is left.
            await sync_directories(self.context, [directory], missing_ok=True)
            await removal.take_decision()
            await sync_directories(self.context, [directory], missing_ok=True)
            await removal.take(FileStatus(outcome, False, 0))

        # Else another driver did the rest, and the id is another job's by now.
        if await take_out(self.context, take, value):
            await remove_emptied(self.context)


class RemoveDecision(Stage[Removal | None, None]):
    """Removes the decision of a job whose outcome is kept: what `RemoveLastRecords` does, but for the outcome.

    Preconditions: `CleanupJob` ran; the outcome is marked as kept.
    Cost: 1 call, where directories are renamed 2.
    """

    name = "job_stage_cleanup_decision"

    async def execute(self, value: Removal | None) -> None:
        """Removes the decision, with `CleanupJob`'s removal or one of this stage's own."""

        async def take(removal: Removal) -> None:
            await sync_directories(self.context, [self.context.layout.job_directory], missing_ok=True)
            await removal.take_decision()

        await take_out(self.context, take, value)


async def remove_job_directory(context: StageContext, claim: bytes) -> bool:
    """Removes what a failed setup made of a job's directory: shielded, bounded, and silent.

    The whole directory where the setup record is this driver's, and no driver that joined the job decided it; an empty
    one where there is none; else it is another driver's, and nothing goes but this one's directory. An outcome that an
    earlier job of this id keeps stays. The error that brought us here is the one the user must see; what is left is
    found by `list_jobs`.

    Args:
        context: The job.
        claim: The setup record that this driver wrote, or was about to write.

    Returns:
        Whether nothing of this driver's is left.
    """
    done = False

    async def remove() -> None:
        nonlocal done
        layout = context.layout
        try:
            if await _claimed(context) == claim:
                if await exists(context.store, layout.outcome):
                    # The id was another job's, which committed and keeps its outcome: only the claim came too late.
                    await remove_records(context, [layout.setup])
                    done = True
                    return
                if not await _take_all(context):
                    _log.warning("job %s was decided while it was set up: it stays", layout.job_id)
                    return
            elif layout.setup_name:
                # No other driver's is called so.
                await context.store.delete_directory(layout.drivers, recursive=True)
        except JobNotFoundError:
            pass
        except CommitterError as error:
            _log.warning("could not remove %s after a failed setup: %s", layout.job_directory, error)
            return
        done = True
        await remove_shared(context)
        await remove_emptied(context)

    await run_shielded(remove, bound_s=UNDO_BOUND_S)
    return done


async def _take_all(context: StageContext) -> bool:
    """Whether all of a job's directory was taken: nothing, where a decision stands in it."""
    removal = removal_of(context)
    await removal.look()
    if any(child.path == context.layout.decision for child in removal.children):
        return False
    await removal.begin()
    # In this order: directories that stand without the record are taken for a job of Hadoop's.
    children = sorted(removal.children, key=lambda child: not child.is_directory)
    for some in (
        (child for child in children if child.is_directory),
        (child for child in children if not child.is_directory),
    ):
        failures = await removal.take_all(some)
        if failures:
            raise failures[0]
    await removal.end()
    return True


async def _claimed(context: StageContext) -> bytes | None:
    try:
        return await context.store.read(context.layout.setup, limit=limit_of(JobSetup))
    except (StoreNotFoundError, StoreIsADirectoryError, StoreNotADirectoryError, DestinationNotFoundError):
        return None
