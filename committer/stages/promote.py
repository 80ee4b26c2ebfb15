"""PromoteDirectories: publishes a whole directory by one rename where that cannot make anything else visible."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from committer.errors import StoreError
from committer.flow.workers import run_workers
from committer.stages.base import Stage
from committer.stages.identity import is_file_of, stands_as_directory
from committer.stages.names import ancestors
from committer.stages.promotions import Promotion
from committer.stores.base import FileStatus
from committer.stores.directory_rights import DIRECTORY_RIGHTS
from committer.stores.helpers import walk

# Directories that are compared in one call.
_COMPARED_AT_ONCE = 2_000


class PromoteDirectories(Stage[list[Promotion], list[Promotion]]):
    """Renames directories that one task attempt alone wrote and that are absent at the destination.

    Such a directory holds whatever the attempt left in it, so it is listed first and must hold exactly the committed
    files: no other file, link, pipe or directory. Nothing that goes by its path comes into it any more, because the
    job is sealed (`SealTasks`). Any other answer than success leaves the directory to `PublishFiles`, which looks at
    each file, so a lost answer needs no recovery of its own.

    Unless the caller asked for it, a directory is promoted only where one that this driver makes would be the same, by
    owner, mode and access lists, and leaves Java's checksums to `PublishFiles`, which drops them. With
    `promote_directories=True` each keeps what it has, and checksums come along with the files that they belong to.

    Preconditions: the decision stands; the job is sealed; the parents of the directories stand (`CreateDirectories`).
    Postconditions: the promotions returned are in place, each file of them the one that was committed.
    Cost: one listing a directory in it, one rename; one look at all of them, unless the caller asked for it.
    """

    name = "job_stage_promote_directories"

    async def execute(self, value: list[Promotion]) -> list[Promotion]:
        """Promotes many at once; returns those that succeeded."""
        done: list[Promotion] = []
        progress = self.context.progress
        progress.expect(len(value))

        async def promote(promotion: Promotion) -> None:
            if await self._promote(promotion):
                done.append(promotion)
                progress.advance()

        alike = value if self.context.config.promote_directories else await self._alike(value)
        await run_workers(alike, promote, workers=self.context.config.io_concurrency, operation=self.name)
        return done

    async def _alike(self, promotions: list[Promotion]) -> list[Promotion]:
        """Those whose every directory is as this driver would make it."""
        layout = self.context.layout
        able = DIRECTORY_RIGHTS.required(self.context.store, self.name)
        asked = [
            (number, layout.tasks / f"{promotion.owner}/{directory}", layout.target(promotion.directory).parent)
            for number, promotion in enumerate(promotions)
            for directory in promotion.directories
        ]
        others: set[int] = set()
        for start in range(0, len(asked), _COMPARED_AT_ONCE):
            some = asked[start : start + _COMPARED_AT_ONCE]
            alike: Sequence[bool] = [False] * len(some)
            with suppress(StoreError):
                alike = await able.made_alike([(directory, parent) for _number, directory, parent in some])
            others.update(number for (number, _, _), same in zip(some, alike, strict=True) if not same)
        return [promotion for number, promotion in enumerate(promotions) if number not in others]

    async def _promote(self, promotion: Promotion) -> bool:
        layout, store = self.context.layout, self.context.store
        source = layout.tasks / promotion.source
        target = layout.destination / promotion.directory
        try:
            if not await self._holds_exactly(promotion):
                return False
            await store.rename_directory(source, target)
        except StoreError:
            return False
        return True

    async def _holds_exactly(self, promotion: Promotion) -> bool:
        root = self.context.layout.tasks / promotion.source
        needed = {directory for name in promotion.files for directory in ancestors(name)}
        seen: dict[str, FileStatus] = {}
        async for status in walk(self.context.store, root):
            name = status.path.relative_to(root)
            if not stands_as_directory(status):
                seen[name] = status
            elif name not in needed:
                return False
        return seen.keys() == promotion.files.keys() and all(
            is_file_of(seen[name], file) for name, file in promotion.files.items()
        )
