"""The superseded set: old files that a replacing job takes away, listed before the decision, moved after it."""

from __future__ import annotations

from committer.errors import (
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.base import Stage
from committer.stages.commit_state import explain_missing, fenced_off, looking_again
from committer.stages.names import in_job_directory, is_hidden
from committer.stores.base import FileStatus
from committer.stores.helpers import walk


class ListSuperseded(Stage[list[str], dict[str, FileStatus]]):
    """Lists the old files below the directories that are written to, or below the whole destination.

    Preconditions: the replace lock is held.
    Postconditions: every old file with its identity; at the destination itself names that start with `_` or `.` stay
    (unless they hold `=`), so that `_temporary` and metadata are never taken.
    Cost: one listing a directory of the old tree.
    """

    name = "job_stage_list_superseded"

    async def execute(self, value: list[str]) -> dict[str, FileStatus]:
        """Walks the topmost of the directories `value`, each once."""
        found: dict[str, FileStatus] = {}
        destination = self.context.layout.destination

        async def look(directory: str) -> None:
            path = destination / directory if directory else destination
            try:
                if directory:
                    await self._walk(path, found)
                    return
                async for child in self.context.store.list(path):
                    if is_hidden(child.path.name):
                        continue
                    if child.is_directory:
                        await self._walk(child.path, found)
                    else:
                        found[child.path.name] = child
            except (StoreNotFoundError, StoreNotADirectoryError):
                return

        await run_workers(topmost(value), look, workers=self.context.config.io_concurrency, operation=self.name)
        return found

    async def _walk(self, directory: StorePath, found: dict[str, FileStatus]) -> None:
        destination = self.context.layout.destination
        async for child in walk(self.context.store, directory):
            name = child.path.relative_to(destination)
            # Jobs may run into a directory below this one, and their own directories are theirs (G11).
            if not child.is_directory and not in_job_directory(name):
                found[name] = child


def topmost(directories: list[str]) -> list[str]:
    """The directories that lie below no other of them."""
    if "" in directories:
        return [""]
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

    A file goes only while it still is the one the decision recorded; what somebody put there since stays. Running it
    again, or beside another driver, changes nothing.

    Preconditions: the decision stands and no rollback began (a fence makes every late move fail).
    Postconditions: none of the recorded files is at its old place.
    Cost: 2 calls a file; 1 where a rename can be told the identity of its source.
    """

    name = "job_stage_move_aside"

    async def execute(self, value: list[Fact]) -> int:
        """Moves all, many at once; returns how many were moved by this call."""
        moved = 0

        async def move(fact: Fact) -> None:
            nonlocal moved
            if await looking_again(lambda: self._move(fact)):
                moved += 1
            self.context.progress.advance()

        await run_workers(value, move, workers=self.context.config.io_concurrency, operation=self.name)
        return moved

    async def _move(self, fact: Fact) -> bool:
        layout, store = self.context.layout, self.context.store
        path, aside = layout.destination / fact.path, layout.superseded / f"{fact.aside:08d}"
        conditional = store.capabilities.conditional_rename and fact.identity is not None
        try:
            if not conditional:
                status = await store.status(path)
                if not same_file(status, fact):
                    return False
            if fact.is_directory and not store.capabilities.atomic_directory_rename:
                # The documented exception to G13: a directory at a file's target that cannot be moved is removed.
                await store.delete_directory(path, recursive=True)
            elif fact.is_directory:
                await store.rename_directory(path, aside)
            else:
                await store.rename_file(path, aside, identity=fact.identity)
        except StoreNotFoundError as error:
            if error.path == str(path) or not error.path:
                return False
            raise await explain_missing(self.context, fenced_off(self.context, self.name, path)) from error
        except (StorePreconditionError, StoreIsADirectoryError):
            # What stands there now came since the decision, and stays: a directory of this job, or somebody's file.
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
        if fact.identity is not None and standing.identity == moved.identity == fact.identity:
            await store.delete_file(path)
            return True
        return False


def same_file(status: FileStatus, fact: Fact) -> bool:
    """Whether what stands there is what the decision recorded."""
    if status.is_directory or fact.is_directory:
        return status.is_directory and fact.is_directory
    return status.identity == fact.identity and status.size == fact.size
