"""Releasing the replace lock: by a rename, since a delete that is repeated, or late, could take another job's lock.

A rename can be late as well. It was sent by a driver that withdrew, or by one that ended the job; the answer was lost,
or the driver died; and when it arrives, another job, or another try of this one, holds the lock. Where it is told which
file to move (ADLS, Google Cloud Storage), or what was copied is deleted on condition (S3), the store refuses it. Where
it is not (HDFS, local disks), only the name that it goes to can. So there every rename of a driver's lock goes to one
of two names of that lock, in the directory that goes with the job's setup, and replaces nothing. The first one that
succeeds occupies its name until that directory is removed, and then there is no place any more for one that is late.

A lock that arrived when its job was removed finds no such directory. It is taken to one that is made for it, likewise
under a name of that lock, and deleted at once: from then on no rename to there succeeds. A process makes it only as
long as the lock stands, and looks for that once more when it has made it.
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


async def release_lock(context: StageContext, *, driver: str | None = None) -> None:
    """Releases the replace lock when this job holds it.

    Cost: 3 calls, 5 where the store is told what to move; when the job does not hold it, 1; some 9 more when the job's
    directory is gone.

    Args:
        context: The job, which is decided or gone; undecided with `driver` only.
        driver: Only a lock that this driver took, and that no other driver of the job rests on.
    """
    await take_away_lock(context, driver=driver, unless_kept=driver is not None)


async def take_away_lock(context: StageContext, *, driver: str | None, unless_kept: bool = False) -> None:
    """Takes this job's lock away; what was taken is looked at, and put back should it be another's after all.

    Args:
        context: The job.
        driver: Only a lock that this driver took.
        unless_kept: Leave one that another driver rests on.
    """
    layout, store = context.layout, context.store
    try:
        # Looked at before it is read, so that a rename that is told the identity cannot take one that came later.
        known = await store.status(layout.replace_lock) if store.capabilities.conditional_rename else None
        standing = await lock_at(context, layout.replace_lock)
    except (RecordError, StoreNotFoundError):
        return
    if standing is None or standing.job_id != layout.job_id or driver not in (None, standing.driver):
        return
    if await _is_of_another_setup(context, standing):
        # The job is over, and another one has its id and the lock.
        return

    def is_own(lock: ReplaceLock | None) -> bool:
        if lock is None or (lock.job_id, lock.setup) != (standing.job_id, standing.setup):
            return False
        return driver in (None, lock.driver)

    made = layout.ended(_token(standing))
    moving = _Moving(context, known, is_own, made)
    place = await moving.take(_places(context, standing, made), unless_kept=unless_kept)
    if place is not None:
        found = await lock_at(context, place)
        if found is not None and not is_own(found) and await _is_put_back(context, place):
            place = None
    if moving.made:
        await store.delete_directory(made, recursive=True)
        await remove_emptied(context)
    elif place is not None and is_told(store):
        await store.delete_file(place)


async def _is_put_back(context: StageContext, place: StorePath) -> bool:
    """Puts another job's lock back; False where a third one stands there by now."""
    try:
        await move_file(context.store, place, context.layout.replace_lock)
    except StoreExistsError:
        return False
    return True


def _places(context: StageContext, lock: ReplaceLock, made: StorePath) -> tuple[StorePath, ...]:
    """Where a lock is moved to, the next one where that cannot be.

    The second one is for a lock that another driver rests on, and the others for a job whose directory is gone: two,
    since a process may have died half way, where a rename is a link and a delete.
    """
    second = context.layout.drivers / f"replace-lock-{_token(lock)}"
    return kept_place(context, lock), second, made / "replace-lock", made / "replace-lock-again"


class _Moving:
    """Moving the lock to one of several places.

    Args:
        context: The job.
        known: The lock as it was looked at; None where the store is not told what to move.
        is_own: Whether a lock is the one that is meant.
        directory: One that is made for the lock where the job has none.

    Attributes:
        made: Whether it made a directory for the lock.
    """

    def __init__(
        self,
        context: StageContext,
        known: FileStatus | None,
        is_own: Callable[[ReplaceLock | None], bool],
        directory: StorePath,
    ) -> None:
        self._context = context
        self._identity = known.identity if known is not None else None
        self._is_own = is_own
        self._directory = directory
        self.made: bool = False

    async def take(self, places: tuple[StorePath, ...], *, unless_kept: bool) -> StorePath | None:
        """Moves it to the first place that it can go to, and says which; None when it is not to be moved any more."""
        for place in places:
            if place.parent == self._directory and not await self._make():
                return None
            try:
                moved = await self._move(place)
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

    async def _make(self) -> bool:
        """Makes the directory; False where the lock does not stand any more.

        Looked at once it is made: by then the lock may be another job's.
        """
        self.made = True
        await self._context.store.make_directory(self._directory, parents=True)
        return await self._stands()

    async def _move(self, place: StorePath) -> bool:
        """Whether it was moved, by this call or another one like it; False when it cannot go there."""
        context = self._context
        lock = context.layout.replace_lock
        try:
            await move_file(context.store, lock, place, identity=self._identity)
        except (StoreExistsError, StoreNotFoundError):
            return False
        except StoreOutcomeUnknownError:
            found = await lock_at(context, place)
            if found is None:
                raise
            # The place is taken, so that the request does nothing any more if it did not yet. It may be taken by a
            # driver of this job that rests on the lock.
            return not await self._stands() and (self._is_own(found) or found.job_id != context.layout.job_id)
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
