"""Moves old files and `_SUCCESS` aside into the job's directory.

One idea stands behind all that this engine takes out of a shared place. A delete that knows a name only may come late,
and hit what another job has put there since. So where the store cannot be told which file it must be, a driver
renames, to a name that is its own and replaces nothing; then it looks at what it took, and puts it back where it is
another's. A rename that comes late finds its name taken, or the directory of the name gone, and does nothing.

Here a driver knows the file's identity. `committers/file/taking` takes directories of a job's tasks in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from committer.errors import (
    CommitterError,
    JobStateError,
    OutcomeUnknownError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.layout import SUCCESS
from committer.paths import StorePath, by_hand
from committer.records.job_state import Decision, Fact
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import aside_is_gone, looking_again
from committer.stages.durability import run_together
from committer.stages.facts import Facts
from committer.stages.identity import is_recorded
from committer.stores.abilities import BATCH_RENAME
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


class MoveAside(Stage[Facts, int]):
    """Moves what the decision says is in the way, or superseded, into the job's directory, where rollback finds it.

    A file goes only while it still is the one the decision recorded; a file that was put there since stays. Running
    it again, or beside another driver, changes nothing.

    Preconditions: the decision stands and no rollback began (a fence makes every late move fail).
    Postconditions: none of the recorded files is at its old place.
    Cost: 2 calls a file; 1 where a rename can be told the identity of its source, or looks and renames many at once.
    """

    name = "job_stage_move_aside"

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        at, aside = context.layout.destination, context.layout.superseded
        self._places = at.scheme, at.authority, "/" if at.path == "/" else f"{at.path}/", f"{aside.path}/"

    async def execute(self, value: Facts) -> int:
        """Moves all, many at once; returns how many were moved by this call."""
        moved = 0
        async for facts in value.batches():
            moved += await self._move_all(facts)
        return moved

    async def _move_all(self, value: list[Fact]) -> int:
        moved = 0
        store, most, advance = self.context.store, self.context.config.io_concurrency, self.context.progress.advance

        async def move(fact: Fact) -> None:
            nonlocal moved
            if await looking_again(lambda: self._move(fact)):
                moved += 1
            advance()

        async def move_told(fact: Fact) -> None:
            nonlocal moved
            if fact.identity is None:
                await move(fact)
                return
            path, aside = self._ends(fact)
            try:
                await store.rename_file(path, aside, identity=fact.identity)
            except StoreOutcomeUnknownError:
                await move(fact)
                return
            except StoreError as error:
                moved += await looking_again(partial(self._settle, fact, path, aside, error))
            else:
                moved += 1
            advance()

        able = BATCH_RENAME.of(store)
        if able is None:
            told = store.capabilities.conditional_rename
            await run_workers(value, move_told if told else move, workers=most, operation=self.name)
            return moved

        async def move_together(facts: Sequence[Fact]) -> None:
            nonlocal moved
            seen = [(fact.identity, fact.size) for fact in facts]
            errors = await able.rename_files([self._ends(fact) for fact in facts], seen=seen)
            moved += len(facts) - len(errors)
            advance(len(facts) - len(errors))
            # What came since, what was moved before, and what failed are told apart by a look at each.
            await run_workers([facts[index] for index in errors], move, workers=most, operation=self.name)

        await run_together(value, move_together, io_concurrency=most, operation=self.name)
        return moved

    def _ends(self, fact: Fact) -> tuple[StorePath, StorePath]:
        # By names that were proved to stay inside. Called for every old file.
        scheme, authority, above, aside = self._places
        path = fact.path
        return (
            StorePath(scheme, authority, path if path[0] == "/" else above + path),
            StorePath(scheme, authority, f"{aside}{fact.aside:08d}"),
        )

    async def _move(self, fact: Fact) -> bool:
        store = self.context.store
        path, aside = self._ends(fact)
        conditional = store.capabilities.conditional_rename and fact.identity is not None
        try:
            if not conditional:
                status = await store.status(path)
                if not is_recorded(status, fact):
                    return False
            await store.rename_file(path, aside, identity=fact.identity)
        except StoreOutcomeUnknownError:
            raise
        except StoreError as error:
            return await self._settle(fact, path, aside, error)
        return True

    async def _settle(self, fact: Fact, path: StorePath, aside: StorePath, error: StoreError) -> bool:
        """What a move came to that the store refused: whether the file was moved after all."""
        if isinstance(error, StoreNotFoundError):
            if error.path == str(path) or not error.path:
                return False
            raise aside_is_gone(self.context, self.name, path) from error
        if isinstance(error, StorePreconditionError | StoreIsADirectoryError):
            # What stands there now came since the decision, and stays: a directory of this job, or another
            # writer's file.
            return False
        if isinstance(error, StoreExistsError):
            # Moved before, by a link whose old name was not yet removed; or its place was taken anew since.
            return await self._finish_move(fact, path, aside)
        raise error

    async def _finish_move(self, fact: Fact, path: StorePath, aside: StorePath) -> bool:
        store = self.context.store
        try:
            standing, moved = await store.status(path), await store.status(aside)
        except StoreNotFoundError:
            return False
        if fact.identity is None or standing.identity != fact.identity:
            return False
        if moved.identity == fact.identity:
            return await take_away(self.context, path, self.context.layout.superseded, identity=fact.identity)
        raise JobStateError(
            f"{path} is to be taken away, and its place {aside} is taken by something else",
            operation=self.name,
            path=aside,
            outcome="partial",
            next_step=f"find out who writes into the job's directory, remove {by_hand(aside)} by hand, then call "
            f"{self.context.recover_call()}",
        )


PLACE_TAKEN = b"No _SUCCESS: only that none may arrive here late.\n"
"""Content of the file that bars delayed renames of `_SUCCESS`. Not empty: Hadoop's own `_SUCCESS` may be empty."""


class SetAsideSuccess(Stage[Decision, None]):
    """Moves the old `_SUCCESS` that the decision recorded into the job's directory, once for all drivers of the job.

    It says that a destination is complete, which it no longer is once the first file is published. Hadoop deletes it
    in job setup, so a job that never commits leaves a complete destination without it.

    A store that compares identities moves only the recorded marker. Elsewhere the first file under the new name bars
    every other rename: a driver that finds no `_SUCCESS` creates it.

    Preconditions: the decision stands, nothing is published yet (or the commit is being finished).
    Postconditions: the recorded `_SUCCESS` is not at the destination; rollback puts it back.
    Cost: 1 call if there was a marker, 5 on stores without renames, else none; one more if it was moved before.
    """

    name = "job_stage_set_aside_success"

    async def execute(self, value: Decision) -> None:
        """Moves it; again when a response was lost."""
        if value.success_present and value.config.mark_successful_jobs:
            await looking_again(lambda: self._set_aside(value.success_identity))

    async def _set_aside(self, identity: str | None) -> None:
        layout, store = self.context.layout, self.context.store
        aside = layout.superseded / SUCCESS
        by_name = identity is None or not is_told(store)
        try:
            await move_file(store, layout.success, aside, identity=None if by_name else identity, by_name=True)
        except (StorePreconditionError, StoreIsADirectoryError):
            return
        except StoreNotFoundError as error:
            source_missing = error.path in ("", str(layout.success))
            if source_missing and not by_name:
                return
            try:
                if not source_missing:
                    raise
                await create_exclusively(store, aside, PLACE_TAKEN)
            except StoreNotFoundError as gone:
                raise aside_is_gone(self.context, self.name, layout.success) from gone
        except StoreExistsError:
            # Moved before. A rename that is a link and a delete, or a copy and a delete, may have left the old name.
            standing, kept = await status_or_none(store, layout.success), await status_or_none(store, aside)
            if standing is None or kept is None or kept.identity is None:
                return
            if standing.identity == kept.identity == identity:
                await take_away(self.context, layout.success, layout.superseded, identity=identity)
