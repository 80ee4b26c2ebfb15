"""Removing what a job left, where directories are not real: by what was listed, and what it was."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from committer.errors import StoreError, StoreNotEmptyError, StorePreconditionError
from committer.flow.together import both, together
from committer.layout import DRIVERS, MANIFEST_SUFFIX, PLAN, has_nonce
from committer.paths import StorePath
from committer.records.job_state import is_of
from committer.stages.base import StageContext
from committer.stages.own_records import read_outcome
from committer.stages.removal_base import TRIES, Removal
from committer.stores.abilities import BATCH_DELETE
from committer.stores.base import FileStatus
from committer.stores.conditions import CONDITIONAL_DELETE
from committer.stores.helpers import children_of, status_or_none
from committer.stores.odd_names import delete_odd


class RemovalByIdentity(Removal):
    """Where directories are not real: all is listed before the last look at whose setup record stands.

    What has a name that no other job's things have is deleted by that, whenever; all else on the condition that it is
    still what was listed. Where the store deletes nothing on conditions, that goes by name as well.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._below: list[FileStatus] = []
        self._surveyed: set[StorePath] = set()
        self._marked: list[StorePath] = []

    @property
    def run_lists(self) -> list[StorePath]:
        """See `Removal.run_lists`."""
        uploads = self.context.layout.uploads.name
        return [child.path for child in self._below if child.is_directory and child.path.parent.name == uploads]

    async def look(self) -> None:
        """Lists all that is not of one task attempt alone, then the job's directory: about 6 listings in 3 rounds."""
        layout = self.context.layout
        await self.look_outside()
        outside = [child.path for child in self.outside if child.is_directory and not _is_of_one(child.path.name)]
        await together(*map(self._survey, (layout.job_attempt_directory, *outside)))
        children = await children_of(self.context.store, layout.job_directory)
        others = [child.path for child in children if child.is_directory and not self._is_known(child.path)]
        if others:
            # Another job attempt's, of Hadoop's.
            await together(*map(self._survey, others))
            children = await children_of(self.context.store, layout.job_directory)
        self.found.clear()
        self.found[layout.job_directory] = children

    def _is_known(self, directory: StorePath) -> bool:
        return directory in self._surveyed or _is_of_one(directory.name)

    async def _survey(self, directory: StorePath) -> None:
        """Finds what is to be deleted below a directory: one listing for each whose name other jobs' have, too."""
        self._surveyed.add(directory)
        inner: list[StorePath] = []
        for child in await children_of(self.context.store, directory):
            if child.is_directory and not _is_of_one(child.path.name):
                inner.append(child.path)
            else:
                self._below.append(child)
        await together(*map(self._survey, inner))

    async def take(self, child: FileStatus) -> None:
        """Deletes it: a directory by what was listed below it."""
        if not child.is_directory:
            known = next((one for one in self.children if one.path == child.path), None)
            await self._delete(known or await self._seen_again(child.path))
        elif child.path in self._surveyed:
            failures = await self._delete_all([one for one in self._below if one.path.is_under(child.path)])
            if failures:
                raise failures[0]
            if child in self.outside:
                # Where it is shared with other jobs it is looked whether anything is left.
                await self._remove_marks(child.path)
            else:
                self._marked.append(child.path)
        elif _is_of_one(child.path.name):
            await self.context.store.delete_directory(child.path, recursive=True)

    async def take_all(self, children: Iterable[FileStatus]) -> list[StoreError]:
        """Takes many; one failure does not stop the others. What failed is returned."""
        found = list(children)
        seen = {child.path: child for child in self.children}
        files = [seen.get(child.path, child) for child in found if not child.is_directory]
        directories = [child for child in found if child.is_directory]
        failures = await both(super().take_all(directories), self._delete_all(files))
        return [*failures[0], *failures[1]]

    async def _delete_all(self, found: list[FileStatus]) -> list[StoreError]:
        """Deletes many: files of a name that no other job's have, as many in one call as the store takes."""
        able = BATCH_DELETE.of(self.context.store)
        named = [child.path for child in found if not child.is_directory and _is_of_one(child.path.name)]
        if able is None or len(named) < 2:
            return await self.in_parallel(self._delete, found)
        most = self.context.store.capabilities.max_batch_delete or len(named)
        refused: list[StoreError] = []

        async def delete(first: int) -> None:
            refused.extend((await able.delete_files(named[first : first + most])).values())

        apart = set(named)
        rest = [child for child in found if child.path not in apart]
        failures = await both(
            self.in_parallel(self._delete, rest), self.in_parallel(delete, range(0, len(named), most))
        )
        return [*failures[0], *failures[1], *refused]

    async def _delete(self, seen: FileStatus | None) -> None:
        store = self.context.store
        able = CONDITIONAL_DELETE.of(store)
        for _try in range(TRIES):
            if seen is None:
                return
            if seen.is_directory:
                await store.delete_directory(seen.path, recursive=True)
                return
            if able is None or seen.identity is None or _is_of_one(seen.path.name):
                await store.delete_file(seen.path)
                return
            try:
                await able.delete_file_if(seen.path, identity=seen.identity)
                return
            except StorePreconditionError:
                seen = await self._seen_again(seen.path)

    async def _seen_again(self, path: StorePath) -> FileStatus | None:
        """What stands there by now, if it is this job's: another driver of it may have written it again.

        2 or 3 calls.
        """
        layout, store = self.context.layout, self.context.store
        standing = await status_or_none(store, path)
        setup = await status_or_none(store, layout.setup)
        if setup is not None:
            await self.refuse_another([setup])
        elif path == layout.outcome:
            outcome = await read_outcome(store, layout)
            if outcome is not None and not is_of(outcome.setup, layout.setup_name):
                return None
        return standing

    async def empty(self) -> list[StoreError]:
        """Removes what marks directories whose content was deleted."""
        marked, self._marked = self._marked, []
        return await self.in_parallel(self._remove_marks, marked)

    async def end(self) -> None:
        """Removes what marks directories, where `empty` was not asked to."""
        failures = await self.empty()
        if failures:
            raise failures[0]

    async def _remove_marks(self, directory: StorePath) -> None:
        """Removes what marks a directory, as Hadoop's clients make it, where nothing else is below: one call.

        Where that is not so one more for each directory below, and 8 more for each that still is not empty then: what
        no listing shows there is no job's.
        """
        store = self.context.store
        try:
            await store.delete_directory(directory, recursive=False)
        except StoreNotEmptyError:
            below = [place for place in self._surveyed if place.is_under(directory)]
            for place in (*sorted(below, key=lambda place: -len(place.path)), directory):
                try:
                    await store.delete_directory(place, recursive=False)
                except StoreNotEmptyError:
                    await delete_odd(store, place)
                    with suppress(StoreNotEmptyError):
                        await store.delete_directory(place, recursive=False)


def _is_of_one(name: str) -> bool:
    """Whether no job that is set up anew has anything of that name: it holds the nonce of a run, setup or driver."""
    return name.startswith((DRIVERS, PLAN)) or has_nonce(name.removesuffix(".tmp").removesuffix(MANIFEST_SUFFIX))
