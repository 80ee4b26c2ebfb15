"""What differs between committers once a job is decided: how its files become visible, and how they are taken back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState
from committer.stages.publish.publish import Published, PublishFiles
from committer.stages.publish.publish_elsewhere import PublishElsewhere, is_worth_workers
from committer.stages.undo.roll_back import RollBack


class PublishAction(ABC):
    """How the outputs of a job become visible: by renames, by completing uploads.

    The job-commit core decides, ends, recovers and cleans up; it asks this for what lies in between. Each method may
    run again, or beside another driver of the same job, and then does what is left to do. Holds nothing of a job.

    Attributes:
        needs: What it needs of a store that a trial can show to be missing: capabilities, as in `Committer.needs`.
    """

    needs: Mapping[str, str] = {}

    @abstractmethod
    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Makes every file of every winner visible, validated; from the decision up to the outcome.

        Raises:
            TargetExistsError: A definite refusal: the job is taken back.
            OutcomeUnknownError: See `next_step`; nothing was deleted.
        """

    def files(self, context: StageContext) -> Stage[CommitState, Published]:
        """The stage that makes files visible, those of a job or those of a chunk: `PublishFiles`, for most actions.

        It may run in several processes at a time, of the same files too.
        """
        return PublishFiles(context)

    async def publish_files(self, context: StageContext, state: CommitState) -> Published:
        """Makes the files visible, in this process or by the workers that its caller gave: what `publish` calls."""
        if context.pool is None or (context.config.publish == "auto" and not is_worth_workers(context, state)):
            return await self.files(context).run(state)
        return await PublishElsewhere(context, context.pool, self.files).run(state)

    @abstractmethod
    async def supersede(self, context: StageContext, state: CommitState) -> None:
        """Takes away old files that could not make room before the outcome; before `_SUCCESS` says it is complete."""

    @abstractmethod
    def roll_back(self, context: StageContext) -> RollBack:
        """The stage that takes back what was published."""

    @abstractmethod
    async def settle_rolled_back(self, context: StageContext, state: CommitState) -> None:
        """Has what a rollback changed survive a power loss, before cleanup deletes what it came from."""
