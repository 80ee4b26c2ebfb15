"""What is left to a job commit whose files stand at their destinations: to say which of them count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from committer.committers.upload_action import UploadAction
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.base import StageContext
from committer.stages.commit_state import CommitState
from committer.stages.planned_file import PlannedFile
from committer.stages.publish import Published
from committer.stages.roll_back import RollBack
from committer.stages.roll_back_uploads import RollBackUploads
from committer.stages.set_aside_success import SetAsideSuccess
from committer.stages.validate_output import ValidateOutput

DIRECT_NEEDS: Final[Mapping[str, str]] = {
    "exclusive_put": "create a file exclusively",
    "conditional_delete": "delete a file on the condition that it is still the one that was seen",
    "identity": "tell a file from another of its name and length",
}
"""What it takes to tell objects that count from those that do not (`Committer.needs`)."""


class DirectAction(UploadAction):
    """Counts what tasks wrote, which was looked at before the decision. Rolling back deletes it."""

    needs: Mapping[str, str] = DIRECT_NEEDS

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Sets `_SUCCESS` aside, counts, validates."""
        published = Published(most=context.forms.filenames_limit)
        await SetAsideSuccess(context).run(state.decision)
        async for batch in state.files.batches():
            published.add(context.layout, batch, len(batch))
        await ValidateOutput(context).run((state, published))
        return published

    def roll_back(self, context: StageContext) -> RollBack:
        """`RollBackObjects`."""
        return RollBackObjects(context)


class RollBackObjects(RollBackUploads):
    """Every record read, outcome, then undo: each winner's object is deleted, on the condition that it still is that.

    No fence is needed: no driver makes a file visible, and a task attempt that goes on writes under names of its own.

    Cost: 2 calls a file; some 20 for `_SUCCESS`.
    """

    async def _end(self, file: PlannedFile) -> None:
        await self._deleted(file)

    async def _restore(self, aside: StorePath, fact: Fact) -> None:
        if self.context.store.capabilities.multipart:
            await super()._restore(aside, fact)
        else:
            # An identity is never given twice there, so that a late request deletes only what it was sent for.
            await RollBack._restore(self, aside, fact)
