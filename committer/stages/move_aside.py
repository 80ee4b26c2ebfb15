"""MoveAside: moves what is in the way, or superseded, into the job's directory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from committer.errors import (
    JobStateError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath, by_hand
from committer.records.job_state import Fact
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import aside_is_gone, looking_again
from committer.stages.decided_facts import Facts
from committer.stages.identity import is_recorded
from committer.stages.many_at_once import run_together
from committer.stages.take_away import take_away
from committer.stores.abilities import BATCH_RENAME


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
