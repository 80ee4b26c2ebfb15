"""Moves old files and `_SUCCESS` aside into the job's directory; deletes old files on stores that cannot rename.

Moving is how the engine removes anything from a shared place. A delayed delete that knows only a name could hit a
file that another job has written there since. So where a store has no condition on the identity, a driver
renames to a name of its own that replaces nothing, looks at what it moved, and moves another job's file back. A
delayed rename finds its target name taken, or the target's directory gone, and does nothing.
`committers/file/taking` takes directories of a job's tasks in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
from committer.stores.abilities import BATCH_DELETE, BATCH_RENAME, SupportsBatchDelete
from committer.stores.base import Store
from committer.stores.helpers import create_exclusively, delete_seen, move_file, status_or_none

# Batch calls at a time. Each costs as much of the endpoint's rate as it has files, and delays other jobs of the
# process.
_CALLS_AT_ONCE: Final = 2

_TAKEN: Final = "taken-"
_NOTHING: Final = b"Nothing: only that nothing may arrive here late.\n"


class NotGivenBackError(OutcomeUnknownError):
    """The error of another job's file that may lie in `place`, which this job's cleanup deletes."""

    def __init__(self, place: StorePath, path: StorePath, cause: CommitterError) -> None:
        super().__init__(
            f"another job's {path.name} was moved to {place} by mistake, or may have been, and it could not be moved "
            f"back: {cause.message}",
            operation="give_back",
            path=path,
            next_step=f"look at {by_hand(place)} before anything of this job is cleaned up: if a file exists there, "
            f"and none at {by_hand(path)}, move it there by hand",
            causes=[cause],
        )
        self.place = place


async def take_away(context: StageContext, path: StorePath, into: StorePath, *, identity: str | None) -> bool:
    """Moves a file with the identity into a directory that cleanup deletes; see `move_away`."""
    # A delete knows only a name: a stale driver may send it when its job is long over and another job has
    # written a file there. The rename fails once the job's directory is gone.
    return await move_away(context, path, into / f"{_TAKEN}{context.runtime.nonce()}", identity=identity)


async def move_away(context: StageContext, path: StorePath, place: StorePath, *, identity: str | None) -> bool:
    """Moves a file with the identity to a place that no other driver uses; returns True if moved.

    If the rename cannot be conditional, the driver looks at what it moved and moves another file back. It returns
    False also if the directory of `place` is gone.

    Raises:
        StoreExistsError: Another file was moved, and a third one has its name by now.
        StoreOutcomeUnknownError: The response was lost: look again. An unconditional move will not take effect later.
        OutcomeUnknownError: Another file was moved, or may have been, and could not be moved back. The caller must
            not delete anything more.
    """
    store = context.store
    conditional = identity is not None and moves_are_conditional(store)
    try:
        await move_file(store, path, place, identity=identity, by_name=True)
    except (StoreNotFoundError, StoreNotADirectoryError, StorePreconditionError):
        return False
    except StoreOutcomeUnknownError:
        if conditional or await blocks_delayed_move(store, place):
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
    """Moves another job's file back to its name: 2 calls, at most 10 if responses are lost."""
    # `StoreExistsError` means that a third file has its name by now; then the one in `place` goes with this
    # job's directory.

    async def move() -> None:
        # Unless an earlier try or another driver of the job moved it.
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
    """Whether an error, or one of its causes, is a `NotGivenBackError`."""
    return any(isinstance(one, NotGivenBackError) for one in (error, *error.causes))


def moves_are_conditional(store: Store) -> bool:
    """Whether the store checks the identity of what it moves, so that a delayed request moves no other file."""
    # A store without renames copies, and deletes on condition.
    can = store.capabilities
    return can.conditional_rename or not can.atomic_file_rename


async def blocks_delayed_move(store: Store, place: StorePath) -> bool:
    """Creates an empty file at the target of a move whose response was lost; returns False if the move was done."""
    try:
        return await create_exclusively(store, place, _NOTHING) == _NOTHING
    except StoreNotFoundError:
        return True


class MoveAside(Stage[Facts, None]):
    """The stage that moves the recorded files that are in the way, or superseded, to where a rollback finds them.

    A file is moved only while it is the one that the decision recorded; a file written there since stays.
    Idempotent, and safe beside other drivers.

    Preconditions: the decision exists and no rollback began (a fence makes every late move fail).
    Postconditions: none of the recorded files is at its old place.
    Cost: 2 calls per file; 1 where a rename has a precondition on identity, or the store looks and renames in
    batches.
    """

    name = "job_stage_move_aside"

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        at, aside = context.layout.destination, context.layout.superseded
        self._places = at.scheme, at.authority, "/" if at.path == "/" else f"{at.path}/", f"{aside.path}/"

    async def execute(self, value: Facts) -> None:
        """Moves all, many concurrently."""
        async for facts in value.batches():
            await self._move_all(facts)

    async def _move_all(self, value: list[Fact]) -> None:
        store, most, advance = self.context.store, self.context.config.io_concurrency, self.context.progress.advance

        async def move(fact: Fact) -> None:
            await looking_again(lambda: self._move(fact))
            advance()

        able = BATCH_RENAME.of(store)
        if able is None:
            await self.run_workers(value, move)
            return

        async def move_together(facts: Sequence[Fact]) -> None:
            seen = [(fact.identity, fact.size) for fact in facts]
            errors = await able.rename_files([self._ends(fact) for fact in facts], seen=seen)
            advance(len(facts) - len(errors))
            # One look at each tells new files, files moved before, and failures apart.
            await self.run_workers([facts[index] for index in errors], move)

        await run_together(value, move_together, io_concurrency=most, operation=self.name)

    def _ends(self, fact: Fact) -> tuple[StorePath, StorePath]:
        # Without validation, as names were checked to stay inside. Called for every old file.
        scheme, authority, above, aside = self._places
        path = fact.path
        return (
            StorePath(scheme, authority, path if path[0] == "/" else above + path),
            StorePath(scheme, authority, f"{aside}{fact.aside:08d}"),
        )

    async def _move(self, fact: Fact) -> None:
        store = self.context.store
        path, aside = self._ends(fact)
        conditional = store.capabilities.conditional_rename and fact.identity is not None
        try:
            if not conditional:
                status = await store.status(path)
                if not is_recorded(status, fact):
                    return
            await store.rename_file(path, aside, identity=fact.identity)
        except StoreOutcomeUnknownError:
            raise
        except StoreError as error:
            await self._settle(fact, path, aside, error)

    async def _settle(self, fact: Fact, path: StorePath, aside: StorePath, error: StoreError) -> None:
        """Handles an error of a move."""
        if isinstance(error, StoreNotFoundError):
            if error.path == str(path) or not error.path:
                return
            raise aside_is_gone(self.context, self.name, path) from error
        if isinstance(error, StorePreconditionError | StoreIsADirectoryError):
            # What exists there now came after the decision, and stays: a directory of this job, or another
            # writer's file.
            return
        if isinstance(error, StoreExistsError):
            # Moved before, by a hard link whose old name was not yet removed; or another file has its old name by now.
            await self._finish_move(fact, path, aside)
            return
        raise error

    async def _finish_move(self, fact: Fact, path: StorePath, aside: StorePath) -> None:
        store = self.context.store
        try:
            standing, moved = await store.status(path), await store.status(aside)
        except StoreNotFoundError:
            return
        if fact.identity is None or standing.identity != fact.identity:
            return
        if moved.identity == fact.identity:
            await take_away(self.context, path, self.context.layout.superseded, identity=fact.identity)
            return
        raise JobStateError(
            f"{path} is to be taken away, and its place {aside} is taken by something else",
            operation=self.name,
            path=aside,
            outcome="partial",
            next_step=f"find out who writes into the job's directory, remove {by_hand(aside)} by hand, then call "
            f"{self.context.recover_call()}",
        )


class DeleteSuperseded(Stage[Facts, None]):
    """Stage that deletes the superseded files of the decision, each on the condition of its old identity.

    A batch call is repeated after a lost response: what it deleted is absent then, and what another job has written
    since does not meet its condition. Files that such a call does not settle are deleted singly.

    Preconditions: outcome `committed`: from there on the job only goes forward, so the old files are not needed
    (G13). No other job commits there: this one's entry exists.
    Postconditions: none of the recorded files is at its old place; a file that was written there since stays.
    Cost: one call for as many files as the store deletes conditionally in one (S3: 1,000); elsewhere one per file.
    """

    name = "job_stage_delete_superseded"

    async def execute(self, value: Facts) -> None:
        """Deletes all, many concurrently."""
        store = self.context.store
        able = BATCH_DELETE.of(store) if store.capabilities.conditional_batch_delete else None
        async for facts in value.batches():
            if able is None:
                await self._delete_each(facts)
            else:
                await self._delete_in_groups(facts, able)

    async def _delete_in_groups(self, facts: list[Fact], able: SupportsBatchDelete) -> None:
        most = self.context.store.capabilities.max_batch_delete or len(facts)

        async def delete(first: int) -> None:
            group = facts[first : first + most]
            left = group if len(group) == 1 else await self._delete_together(group, able)
            self.context.progress.advance(len(group) - len(left))
            await self._delete_each(left)

        await run_workers(range(0, len(facts), most), delete, workers=_CALLS_AT_ONCE, operation=self.name)

    async def _delete_together(self, facts: Sequence[Fact], able: SupportsBatchDelete) -> Sequence[Fact]:
        """Deletes files in one call; returns those that still exist, or may."""
        # A refusal is not interpreted here: some services answer for a missing file as for a changed one.
        identities: dict[StorePath, str | None] = {}
        by_path: dict[StorePath, Fact] = {}
        for fact in facts:
            if fact.identity is not None and not fact.is_directory:
                path = self.context.layout.target(fact.path)
                identities[path], by_path[path] = fact.identity, fact
        try:
            refused = await able.delete_files(identities)
        except CommitterError:
            return facts
        return [by_path[path] for path in refused]

    async def _delete_each(self, facts: Sequence[Fact]) -> None:
        async def delete(fact: Fact) -> None:
            await looking_again(lambda: self._delete(fact))
            self.context.progress.advance()

        await self.run_workers(facts, delete)

    async def _delete(self, fact: Fact) -> None:
        if fact.is_directory or fact.identity is None:
            return
        with suppress(StorePreconditionError):
            await delete_seen(self.context.store, self.context.layout.target(fact.path), identity=fact.identity)


PLACE_TAKEN = b"No _SUCCESS: only that none may arrive here late.\n"
"""Content of the file that bars delayed renames of `_SUCCESS`. Not empty: Hadoop's own `_SUCCESS` may be empty."""


class SetAsideSuccess(Stage[Decision, None]):
    """The stage that moves the recorded old `_SUCCESS` into the job's directory, once for all drivers of the job.

    The marker says that a destination is complete, which is false once the first file is published. Hadoop
    deletes it in job setup, so a job that never commits leaves a complete destination without it. A store that
    compares identities moves only the recorded marker. Elsewhere the first file under the new name bars every
    other rename: a driver that finds no `_SUCCESS` creates it.

    Preconditions: the decision exists, nothing is published yet (or the commit is being finished).
    Postconditions: the recorded `_SUCCESS` is not at the destination; a rollback restores it.
    Cost: 1 call if there was a marker, 5 on stores without renames, else none; one more if it was moved before.
    """

    name = "job_stage_set_aside_success"

    async def execute(self, value: Decision) -> None:
        """Moves the marker; repeats after a lost response."""
        if value.success_present and value.config.mark_successful_jobs:
            await looking_again(lambda: self._set_aside(value.success_identity))

    async def _set_aside(self, identity: str | None) -> None:
        layout, store = self.context.layout, self.context.store
        aside = layout.superseded / SUCCESS
        by_name = identity is None or not moves_are_conditional(store)
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
