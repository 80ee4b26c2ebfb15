"""The stages that move task attempts out of reach of late writers, and publish whole directories by one rename each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from committer.errors import StoreError, StoreExistsError, StoreNotFoundError
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, looking_again
from committer.stages.durability import sync_directories
from committer.stages.identity import is_file_of, stands_as_directory
from committer.stages.load.promotions import Promotion
from committer.stores.abilities import LOCAL_PATHS, TREE_LISTING
from committer.stores.base import FileStatus
from committer.stores.helpers import walk


class SealTasks(Stage[CommitState, None]):
    """The stage that renames what the winners wrote to where only drivers of this setup of the job's id look for it.

    After that no write by a path of a task attempt's directory, however late, reaches the place that files are
    published from: a listing there shows all that a rename of the directory can bring along.

    Where delayed writes are refused, one rename moves all of `tasks`. It can only be this setup's, since the target's
    parent goes with the setup. Elsewhere a delayed write may have created that parent again, and a delayed rename
    could take another job's tasks; so each attempt's directory, which has a nonce in its name, is renamed singly.

    Every driver runs it before it publishes or rolls back. If a source is gone, it was sealed before, or the job was
    rolled back or is over; the driver notices when it looks for the files. A source beside its sealed directory was
    created by a delayed write, and no driver looks there.

    Postconditions: no winner's file is where task attempts write.
    Cost: one call; where delayed writes are possible one per winner, for which a recoverer reads the records.
    """

    name = "job_stage_seal_tasks"

    async def execute(self, value: CommitState) -> None:
        """Renames, whatever was renamed before."""
        context, layout = self.context, self.context.layout
        if is_sealed_whole(context):
            await seal_whole(context)
            return
        attempts = value.attempts
        if attempts is None:
            attempts = {file.source.partition("/")[0] async for file in value.files}

        async def seal(attempt: str) -> None:
            await _rename(context, layout.recorded_tasks / attempt, layout.tasks / attempt)

        await self.run_workers(sorted(attempts), seal)


async def seal_whole(context: StageContext) -> None:
    """Seals all task attempts of a job by one rename, where `is_sealed_whole`."""
    layout = context.layout
    await _rename(context, layout.recorded_tasks, layout.sealed)
    # The target's parent first: after a power loss the directory must not be in neither place.
    await sync_directories(context, [layout.work], missing_ok=True)
    await sync_directories(context, [layout.job_attempt_directory], missing_ok=True)


async def _rename(context: StageContext, source: StorePath, sealed: StorePath) -> None:
    async def rename() -> None:
        try:
            # What is at the place of a task attempt's directory does not matter: it is moved out of the way.
            await context.store.rename_directory(source, sealed, known=True)
        except (StoreNotFoundError, StoreExistsError):
            return

    await looking_again(rename)


def is_sealed_whole(context: StageContext) -> bool:
    """Whether one rename seals all task attempts of a job, instead of one rename each."""
    return context.store.capabilities.refuses_late_writes


def sealed_layout(context: StageContext) -> JobLayout:
    """Returns the layout of a job with a sealed decision."""
    layout = context.layout
    # Singly sealed attempts go to `superseded`, which setup created, and which a rollback fences against late renames.
    return layout.with_tasks_in(layout.sealed if is_sealed_whole(context) else layout.superseded)


# Directories that are compared in one call.
_COMPARED_AT_ONCE = 2_000


class PromoteDirectories(Stage[list[Promotion], list[Promotion]]):
    """The stage that renames directories that one task attempt alone wrote and that are absent at the destination.

    Such a directory may contain other files of the attempt, so it is listed first and must contain exactly the
    committed files: no other file, link, pipe or directory. Nothing is added afterwards, because the job is sealed
    (`SealTasks`). After any failure, lost responses included, `PublishFiles` handles each file of the directory.

    By default a directory is promoted only if this driver would create the same one, by owner, mode and access lists,
    and if it has no Java checksums, which `PublishFiles` drops. With `promote_directories=True` each keeps what it
    has, and checksums move along with their files.

    Preconditions: the decision exists; the job is sealed; the parents of the directories exist (`CreateDirectories`).
    Postconditions: the returned promotions are in place, each file of them the committed one.
    Cost: one rename per promotion, and one listing per directory in it; where one listing shows a tree, one per task
    attempt, or one for all if `together` (if little else was sealed). One call that compares them, by default.
    """

    name = "job_stage_promote_directories"

    def __init__(self, context: StageContext, *, together: bool = False) -> None:
        super().__init__(context)
        self._together = together

    async def execute(self, value: list[Promotion]) -> list[Promotion]:
        """Promotes concurrently; returns the promotions that succeeded."""
        done: list[Promotion] = []
        progress = self.context.progress
        progress.expect(len(value))

        async def rename(promotion: Promotion) -> None:
            if await self._rename(promotion):
                done.append(promotion)
                progress.advance()

        async def list_and_rename(promotion: Promotion) -> None:
            if await self._exact(layout.tasks / promotion.source, [promotion]):
                await rename(promotion)

        async def list_some(listed: tuple[StorePath, list[Promotion]]) -> None:
            exact.extend(await self._exact(*listed))

        context, layout = self.context, self.context.layout
        alike = value if context.config.promote_directories else await self._alike(value)
        if TREE_LISTING.of(context.store) is None:
            await self.run_workers(alike, list_and_rename)
            return done
        exact: list[Promotion] = []
        await self.run_workers(self._listings(alike), list_some)
        await self.run_workers(exact, rename)
        return done

    def _listings(self, promotions: list[Promotion]) -> list[tuple[StorePath, list[Promotion]]]:
        """Returns the trees to list, with the promotions in each."""
        tasks = self.context.layout.tasks
        if self._together:
            return [(tasks, promotions)] if promotions else []
        by_owner: dict[str, list[Promotion]] = {}
        for promotion in promotions:
            by_owner.setdefault(promotion.owner, []).append(promotion)
        return [(tasks / (owner if len(some) > 1 else some[0].source), some) for owner, some in by_owner.items()]

    async def _alike(self, promotions: list[Promotion]) -> list[Promotion]:
        """Returns the promotions whose directories are all as this driver would create them."""
        layout = self.context.layout
        able = LOCAL_PATHS.required(self.context.store, self.name)
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

    async def _rename(self, promotion: Promotion) -> bool:
        layout = self.context.layout
        try:
            source, target = layout.tasks / promotion.source, layout.destination / promotion.directory
            # The listing showed files in it.
            await self.context.store.rename_directory(source, target, known=True)
        except StoreError:
            return False
        return True

    async def _exact(self, root: StorePath, promotions: list[Promotion]) -> list[Promotion]:
        """Returns the promotions that contain exactly their committed files, by one look at everything below `root`."""
        tasks = self.context.layout.tasks
        places = {f"{one.owner}/{directory}": one for one in promotions for directory in one.directories}
        seen: dict[str, set[str]] = {one.directory: set() for one in promotions}
        others: set[str] = set()
        try:
            async for status in self._below(root):
                name = status.path.relative_to(tasks)
                if name in places and stands_as_directory(status):
                    continue
                promotion = places.get(name.rpartition("/")[0])
                if promotion is None:
                    continue
                below = name[len(promotion.source) + 1 :]
                file = promotion.files.get(below)
                if file is not None and is_file_of(status, file):
                    seen[promotion.directory].add(below)
                else:
                    others.add(promotion.directory)
        except StoreError:
            return []
        return [one for one in promotions if one.directory not in others and len(seen[one.directory]) == len(one.files)]

    def _below(self, root: StorePath) -> AsyncIterator[FileStatus]:
        able = TREE_LISTING.of(self.context.store)
        return walk(self.context.store, root) if able is None else able.list_tree(root)
