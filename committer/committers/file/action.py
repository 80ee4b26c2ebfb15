"""Publishing what tasks committed: by renames, from where a job commit took it."""

from __future__ import annotations

from committer.committers.file.giving_back import restore
from committer.committers.file.layout import CommittedLayout
from committer.committers.rename_action import RenameAction
from committer.records.job_state import JobOutcome
from committer.stages.base import StageContext
from committer.stages.commit_state import CommitState
from committer.stages.publish import Published
from committer.stages.roll_back import RollBack, RollBackRequest


class TakenAction(RenameAction):
    """`RenameAction`. A driver that gave up may have begun to give back what this one's decision rests on: one call
    more finds that out.
    """

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Makes sure that what was taken is there; then as `RenameAction`."""
        await _restore(context)
        return await super().publish(context, state)

    def roll_back(self, context: StageContext) -> RollBack:
        """`RollBack`, which moves files back."""
        return _RollBackTaken(context)


class _RollBackTaken(RollBack):
    async def execute(self, value: RollBackRequest) -> JobOutcome:
        await _restore(self.context)
        return await super().execute(value)


async def _restore(context: StageContext) -> None:
    if isinstance(context.layout, CommittedLayout):
        await restore(context, context.layout)
