"""The interface of publish actions: how a decided job's files become visible, and are rolled back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.publish.publish import Published, PublishFiles
from committer.stages.publish.publish_elsewhere import PublishElsewhere, is_worth_workers
from committer.stages.undo.roll_back import RollBack


class PublishAction(ABC):
    """Base class of publish actions, which make files visible from the decision up to the outcome; without state.

    Each method may run again, or beside another driver of the same job, and then does what is left to do.
    `needs` are capabilities that a probe can show to be missing, as in `Committer.needs`.
    """

    needs: Mapping[str, str] = {}

    @abstractmethod
    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Makes every winner's files visible and validates them; runs from the decision up to the outcome.

        Raises:
            TargetExistsError: A definite refusal: the job is rolled back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
        """

    def files(self, context: StageContext) -> Stage[CommitState, Published]:
        """Returns the stage that makes the files of a job or chunk visible; it may run in several processes at once."""
        return PublishFiles(context)

    async def publish_files(self, context: StageContext, state: CommitState) -> Published:
        """Makes the files visible, in this process or by the caller's workers."""
        if context.pool is None or (context.config.publish == "auto" and not is_worth_workers(context, state)):
            return await self.files(context).run(state)
        return await PublishElsewhere(context, context.pool, self.files).run(state)

    @abstractmethod
    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Removes old files that could not be moved before the outcome; runs before `_SUCCESS`."""

    @abstractmethod
    def roll_back(self, context: StageContext) -> RollBack:
        """Returns the stage that rolls a job back."""

    @abstractmethod
    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Makes a rollback durable, before cleanup deletes what it restored files from."""
