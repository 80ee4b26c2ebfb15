"""The superseded set: old files that a replacing job takes away, listed before the decision, moved after it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from committer.errors import (
    JobStateError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.file_names import working_directory_in
from committer.flow.workers import run_workers
from committer.paths import StorePath, by_hand
from committer.records.job_state import Fact
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import aside_is_gone, looking_again
from committer.stages.identity import is_recorded, stands_as_directory
from committer.stages.many_at_once import run_together
from committer.stages.names import NameFolding, is_absolute, is_hidden, with_ancestors
from committer.stages.take_away import take_away
from committer.stores.abilities import BATCH_RENAME
from committer.stores.base import FileStatus, Refusals

# Directories that are listed at a time: each holds a page of entries, of which little is kept.
_LISTINGS: Final = 64


class Superseded:
    """Old files that are to be taken away, each once: some 300 bytes a file, of which there may be millions.

    Args:
        first: The first place aside that is free.

    Attributes:
        facts: What the decision says of each, in no order.
        refused: Those that the store would refuse to move or to name, by name.
    """

    def __init__(self, first: int = 0) -> None:
        self.facts: list[Fact] = []
        self.refused: dict[str, FileStatus] = {}
        self._first = first

    def add(self, name: str, status: FileStatus) -> None:
        """Notes one; of a link that leads to a directory the link, which counts as a file."""
        aside = self._first + len(self.facts)
        directory = stands_as_directory(status)
        self.facts.append(Fact("superseded", name, status.identity, status.size, directory, aside))
        if status.refuses is not None:
            self.refused[name] = status


class ListSuperseded(Stage[list[str], Superseded]):
    """Lists the old files below the directories written to, or those named, or the whole destination.

    A link is one old entry by itself, whatever it leads to: what is behind it belongs to another user, or to another
    partition. Only a link on the way to a directory that is written to is gone through, as the job's own files are.

    Args:
        context: The job.
        found: Old files that are known, which are not noted again; this stage adds to them.

    Preconditions: the replace lock is held.
    Postconditions: every old file with its identity; at the destination itself names that start with `_` or `.` stay
    (unless they hold `=`), so that `_temporary` and metadata are never taken; at a root outside it likewise.
    Cost: one listing a directory of the old tree, those of one depth at once; dependent round trips: its depth.
    """

    name = "job_stage_list_superseded"

    def __init__(self, context: StageContext, found: Superseded | None = None) -> None:
        super().__init__(context)
        self._folding = NameFolding(context.store.capabilities)
        self._mounted: dict[StorePath, Refusals] = {}
        self._found = found or Superseded()
        self._known = {fact.path for fact in self._found.facts}

    async def execute(self, value: list[str]) -> Superseded:
        """Lists the topmost of the directories `value` and all that is below, each directory once, level by level."""
        layout = self.context.layout
        written = {self._folding.fold(directory) for directory in with_ancestors(value, layout.roots)}
        level = [layout.target(directory) for directory in topmost(value)]
        while level:
            below: list[StorePath] = []

            async def look(directory: StorePath, below: list[StorePath] = below) -> None:
                with contextlib.suppress(StoreNotFoundError, StoreNotADirectoryError):
                    async for child in self.context.store.list(directory):
                        self._take(child, written, below)

            await run_workers(level, look, workers=_LISTINGS, operation=self.name)
            level = below
        return self._found

    def _take(self, child: FileStatus, written: set[str], below: list[StorePath]) -> None:
        name = self.context.layout.name_of(child.path)
        # Jobs may run into a directory below this one, and their own directories are theirs (G11).
        if working_directory_in(name) or (self._is_at_top(name) and is_hidden(child.path.name)):
            return
        if child.is_directory and (not child.is_link or self._folding.fold(name) in written):
            below.append(child.path)
            if child.refuses is not None and child.refuses.mounted:
                self._mounted[child.path] = child.refuses
        elif not stands_as_directory(child) and name not in self._known:
            volume = next((top for top in self._mounted if child.path.is_under(top)), None)
            if volume is not None:
                child = msgspec.structs.replace(child, refuses=self._mounted[volume])
            self._found.add(name, child)

    def _is_at_top(self, name: str) -> bool:
        """Whether a name lies in the destination itself, or in a root outside it."""
        return name.rpartition("/")[0] in self.context.layout.roots if is_absolute(name) else "/" not in name


def topmost(directories: list[str]) -> list[str]:
    """The directories that lie below no other of them."""
    if "" in directories:
        return ["", *topmost([directory for directory in directories if is_absolute(directory)])]
    chosen: set[str] = set()
    for directory in sorted(directories):
        parent = directory
        while parent and parent not in chosen:
            parent = parent.rpartition("/")[0]
        if not parent:
            chosen.add(directory)
    return sorted(chosen)


class MoveAside(Stage[list[Fact], int]):
    """Moves what the decision says is in the way, or superseded, into the job's directory, where rollback finds it.

    A file goes only while it still is the one the decision recorded; a file that was put there since stays. Running
    it again, or beside another driver, changes nothing.

    Preconditions: the decision stands and no rollback began (a fence makes every late move fail).
    Postconditions: none of the recorded files is at its old place.
    Cost: 2 calls a file; 1 where a rename can be told the identity of its source, or looks and renames many at once.
    """

    name = "job_stage_move_aside"

    async def execute(self, value: list[Fact]) -> int:
        """Moves all, many at once; returns how many were moved by this call."""
        moved = 0
        most, advance = self.context.config.io_concurrency, self.context.progress.advance

        async def move(fact: Fact) -> None:
            nonlocal moved
            if await looking_again(lambda: self._move(fact)):
                moved += 1
            advance()

        able = BATCH_RENAME.of(self.context.store)
        if able is None:
            await run_workers(value, move, workers=most, operation=self.name)
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
        return self.context.layout.target(fact.path), self.context.layout.superseded / f"{fact.aside:08d}"

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
        except StoreNotFoundError as error:
            if error.path == str(path) or not error.path:
                return False
            raise aside_is_gone(self.context, self.name, path) from error
        except (StorePreconditionError, StoreIsADirectoryError):
            # What stands there now came since the decision, and stays: a directory of this job, or another
            # writer's file.
            return False
        except StoreExistsError:
            # Moved before, by a link whose old name was not yet removed; or its place was taken anew since.
            return await self._finish_move(fact, path, aside)
        return True

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
