"""Publish actions: how a decided job's files become visible, and are rolled back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final

from committer.flow.together import both_in_full
from committer.paths import StorePath
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.facts import FactList, directories_of
from committer.stages.finish.validate_output import ValidateOutput
from committer.stages.load.promotions import LISTED_IN_A_CALL, Promotion
from committer.stages.names import ancestors, with_ancestors
from committer.stages.publish.move_aside import DeleteSuperseded, MoveAside, SetAsideSuccess
from committer.stages.publish.promote import PromoteDirectories, SealTasks
from committer.stages.publish.publish import CreateDirectories, Published, PublishFiles
from committer.stages.publish.publish_elsewhere import PublishElsewhere, is_worth_workers
from committer.stages.publish.sent_files import CompleteUploads
from committer.stages.undo.roll_back import RollBack, RollBackUploads

_SPARES: Final = "delete a file on the condition that it is still the one that was seen"
_ABILITIES: Final[Mapping[str, str]] = {
    "atomic_directory_rename": "rename a directory atomically",
    "atomic_file_rename": "rename a file atomically",
    "block_lists": "make a file of blocks that were sent before, in one call",
    "conditional_delete": _SPARES,
    "exclusive_put": "create a file exclusively",
    "identity": "tell a file from another of its name and length",
    "identity_through_rename": "still do so once the file was renamed",
    "multipart": "withhold the completion of an upload",
    "no_replace_rename": "rename without replacing",
    "replacing_rename": "replace a file by a rename",
    "spares_others": _SPARES,
}


def needs_of(*abilities: str) -> Mapping[str, str]:
    """Returns the `needs` of a committer: each of these capabilities of a store with its description."""
    return {ability: _ABILITIES[ability] for ability in abilities}


class PublishAction(ABC):
    """Base class of publish actions, which make files visible from the decision up to the outcome; without state.

    Each method may run again, or beside another driver of the same job, and then does what is left to do.

    Attributes:
        needs: Capabilities that a probe can show to be missing, as in `Committer.needs`.
        files: The stage that makes the files of a job or chunk visible; it may run in several processes at once.
        roll_back: The stage that rolls a job back.
    """

    needs: Mapping[str, str] = {}
    files: type[Stage[CommitState, Published]] = PublishFiles
    roll_back: type[RollBack]

    def __init_subclass__(cls) -> None:
        """Refuses a class without rollback, which a decided job may need."""
        super().__init_subclass__()
        if not hasattr(cls, "roll_back"):
            raise TypeError(f"{cls.__name__} has no roll_back")

    @abstractmethod
    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Makes every winner's files visible and validates them; runs from the decision up to the outcome.

        Raises:
            TargetExistsError: A definite refusal: the job is rolled back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
        """

    async def publish_files(self, context: StageContext, state: CommitState) -> Published:
        """Makes the files visible, in this process or by the caller's workers."""
        if context.pool is None or (context.config.publish == "auto" and not is_worth_workers(context, state)):
            return await self.files(context).run(state)
        return await PublishElsewhere(context, context.pool, self.files).run(state)

    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Removes old files that `publish` did not move aside, by default none; runs before `_SUCCESS`."""
        return

    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Makes a rollback durable, before cleanup deletes what it restored files from; by default does nothing."""
        return


class RenameAction(PublishAction):
    """A publish action for stores that rename a file atomically. Old files are moved aside, and back in a rollback."""

    roll_back: type[RollBack] = RollBack

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Seals task attempts, moves files out of the way, publishes, moves superseded files aside, validates."""
        directories = _not_below(state.directories, state.promotions)
        set_aside, create = SetAsideSuccess(context).run(state.decision), CreateDirectories(context)
        if state.blocking:
            await both_in_full(_seal(context, state), set_aside)
            await MoveAside(context).run(FactList(state.blocking))
            await create.run(directories)
        else:
            # Both must end before this returns: a directory created after a rollback would remain.
            await both_in_full(_seal(context, state), both_in_full(set_aside, create.run(directories)))
        if directories:
            # A file is only moved into a directory that a power loss cannot remove.
            await _sync(context, (context.layout.target(name).parent for name in directories))
        if state.promotions:
            state.promote = WholeDirectories(context, state.promotions, files=state.decision.files).promote
        published = await self.publish_files(context, state)
        if state.superseded:
            await MoveAside(context).run(state.superseded)
        if context.durable:
            await _sync(context, await _touched(context, state))
        await ValidateOutput(context).run((state, published))
        return published

    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Syncs to disk the directories that the rollback moved files to or from."""
        if not context.durable:
            return
        # A rollback creates directories again that the job removed, and removes those that it created.
        layout = context.layout
        above = with_ancestors(await _left(state), layout.roots)
        restored = {layout.target(name) for name in above}
        await sync_directories(context, restored | await _touched(context, state), missing_ok=True)


async def _sync(context: StageContext, directories: Iterable[StorePath]) -> None:
    """Syncs the directory of old files, then the destinations: a power loss duplicates a file at worst."""
    if not context.durable:
        return
    await sync_directories(context, [context.layout.superseded])
    # Another user may have removed a directory of old files since.
    await sync_directories(context, directories, missing_ok=True)


async def _seal(context: StageContext, state: CommitState) -> None:
    if context.layout.is_sealed:
        await SealTasks(context).run(state)


class WholeDirectories:
    """Publisher of directories that can be renamed as a whole; `files` is the number of all sealed files."""

    def __init__(self, context: StageContext, promotions: list[Promotion], *, files: int) -> None:
        self._context = context
        self._files = files
        self._count = len(promotions)
        self._by_directory = {name: promotion for promotion in promotions for name in promotion.directories}

    def _listed_together(self, turn: list[Promotion]) -> bool:
        """Returns whether one listing of all sealed files costs less than one for each attempt."""
        attempts = len({promotion.owner for promotion in turn})
        return len(turn) == self._count and 1 + self._files // LISTED_IN_A_CALL < attempts

    async def promote(self, files: list[PlannedFile]) -> list[PlannedFile]:
        """Renames the complete directories of these files, creates the others. See `CommitState.promote`."""
        context = self._context
        turn: dict[str, Promotion] = {}
        for file in files:
            promotion = self._by_directory.get(file.destination.rpartition("/")[0])
            if promotion is not None:
                turn[promotion.directory] = promotion
                promotion.files[file.destination[len(promotion.directory) + 1 :]] = file
        if not turn:
            return files
        try:
            whole = [promotion for promotion in turn.values() if len(promotion.files) == promotion.count]
            stage = PromoteDirectories(context, together=self._listed_together(whole))
            done = {name for promotion in await stage.run(whole) for name in promotion.directories}
        finally:
            for promotion in turn.values():
                promotion.files.clear()
        left = [name for promotion in turn.values() for name in promotion.directories if name not in done]
        if left:
            await CreateDirectories(context).run(left)
            await _sync(context, (context.layout.target(name).parent for name in left))
        return [file for file in files if file.destination.rpartition("/")[0] not in done]


def _not_below(directories: list[str], promotions: list[Promotion]) -> list[str]:
    """Returns the directories to create, without those that a promoted directory brings along."""
    promoted = {promotion.directory for promotion in promotions}
    if not promoted:
        return directories
    return [name for name in directories if not ({name, *ancestors(name)} & promoted)]


async def _touched(context: StageContext, state: CommitState) -> set[StorePath]:
    target = context.layout.target
    touched = {context.layout.destination, *(target(name) for name in state.directories)}
    touched.update(target(name).parent for name in state.directories)
    touched.update(target(name) for name in await _left(state))
    async for file in state.files:
        touched.add(target(file.destination).parent)
    return touched


async def _left(state: CommitState) -> set[str]:
    left = directories_of(state.blocking) | await state.targets.directories()
    return left | await state.superseded.directories()


class UploadAction(PublishAction):
    """A publish action for stores that withhold uploads and cannot rename. Old files stay until the outcome."""

    needs: Mapping[str, str] = needs_of("multipart", "exclusive_put", "spares_others")
    files: type[Stage[CommitState, Published]] = CompleteUploads
    roll_back: type[RollBack] = RollBackUploads

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Moves `_SUCCESS` aside, completes the uploads, validates."""
        await SetAsideSuccess(context).run(state.decision)
        published = await self.publish_files(context, state)
        await ValidateOutput(context).run((state, published))
        return published

    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Deletes superseded files, and old files in the place of new directories."""
        for facts in (state.superseded, FactList(state.blocking)):
            if facts:
                await DeleteSuperseded(context).run(facts)
