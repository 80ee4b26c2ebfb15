"""Publishing by renames: each file moves from its task attempt's directory to its destination."""

from __future__ import annotations

from collections.abc import Iterable

from committer.committers.publish_action import PublishAction
from committer.flow.together import both_in_full
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.commit_state import CommitState
from committer.stages.create_directories import CreateDirectories
from committer.stages.decided_facts import FactList
from committer.stages.durability import sync_directories
from committer.stages.move_aside import MoveAside
from committer.stages.names import ancestors, with_ancestors
from committer.stages.promote import PromoteDirectories
from committer.stages.promotions import Promotion
from committer.stages.publish import Published
from committer.stages.roll_back import RollBack
from committer.stages.seal import SealTasks
from committer.stages.success_file import SetAsideSuccess
from committer.stages.validate_output import ValidateOutput


class RenameAction(PublishAction):
    """For stores that rename a file atomically: old files move aside, new ones into place, and back in a rollback."""

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Seals, makes room, makes directories, renames, moves what is superseded aside, validates."""
        directories = _not_below(state.directories, state.promotions)
        set_aside, create = SetAsideSuccess(context).run(state.decision), CreateDirectories(context)
        if state.blocking:
            await both_in_full(_seal(context, state), set_aside)
            await MoveAside(context).run(FactList(state.blocking))
            await create.run(directories)
        else:
            # In full: a directory that is made late, when the job was taken back, would stay.
            await both_in_full(_seal(context, state), both_in_full(set_aside, create.run(directories)))
        if directories:
            # Nothing moves into a directory that a power loss could take away again.
            await _sync(context, (context.layout.target(name).parent for name in directories))
        if state.promotions:
            await _promote(context, state)
        published = await self.publish_files(context, state)
        if state.superseded:
            await MoveAside(context).run(state.superseded)
        if context.durable:
            await _sync(context, await _touched(context, state))
        await ValidateOutput(context).run((state, published))
        return published

    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Nothing: superseded files were moved aside before the outcome, and go with the job's directory."""

    def roll_back(self, context: StageContext) -> RollBack:
        """`RollBack`, which moves files back."""
        return RollBack(context)

    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Forces the directories that files came back to, or left, to the disk."""
        if not context.durable:
            return
        # A rollback makes directories again that were removed since, and removes those that the job made.
        layout = context.layout
        above = with_ancestors(await _left(state), layout.roots)
        restored = {layout.target(name) for name in above}
        await sync_directories(context, restored | await _touched(context, state), missing_ok=True)


async def _sync(context: StageContext, directories: Iterable[StorePath]) -> None:
    """Forces names at the destination to the disk; one call a directory, and one more.

    Where old files went is forced before where they were: a power loss in between may leave them in both places, never
    in neither.
    """
    if not context.durable:
        return
    await sync_directories(context, [context.layout.superseded])
    # A directory of old files that another user removed since needs nothing.
    await sync_directories(context, directories, missing_ok=True)


async def _seal(context: StageContext, state: CommitState) -> None:
    if context.layout.is_sealed:
        await SealTasks(context).run(state.files)


async def _promote(context: StageContext, state: CommitState) -> None:
    """Renames whole directories; makes those that were not renamed, for their files."""
    done = {promotion.directory: promotion for promotion in await PromoteDirectories(context).run(state.promotions)}
    for promotion in done.values():
        state.promoted.update({file.destination: file for file in promotion.files.values()})
    left = [name for found in state.promotions if found.directory not in done for name in found.directories]
    if left:
        await CreateDirectories(context).run(left)
        await _sync(context, (context.layout.target(name).parent for name in left))


def _not_below(directories: list[str], promotions: list[Promotion]) -> list[str]:
    """Directories to make: those that come with a promoted one are left out."""
    promoted = {promotion.directory for promotion in promotions}
    if not promoted:
        return directories
    return [name for name in directories if not ({name, *ancestors(name)} & promoted)]


async def _touched(context: StageContext, state: CommitState) -> set[StorePath]:
    """Every directory of the destination that gains or loses a name."""
    target = context.layout.target
    touched = {context.layout.destination, *(target(name) for name in state.directories)}
    touched.update(target(name).parent for name in state.directories)
    touched.update(target(name) for name in await _left(state))
    async for file in state.files:
        touched.add(target(file.destination).parent)
    return touched


async def _left(state: CommitState) -> set[str]:
    """Directories of what was moved aside."""
    left = {fact.path.rpartition("/")[0] for fact in (*state.blocking, *state.targets.values())}
    return left | await state.superseded.directories()
