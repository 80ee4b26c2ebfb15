"""Removing what a job left, where directories are renamed in one step."""

from __future__ import annotations

import asyncio

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.logs import job_logger
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.job_stands import is_of_other_setup, set_up_anew
from committer.stages.removal_base import OPERATION, TRIES, Removal, delete
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, exists

_log = job_logger("committer.stages")


class RemovalByRename(Removal):
    """Where directories are renamed in one step: all goes through a directory that no other process makes.

    It is made before the last look at whose setup record stands, and everything is renamed into it. A driver that sets
    the id up anew deletes every such directory, and only then makes anything else (`SetupJob`). So from then on each
    rename of this process fails, and it looks again.

    The directory is that of the job's drivers, under a new name: that rename fails once the job's setup is over, and
    needs no room on a full disk. Where it does not stand, a new one is made.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._place: StorePath | None = None
        self._by_name = False
        self._taken: dict[StorePath, StorePath] = {}
        self._directories: list[StorePath] = []
        self._renewing = asyncio.Lock()

    async def begin(self) -> None:
        """See `Removal.begin`. Makes the directory: 2 calls."""
        await super().begin()
        layout = self.context.layout
        stands = bool(layout.setup_name) and any(child.path == layout.drivers for child in self.children)
        if not (stands and await self._take_over_drivers()):
            await self._make()

    async def _take_over_drivers(self) -> bool:
        context, layout = self.context, self.context.layout
        place = self._new_place()
        try:
            await context.store.rename_directory(layout.drivers, place)
        except StoreNotFoundError:
            return False
        except StoreOutcomeUnknownError:
            if not await exists(context.store, place):
                return False
        except UnsupportedError:
            # A file system of this machine that is found out now.
            self._by_name = True
        self._place = self._taken[layout.drivers] = place
        self._directories += [
            place / child.path.name for child in self.found.get(layout.drivers, []) if child.is_directory
        ]
        # A driver of this setup that stood still, or a late write of it, may have made the directory again, in the new
        # job's.
        await self._prove()
        return True

    def _new_place(self) -> StorePath:
        return self.context.layout.ended(self.context.runtime.nonce())

    async def _make(self) -> None:
        store = self.context.store
        place = self._new_place()
        try:
            await store.make_directory(place, parents=False)
            self._place = place
        except StoreNotFoundError:
            # The job's directory is gone.
            self._place = None
            return
        except StoreError as error:
            # A full disk, mostly: nothing can be made, and deleting makes room.
            _log.warning("job %s is removed by name: %s", self.context.layout.job_id, error)
            self._by_name = True
        await self._prove()

    async def _prove(self) -> None:
        """The last look, once the directory stands: one call."""
        if not await is_of_other_setup(self.context.store, self.context.layout):
            return
        await self.end()
        raise set_up_anew(self.context.layout, OPERATION)

    async def take(self, child: FileStatus) -> None:
        """See `Removal.take`. One call; 2 by name."""
        store = self.context.store
        rename = store.rename_directory if child.is_directory else store.rename_file
        failed: StoreError | None = None
        name = child.path.name
        for _try in range(TRIES):
            into = self._place
            if self._by_name and (into is None or child.is_directory):
                await delete(self.context, child)
                return
            if into is None or child.path == into:
                return
            place = into / name
            try:
                await rename(child.path, place)
            except StoreNotFoundError as error:
                if error.path == str(child.path):
                    return
                failed = error
                await self._renew(into)
            except StoreOutcomeUnknownError as error:
                # The next try tells: what arrived has another name.
                failed = error
                self._note(child, place)
            except StoreExistsError as error:
                # It came again since it was taken.
                failed = error
                name = f"{child.path.name}-{self.context.runtime.nonce()}"
            except UnsupportedError:
                self._by_name = True
            else:
                self._note(child, place)
                return
        if failed is not None:
            raise failed

    def _note(self, child: FileStatus, place: StorePath) -> None:
        if child.is_directory:
            self._taken[child.path] = place
            self._directories.append(place)

    async def _renew(self, gone: StorePath) -> None:
        """Makes another directory: the last one was removed by another driver of the job, or who set the id up anew."""
        async with self._renewing:
            if self._place == gone:
                await self._make()

    async def empty(self) -> list[StoreError]:
        """Deletes the task attempts' directories and all others that hold none of them, then those that did.

        All in one call each where that suits the store; what fails then is tried again part by part. As long as one of
        them stands, the outcome does: none is left to `end`.
        """
        if self.base_first:
            failures = await self.in_parallel(self._delete_directory, self._directories)
            if not (failures and self.context.config.cleanup_parallel_delete):
                return failures
            await self._look_at_attempts()
        attempts, parents = self._moved_attempts()
        rest = [directory for directory in self._directories if directory not in parents]
        store = self.context.store

        async def delete(directory: StorePath) -> None:
            try:
                await store.delete_directory(directory, recursive=True)
            except StoreError:
                # It is tried once more with its parent.
                if not any(directory.is_under(parent) for parent in parents):
                    raise

        failures = await self.in_parallel(delete, [*attempts, *rest])
        return failures + await self.in_parallel(self._delete_directory, sorted(parents, key=str))

    async def _look_at_attempts(self) -> None:
        """Looks which task attempts' directories are left: 2 calls."""
        layout = self.context.layout
        for place in dict.fromkeys((layout.tasks, layout.sealed, layout.tasks_fenced)):
            self.found[place] = [
                FileStatus(place / child.path.name, child.is_directory, child.size)
                for child in await children_of(self.context.store, self._moved(place))
            ]

    def _moved_attempts(self) -> tuple[list[StorePath], set[StorePath]]:
        """Where the task attempts' directories are by now, and the directories they were taken with."""
        layout = self.context.layout
        attempts: list[StorePath] = []
        parents: set[StorePath] = set()
        for place in dict.fromkeys((layout.tasks, layout.sealed, layout.tasks_fenced)):
            names = [child.path.name for child in self.found.get(place, []) if child.is_directory]
            if names:
                moved = self._moved(place)
                attempts += [moved / name for name in names]
                parents.update(taken for taken in self._directories if moved == taken or moved.is_under(taken))
        return attempts, parents

    def _moved(self, path: StorePath) -> StorePath:
        """Where something is that was taken, or a directory above it."""
        for source, place in self._taken.items():
            if path == source:
                return place
            if path.is_under(source):
                return place / path.relative_to(source)
        return path

    async def _delete_directory(self, directory: StorePath) -> None:
        await self.context.store.delete_directory(directory, recursive=True)

    async def end(self) -> None:
        """Deletes the directory: one call."""
        place, self._place = self._place, None
        if place is not None:
            await self._delete_directory(place)
