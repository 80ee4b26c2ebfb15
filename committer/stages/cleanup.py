"""CleanupJob: removes the job's own directory, what tells the job's fate last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from committer.errors import (
    CommitterError,
    DestinationNotFoundError,
    MultipleError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
)
from committer.events import names
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import together
from committer.flow.workers import run_workers
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stages.abort_uploads import AbortUploads
from committer.stages.base import Stage, StageContext
from committer.stages.durability import sync_directories
from committer.stages.job_stands import set_up_anew
from committer.stages.other_setup import is_anew
from committer.stages.own_records import OWN_RECORD_LIMIT
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, exists
from committer.stores.odd_names import delete_odd

_log = job_logger("committer.stages")


Found: TypeAlias = dict[StorePath, list[FileStatus]]
"""What stands in some directories."""


class CleanupJob(Stage[Found | None, list[str]]):
    """Removes everything of the job but its decision and outcome, so that a crash half way leaves its fate readable.

    Unlike Hadoop's, it never touches another job's directory: `_temporary` itself goes only when it is empty.

    Preconditions: the job ended (outcome written), or was aborted, or the caller vouches for it.
    Postconditions: of the job's directory only `decision` and `outcome` are left; `RemoveLastRecords` removes them,
    `RemoveDecision` leaves an outcome that is kept. Of what it keeps beside nothing is left.
    Returns: the uploads that `AbortUploads` leaves alone: they may be another job's.
    Failure modes: `JobNotFoundError` where the id was set up anew since: nothing was deleted. What cannot be deleted
    stays, and the error says so; the job's result does not change.
    Cost: one delete a task attempt, or one in all with `cleanup_base_first`; one a root outside the destination; on
    stores with uploads those of `AbortUploads`.
    Hadoop: ``CleanupJobStage``.
    """

    name = statistic = names.JOB_STAGE_CLEANUP

    async def execute(self, value: Found | None) -> list[str]:
        """Deletes children of the job's directory, task attempts in parallel before their parent.

        Args:
            value: What `look_what_to_clean` found since the job ended; None looks now.
        """
        layout = self.context.layout
        left_alone: list[str] = []
        found = dict(value or {})
        looks = [] if found else [_look_into(self.context, found)]
        await together(*looks, *map(self._remove_probe, sorted(layout.roots)))
        children = found.pop(layout.job_directory)
        if await is_anew(self.context, {child.path.name: child for child in children}):
            raise set_up_anew(layout, self.name)
        if self.context.store.capabilities.multipart:
            # Before what says which uploads are the job's is deleted.
            left_alone = await AbortUploads(self.context).run(None)
        fate = {layout.decision, layout.outcome}
        to_delete = [child for child in children if child.path not in fate or child.is_directory]
        # Before the setup record, which says what else is the job's. What fails is tried once more below.
        outside = await self.context.forms.outside(self.context)
        attempts = [attempt for attempts in found.values() for attempt in attempts]
        failed = await self._delete_in_parallel([*attempts, *outside])
        await _remove_shared(self.context)
        failures = await self._delete_in_parallel([*to_delete, *(child for child in outside if child.path in failed)])
        if failures:
            errors = list(failures.values())
            raise errors[0] if len(errors) == 1 else MultipleError.of(self.name, errors)
        return left_alone

    async def _remove_probe(self, root: str) -> None:
        """Removes what a driver that died in the job's setup left outside the destination."""
        try:
            await self.context.store.delete_directory(self.context.layout.probe_in(root), recursive=False)
        except StoreError as error:
            _log.warning("could not look for what the setup of job %s left: %s", self.context.layout.job_id, error)

    async def _delete_in_parallel(self, to_delete: Iterable[FileStatus]) -> dict[StorePath, StoreError]:
        """Deletes all, one failure not stopping the others; returns what failed."""
        failures: dict[StorePath, StoreError] = {}

        async def delete(child: FileStatus) -> None:
            try:
                await _delete(self.context, child)
            except StoreError as error:
                failures[child.path] = error

        await run_workers(to_delete, delete, workers=self.context.config.io_concurrency, operation=self.name)
        return failures


async def look_what_to_clean(context: StageContext) -> Found:
    """What stands in the places that a cleanup empties; at most 3 listings, at once."""
    found: Found = {}
    await _look_into(context, found)
    return found


async def _look_into(context: StageContext, found: Found) -> None:
    layout, config = context.layout, context.config
    in_parallel = config.cleanup_parallel_delete and not config.cleanup_base_first

    async def look(place: StorePath) -> None:
        found[place] = await children_of(context.store, place)

    places = [layout.job_directory, *([layout.tasks, layout.tasks_fenced] if in_parallel else [])]
    await together(*map(look, places))


class RemoveLastRecords(Stage[None, None]):
    """Removes decision and outcome, the job's directory, and `_temporary` when no other job is in it.

    The outcome goes last: as long as anything of a committed job stands, it says so.

    Preconditions: `CleanupJob` ran; whatever else answers "did the job commit" (the summary) is saved.
    Cost: 4 calls.
    """

    name = "job_stage_cleanup_last_records"

    async def execute(self, value: None) -> None:
        """Deletes records, then empty directories."""
        layout, store = self.context.layout, self.context.store
        # A disk that reorders deletes must not lose the job's fate while anything of the job is left.
        await sync_directories(self.context, [layout.job_directory], missing_ok=True)
        await store.delete_file(layout.decision)
        await sync_directories(self.context, [layout.job_directory], missing_ok=True)
        await store.delete_file(layout.outcome)
        await remove_emptied(self.context)


class RemoveDecision(Stage[None, None]):
    """Removes the decision of a job whose outcome is kept: what `RemoveLastRecords` does, but for the outcome.

    Preconditions: `CleanupJob` ran; the outcome is marked as kept.
    Cost: 1 call.
    """

    name = "job_stage_cleanup_decision"

    async def execute(self, value: None) -> None:
        """Deletes the decision."""
        layout = self.context.layout
        await sync_directories(self.context, [layout.job_directory], missing_ok=True)
        await self.context.store.delete_file(layout.decision)


async def _remove_shared(context: StageContext) -> None:
    """Removes the directories that the job shares with others where nothing is in them any more: a call each."""
    for directory in context.layout.shared:
        try:
            await context.store.delete_directory(directory, recursive=False)
        except StoreError:
            # Another job's output is there.
            return


async def remove_emptied(context: StageContext) -> None:
    """Removes a job's directory when nothing is in it any more, then `_temporary` likewise: at most 2 calls.

    Where late writes make directories again, the job attempt's and the drivers' too, when nothing but the place for
    what is moved aside is in them: 3 calls, 5 more where one stands. A job that is alive has its setup record there.
    """
    layout, store = context.layout, context.store
    emptied = [layout.job_directory, layout.temporary]
    if store.capabilities.implicit_parents:
        made = {child.path for child in await children_of(store, layout.job_directory)}
        if made and made <= {layout.job_attempt_directory, layout.drivers}:
            ordered = sorted(made, key=str)
            inside = [child.path for place in ordered for child in await children_of(store, place)]
            if set(inside) <= {layout.superseded}:
                emptied = [*inside, *ordered, *emptied]
    for directory in emptied:
        try:
            try:
                await store.delete_directory(directory, recursive=False)
            except StoreNotEmptyError:
                if store.capabilities.directories or directory != layout.job_directory:
                    raise
                await delete_odd(store, directory)
                await store.delete_directory(directory, recursive=False)
        except StoreError:
            # Another job lives in `_temporary`, or a late task attempt just wrote into the job's directory: both are
            # found by list_jobs, and neither changes this job's result.
            return


async def _delete(context: StageContext, child: FileStatus) -> None:
    if child.is_directory:
        await context.store.delete_directory(child.path, recursive=True)
    else:
        await context.store.delete_file(child.path)


async def remove_job_directory(context: StageContext, claim: bytes) -> bool:
    """Removes what a failed setup made of a job's directory: shielded, bounded, and silent.

    The whole directory where the setup record is this driver's; an empty one where there is none; else nothing: it is
    another driver's. An outcome that an earlier job of this id keeps stays. The error that brought us here is the one
    the user must see; what is left is found by `list_jobs`.

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
                    await context.store.delete_file(layout.setup)
                    done = True
                    return
                # In this order: directories that stand without the record are taken for a job of Hadoop's.
                for directory in dict.fromkeys([layout.job_attempt_directory, layout.drivers, layout.job_directory]):
                    await context.store.delete_directory(directory, recursive=True)
        except CommitterError as error:
            _log.warning("could not remove %s after a failed setup: %s", layout.job_directory, error)
            return
        done = True
        await _remove_shared(context)
        await remove_emptied(context)

    await run_shielded(remove, bound_s=UNDO_BOUND_S)
    return done


async def _claimed(context: StageContext) -> bytes | None:
    try:
        return await context.store.read(context.layout.setup, limit=OWN_RECORD_LIMIT)
    except (StoreNotFoundError, StoreIsADirectoryError, StoreNotADirectoryError, DestinationNotFoundError):
        return None
