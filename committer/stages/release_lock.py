"""Releasing the replace lock: by a rename, since a delete that is repeated, or late, could take another job's lock.

A rename can be late as well. It was sent by a driver that withdrew, or by one that ended the job; the answer was lost,
or the driver died; and when it arrives, another job, or another try of this one, holds the lock. Where it is told which
file to move (ADLS, Google Cloud Storage), or what was copied is deleted on condition (S3), the store refuses it. Where
it is not (HDFS, local disks), only the name that it goes to can. So there every rename of a driver's lock goes to one
of two names of that lock, in the directory that goes with the job's setup, and replaces nothing. The first one that
succeeds occupies its name until that directory is removed, and then there is no place any more for one that is late.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from committer.errors import (
    RecordError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.records.job_state import ReplaceLock, is_of
from committer.stages.base import StageContext
from committer.stages.job_stands import is_set_up_anew
from committer.stages.own_records import read_record, read_setup
from committer.stages.removal import remove_emptied
from committer.stages.take_away import is_told
from committer.stores.base import FileStatus
from committer.stores.helpers import move_file


async def lock_at(context: StageContext, path: StorePath) -> ReplaceLock | None:
    """The record of a replace lock that stands somewhere; None when none does. One call.

    Raises:
        RecordError: Something else is there.
    """
    try:
        return await read_record(context.store, path, ReplaceLock)
    except StoreNotADirectoryError:
        return None


def kept_place(context: StageContext, lock: ReplaceLock) -> StorePath:
    """The first place that a lock is moved to by a process that takes it away.

    Another driver of the job that rests on the lock creates a file there, so that the rename of one that withdraws,
    which replaces nothing, fails: one of the two comes first.
    """
    layout = context.layout
    directory = layout.job_directory if is_told(context.store) else layout.drivers
    return directory / f"replace-lock-of-{_token(lock)}"


def _token(lock: ReplaceLock) -> str:
    # The name in a record that was read is not trusted to be one segment of a path.
    return hashlib.sha256(lock.driver.encode()).hexdigest()[:12]


async def release_lock(context: StageContext, *, driver: str | None = None, taken: bool = True) -> None:
    """Releases the replace lock when this job holds it, and removes one that a driver died with when it had taken it.

    Cost: 3 calls, 5 where the store is told what to move; when the job does not hold it, 1 and, with `taken`, 1 more.

    Args:
        context: The job, which is decided or gone; undecided with `driver` only.
        driver: Only a lock that this driver took, and that no other driver of the job rests on.
        taken: Look for a lock that was taken away and not deleted, when the job holds none. Not for a job that
            committed without ever taking one.
    """
    released = await take_away_lock(context, driver=driver, unless_kept=driver is not None)
    if taken and not released and driver is None:
        await _remove_taken(context)


async def take_away_lock(context: StageContext, *, driver: str | None, unless_kept: bool = False) -> bool:
    """Takes this job's lock away; what was taken is looked at, and put back should it be another's after all.

    Args:
        context: The job.
        driver: Only a lock that this driver took.
        unless_kept: Leave one that another driver rests on.

    Returns:
        Whether it took it away. The lock may be gone all the same.
    """
    layout, store = context.layout, context.store
    try:
        # Looked at before it is read, so that a rename that is told the identity cannot take one that came later.
        known = await store.status(layout.replace_lock) if store.capabilities.conditional_rename else None
        standing = await lock_at(context, layout.replace_lock)
    except (RecordError, StoreNotFoundError):
        return False
    if standing is None or standing.job_id != layout.job_id or driver not in (None, standing.driver):
        return False
    if await _is_of_another_setup(context, standing):
        # The job is over, and another one has its id and the lock.
        return False

    def is_own(lock: ReplaceLock | None) -> bool:
        if lock is None or (lock.job_id, lock.setup) != (standing.job_id, standing.setup):
            return False
        return driver in (None, lock.driver)

    moving = _Moving(context, known, is_own)
    place = await moving.take(_places(context, standing), unless_kept=unless_kept)
    if place is None:
        return False
    found = await lock_at(context, place)
    if found is not None and not is_own(found):
        try:
            await move_file(store, place, layout.replace_lock)
            return False
        except StoreExistsError:
            pass
    if is_told(store) or place == _beside(context):
        await store.delete_file(place)
    return True


def _places(context: StageContext, lock: ReplaceLock) -> tuple[StorePath, ...]:
    """Where a lock is moved to, the next one where that cannot be.

    The second one is for a lock that another driver rests on, and the third for a job whose directory is gone.
    """
    return kept_place(context, lock), context.layout.drivers / f"replace-lock-{_token(lock)}", _beside(context)


def _beside(context: StageContext) -> StorePath:
    layout = context.layout
    return layout.temporary / f"{layout.replace_lock.name}-{layout.job_id}"


class _Moving:
    """Moving the lock to one of several places.

    Args:
        context: The job.
        known: The lock as it was looked at; None where the store is not told what to move.
        is_own: Whether a lock is the one that is meant.
    """

    def __init__(
        self, context: StageContext, known: FileStatus | None, is_own: Callable[[ReplaceLock | None], bool]
    ) -> None:
        self._context = context
        self._identity = known.identity if known is not None else None
        self._is_own = is_own

    async def take(self, places: tuple[StorePath, ...], *, unless_kept: bool) -> StorePath | None:
        """Moves it to the first place that it can go to, and says which; None when it is not to be moved any more."""
        for place in places:
            try:
                moved = await self._move(place, replace=place == places[-1])
            except StorePreconditionError:
                # Released and taken anew since.
                return None
            if moved:
                return place
            if unless_kept and place == places[0] and await self._is_kept(place):
                return None
            if not await self._stands():
                return None
        return None

    async def _move(self, place: StorePath, *, replace: bool) -> bool:
        """Whether it was moved, by this call or another one like it; False when it cannot go there."""
        context = self._context
        lock = context.layout.replace_lock
        try:
            await move_file(context.store, lock, place, replace=replace, identity=self._identity)
        except (StoreExistsError, StoreNotFoundError):
            return False
        except StoreOutcomeUnknownError:
            found = await lock_at(context, place)
            stands = await self._stands()
            if found is None or (stands and replace):
                raise
            # The place is taken, so that the request does nothing any more if it did not yet. It may be taken by a
            # driver of this job that rests on the lock.
            return not stands and (self._is_own(found) or found.job_id != context.layout.job_id)
        return True

    async def _is_kept(self, place: StorePath) -> bool:
        """Whether another driver rests on the lock."""
        found = await lock_at(self._context, place)
        return found is not None and not self._is_own(found)

    async def _stands(self) -> bool:
        return self._is_own(await lock_at(self._context, self._context.layout.replace_lock))


async def _is_of_another_setup(context: StageContext, lock: ReplaceLock) -> bool:
    """Whether a lock of the job's id is of a job that was set up under it since: one call, where that may be."""
    store, layout = context.store, context.layout
    if layout.setup_name:
        return not is_of(lock.setup, layout.setup_name) and await is_set_up_anew(store, layout)
    if not lock.setup:
        return False
    # To this caller the job was gone, or its setup record none.
    try:
        return (await read_setup(store, layout)).spec.setup == lock.setup
    except (StoreNotFoundError, StoreNotADirectoryError, StoreIsADirectoryError, RecordError):
        return False


async def _remove_taken(context: StageContext) -> None:
    """Removes the lock that a driver of this job had taken away when it died, and the job's directory was gone.

    One of a later setup of the id was taken by mistake, and is about to be put back.
    """
    layout, taken = context.layout, _beside(context)
    try:
        lock = await lock_at(context, taken)
    except RecordError:
        return
    if lock is None or lock.job_id != layout.job_id or await _is_of_another_setup(context, lock):
        return
    await context.store.delete_file(taken)
    await remove_emptied(context)
