"""Publishing by uploads: each file is complete at its destination but for one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.committers.publish_action import PublishAction
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import CommitState
from committer.stages.complete_uploads import CompleteUploads
from committer.stages.decided_facts import FactList
from committer.stages.delete_superseded import DeleteSuperseded
from committer.stages.publish import Published
from committer.stages.roll_back import RollBack
from committer.stages.roll_back_uploads import RollBackUploads
from committer.stages.set_aside_success import SetAsideSuccess
from committer.stages.validate_output import ValidateOutput

UPLOADS_NEED: Final[Mapping[str, str]] = {
    "multipart": "withhold the completion of an upload",
    "exclusive_put": "create a file exclusively",
    "spares_others": "delete a file on the condition that it is still the one that was seen",
}
"""What a committer whose files wait in uploads needs of a store (`Committer.needs`)."""


class UploadAction(PublishAction):
    """For stores that withhold the completion of uploads and rename nothing: old files stay until the outcome."""

    needs: Mapping[str, str] = UPLOADS_NEED

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Sets `_SUCCESS` aside, completes, validates."""
        await SetAsideSuccess(context).run(state.decision)
        published = await self.publish_files(context, state)
        await ValidateOutput(context).run((state, published))
        return published

    def files(self, context: StageContext) -> Stage[CommitState, Published]:
        """`CompleteUploads`."""
        return CompleteUploads(context)

    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Deletes what is superseded, and what stood where directories go."""
        for facts in (state.superseded, FactList(state.blocking)):
            if facts:
                await DeleteSuperseded(context).run(facts)

    def roll_back(self, context: StageContext) -> RollBack:
        """`RollBackUploads`."""
        return RollBackUploads(context)

    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Nothing: what such a store answered survives."""
