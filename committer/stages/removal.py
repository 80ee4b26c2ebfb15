"""Taking what is over out of a job's directory, and nothing of a job that is set up under the id meanwhile.

A process that removes what a job left may be stopped at any call, while another one does the rest and the id is set up
anew. What it goes on with must not reach the new job, whose records have the same names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from committer.errors import JobNotFoundError, StoreError, StoreNotEmptyError
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.job_directory import JobDirectory
from committer.stages.removal_base import Removal, delete
from committer.stages.removal_by_identity import RemovalByIdentity
from committer.stages.removal_by_rename import RemovalByRename
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of
from committer.stores.odd_names import delete_odd

__all__ = [
    "Removal",
    "RemovalByName",
    "removal_of",
    "remove_dead_removals",
    "remove_directory",
    "remove_emptied",
    "remove_records",
    "remove_shared",
    "take_out",
]

_log = job_logger("committer.stages")


def removal_of(context: StageContext) -> Removal:
    """How this job's store removes what a job left."""
    can = context.store.capabilities
    if not can.directories:
        return RemovalByIdentity(context)
    return RemovalByRename(context) if can.atomic_directory_rename else RemovalByName(context)


class RemovalByName(Removal):
    """Where directories are real, and cannot be renamed in one step: by name, each after a look whose job stands."""

    async def take(self, child: FileStatus) -> None:
        """See `Removal.take`. 2 calls."""
        await delete(self.context, child)

    async def empty(self) -> list[StoreError]:
        """Nothing is left to do."""
        return []

    async def end(self) -> None:
        """Nothing is left to do."""


async def take_out(
    context: StageContext, what: Callable[[Removal], Awaitable[None]], begun: Removal | None = None
) -> bool:
    """Takes things out of a job's directory; see `Removal` for the order.

    Args:
        context: The job.
        what: Takes them.
        begun: The removal to go on with, which was begun; None begins one. It is ended then.

    Returns:
        Whether they were taken. Else the id was set up anew meanwhile, so another process had taken them before.
    """
    removal = begun or removal_of(context)
    try:
        if begun is None:
            await removal.begin()
        await what(removal)
    except JobNotFoundError:
        return False
    await removal.end()
    return True


async def remove_directory(context: StageContext, directory: StorePath) -> None:
    """Removes a directory of the job whose name other setups' have too, where it cannot be fenced by a rename."""
    await take_out(context, lambda removal: removal.take(FileStatus(directory, True, 0)))


async def remove_records(context: StageContext, records: Iterable[StorePath]) -> None:
    """Removes records of this process's own, or of its setup, that say nothing any more; none of another setup's."""

    async def take(removal: Removal) -> None:
        for record in records:
            await removal.take(FileStatus(record, False, 0))

    await take_out(context, take)


async def remove_shared(context: StageContext) -> bool:
    """Removes the directories that the job shares with others where nothing is in them any more: a call each.

    Returns:
        Whether none stands; else something is there, another job's most likely.
    """
    for directory in context.layout.shared:
        try:
            await context.store.delete_directory(directory, recursive=False)
        except StoreError:
            return False
    return True


async def remove_emptied(context: StageContext) -> None:
    """Removes a job's directory when nothing is in it any more, then `_temporary` likewise: at most 2 calls.

    Where late writes make directories again, the job attempt's and the drivers' too, when nothing but the place for
    what is moved aside is in them: up to 6 calls more where one stands. A job that is alive has its setup record there.
    """
    layout, store = context.layout, context.store
    for directory in (layout.job_directory, layout.temporary):
        try:
            try:
                await store.delete_directory(directory, recursive=False)
            except StoreNotEmptyError:
                if directory != layout.job_directory:
                    raise
                if not store.capabilities.directories:
                    await delete_odd(store, directory)
                elif not (await _delete_made_again(context) or await _delete_dead_removals(context)):
                    raise
                await store.delete_directory(directory, recursive=False)
        except StoreError:
            # Another job lives in `_temporary`, or a late task attempt just wrote into the job's directory: both are
            # found by list_jobs, and neither changes this job's result.
            return


async def _delete_made_again(context: StageContext) -> bool:
    """Whether nothing stood in the job's directory but directories that late writes made again, which are deleted."""
    layout, store = context.layout, context.store
    if not store.capabilities.implicit_parents:
        return False
    made = {child.path for child in await children_of(store, layout.job_directory)}
    if not made or not made <= {layout.job_attempt_directory, layout.drivers}:
        return False
    ordered = sorted(made, key=str)
    inside = [child.path for place in ordered for child in await children_of(store, place)]
    if not set(inside) <= {layout.superseded}:
        return False
    for directory in [*inside, *ordered]:
        await store.delete_directory(directory, recursive=False)
    return True


async def _delete_dead_removals(context: StageContext) -> bool:
    """Whether nothing stood in the job's directory but what others moved to what they remove, which is deleted.

    One of them may live: there is nothing left for it to remove.
    """
    children = await children_of(context.store, context.layout.job_directory)
    found = JobDirectory(context.layout, {child.path.name: child for child in children})
    if len(found.being_removed) < len(children):
        return False
    for left in children:
        await context.store.delete_directory(left.path, recursive=True)
    return True


async def remove_dead_removals(context: StageContext, found: JobDirectory) -> None:
    """Deletes what processes left that died within a removal, of a job that is over: one call each.

    What cannot be deleted is found by `list_jobs`, and a later cleanup tries again.
    """
    for left in found.being_removed:
        try:
            await context.store.delete_directory(left.path, recursive=True)
        except StoreError as error:
            _log.warning("could not remove %s, which is left of job %s: %s", left.path, context.layout.job_id, error)
    if found.being_removed:
        await remove_emptied(context)
