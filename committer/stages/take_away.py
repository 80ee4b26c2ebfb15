"""Taking a file away from a name that other jobs may use, without hitting what they put there.

One idea stands behind all that this engine takes out of a shared place. A delete that knows a name only may come late,
and hit what another job has put there since. So where the store cannot be told which file it must be, a driver
renames, to a name that is its own and replaces nothing; then it looks at what it took, and puts it back where it is
another's. A rename that comes late finds its name taken, or the directory of the name gone, and does nothing.

Here a driver knows the file's identity. `committers/file/taking` takes directories of a job's tasks in the same way.
"""

from __future__ import annotations

from typing import Final

from committer.errors import (
    CommitterError,
    OutcomeUnknownError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.paths import StorePath, by_hand
from committer.stages.base import StageContext
from committer.stages.commit_state import looking_again
from committer.stores.base import Store
from committer.stores.helpers import create_exclusively, move_file, status_or_none

_TAKEN: Final = "taken-"
_NOTHING: Final = b"Nothing: only that nothing may arrive here late.\n"


class NotGivenBackError(OutcomeUnknownError):
    """Another job's file may lie in what this job's clean-up deletes.

    Args:
        place: Where it may lie.
        path: From where it was taken.
        cause: Why it did not go back.

    Attributes:
        place: Where it may lie.
    """

    def __init__(self, place: StorePath, path: StorePath, cause: CommitterError) -> None:
        super().__init__(
            f"another job's {path.name} was moved to {place} by mistake, or may have been, and it could not be moved "
            f"back: {cause.message}",
            operation="give_back",
            path=path,
            next_step=f"look at {by_hand(place)} before anything of this job is cleaned up: if a file stands there, "
            f"and none at {by_hand(path)}, move it there by hand",
            causes=[cause],
        )
        self.place = place


async def take_away(context: StageContext, path: StorePath, into: StorePath, *, identity: str | None) -> bool:
    """Moves a file into a directory of the job, where cleanup finds it; another one that stands there by now stays.

    Not by a delete, which knows a name only: a driver that stands still before it may wake when its job is long over
    and another has put its file there. The rename fails once the job's directory is gone.

    Args:
        context: The job.
        path: The file.
        into: A directory of the job that goes when the job ends.
        identity: What it must be.

    Returns:
        Whether it was taken.

    Raises:
        StoreExistsError: As `move_away`.
        StoreOutcomeUnknownError: As `move_away`.
    """
    return await move_away(context, path, taken_place(context, into), identity=identity)


def taken_place(context: StageContext, into: StorePath) -> StorePath:
    """A name in a directory of the job that no other driver uses, for what is taken away."""
    return into / f"{_TAKEN}{context.runtime.nonce()}"


async def move_away(context: StageContext, path: StorePath, place: StorePath, *, identity: str | None) -> bool:
    """Moves a file to a name that no other driver uses; another one that stands there by now stays, or goes back.

    Where a rename is not told what to move, what was moved is looked at, and goes back when it is another's.

    Args:
        context: The job.
        path: The file.
        place: A name that no other driver writes to.
        identity: What it must be.

    Returns:
        Whether it was moved. False also where the directory of `place` is gone.

    Raises:
        StoreExistsError: Another file was moved, and by then a third one had its name.
        StoreOutcomeUnknownError: The answer was lost: look again. A move that was not told what to move will not come.
        OutcomeUnknownError: Another file was moved, or may have been, and could not be moved back. The caller deletes
            nothing more.
    """
    store = context.store
    conditional = identity is not None and is_told(store)
    try:
        await move_file(store, path, place, identity=identity, by_name=True)
    except (StoreNotFoundError, StoreNotADirectoryError, StorePreconditionError):
        return False
    except StoreOutcomeUnknownError:
        if conditional or await is_barred(store, place):
            raise
        standing = await status_or_none(store, path)
        if standing is not None and standing.identity == identity:
            raise
    if conditional:
        return True
    try:
        taken = await status_or_none(store, place)
    except StoreError as error:
        raise NotGivenBackError(place, path, error) from error
    if taken is None or taken.identity == identity:
        return taken is not None
    await give_back(store, place, path)
    return False


async def give_back(store: Store, place: StorePath, path: StorePath) -> None:
    """Moves another job's file back to the name that it was taken from: 2 calls, 10 at most where answers are lost.

    Args:
        store: The store.
        place: Where it lies.
        path: From where it was taken.

    Raises:
        StoreExistsError: A third file has its name by now; what stays there goes with this job's directory.
        NotGivenBackError: It could not be moved back.
    """

    async def move() -> None:
        # Unless an earlier try did, or another driver of the job.
        if await status_or_none(store, place) is not None:
            try:
                await move_file(store, place, path)
            except StoreNotFoundError as error:
                if error.path != str(place):
                    raise

    try:
        await looking_again(move)
    except StoreExistsError:
        raise
    except StoreError as error:
        raise NotGivenBackError(place, path, error) from error


def is_not_given_back(error: CommitterError) -> bool:
    """Whether an error, or one of several, says that another job's file may lie in what a clean-up deletes."""
    return any(isinstance(one, NotGivenBackError) for one in (error, *error.causes))


def is_told(store: Store) -> bool:
    """Whether the store is told which file to take away, so that a late request takes no other.

    Where nothing is renamed a file is copied, and deleted on condition.
    """
    can = store.capabilities
    return can.conditional_rename or not can.atomic_file_rename


async def is_barred(store: Store, place: StorePath) -> bool:
    """Sees to it that a move without answer does not arrive any more; False when it came before.

    Cost: 1 call; 2 when it came.
    """
    try:
        return await create_exclusively(store, place, _NOTHING) == _NOTHING
    except StoreNotFoundError:
        return True
