"""The committer block-list: tasks send blocks, job commit writes the block lists that make files of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.committers.actions import PublishAction, UploadAction, needs_of
from committer.committers.base import Committer
from committer.paths import StorePath
from committer.stages.base import AttemptIdentity, Stage, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.publish.publish import Published
from committer.stages.publish.sent_files import PutBlockLists
from committer.stages.task.attempt_files import AttemptFiles
from committer.stages.task.sent_files import BlockFiles
from committer.stages.undo.roll_back import RollBack, RollBackBlocks

_NEEDS: Final = needs_of("block_lists", "exclusive_put", "conditional_delete")


class BlockListAction(UploadAction):
    """A publish action for stores that make files of blocks and cannot rename. Old files stay until the outcome."""

    needs: Mapping[str, str] = _NEEDS
    files: type[Stage[CommitState, Published]] = PutBlockLists
    roll_back: type[RollBack] = RollBackBlocks


class BlockListCommitter(Committer):
    """Committer for Azure storage accounts without hierarchical namespace; Hadoop has no such committer.

    Tasks send blocks under each file's final name; job commit writes its block list in one call.
    """

    name = "block-list"
    needs: Mapping[str, str] = _NEEDS
    action: PublishAction = BlockListAction()
    no_hadoop: str = "their files would have to be copied"

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns files that are sent as blocks."""
        return BlockFiles(context, directory)
