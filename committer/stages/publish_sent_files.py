"""PublishSentFiles: makes the files of a decided job visible that wait in the store under their names already."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from committer.errors import OutcomeUnknownError, RecordError, StoreError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import CommitState, other_end
from committer.stages.existing_target import ExistingTargets
from committer.stages.planned_file import PlannedFile
from committer.stages.publish import Published

ROUNDS: Final = 5
"""How often a file is tried while other changes of its name come between."""


class PublishSentFiles(Stage[CommitState, Published]):
    """Sends what makes each file visible, for many at once. A subclass says which call that is, and on what condition.

    A file is proved by its stamp and length, so that a call that finds nothing waiting any more is told from one whose
    file was given up. Any driver can run it again, at any time.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._existing: ExistingTargets

    @abstractmethod
    async def _make_visible(self, file: PlannedFile, target: StorePath) -> None:
        """Puts one file at its destination, or finds that it stands there."""

    async def execute(self, value: CommitState) -> Published:
        """Publishes all, many at once."""
        self._existing = ExistingTargets(self.context, value, self.name)
        self.context.progress.expect(value.decision.files)
        published, workers = Published(), self.context.config.io_concurrency
        async for batch in value.files.batches():
            done = await run_workers(batch, self._publish, workers=workers, operation=self.name)
            published.add(self.context.layout, batch, done)
        return published

    async def _publish(self, file: PlannedFile) -> None:
        await self._make_visible(file, self.context.layout.target(file.destination))
        self.context.progress.advance(1, file.size)

    def _sent(self, file: PlannedFile, what: str) -> UploadEntry:
        """What the record says waits for the file.

        Raises:
            RecordError: It names none.
        """
        if file.upload is None:
            target = self.context.layout.target(file.destination)
            raise RecordError(
                f"the record of {file.destination} names no {what}", field="files", operation=self.name, path=target
            )
        return file.upload

    async def _lost(self, file: PlannedFile, gone: str, step: str, causes: list[StoreError]) -> OutcomeUnknownError:
        """The error of a file that neither stands at its destination nor waits any more.

        Args:
            file: The file.
            gone: What is gone, and how that can be.
            step: How to find out what did it.
            causes: What the store said.
        """
        again = f"nothing was deleted, and {self.context.recover_call()} goes on from here"
        return self._unknown(file, gone, f"{step}; {again}; where the file is lost, {await self._other_end()}", causes)

    async def _unanswered(self, file: PlannedFile, what: str, causes: list[StoreError]) -> OutcomeUnknownError:
        """The error of a file whose call was answered too seldom to tell what became of it."""
        # SeaweedFS answers so for good where a directory stands at the file's name.
        again = f"{self.context.recover_call()} goes on from here, nothing was deleted"
        step = f"{again}; where it ends like this again, {await self._other_end()}"
        return self._unknown(
            file, f"the answers to its {what} were lost, and its file is not at its destination", step, causes
        )

    async def _other_end(self) -> str:
        return await other_end(self.context, forward_only=self._existing.forward_only)

    def _unknown(self, file: PlannedFile, found: str, step: str, causes: list[StoreError]) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"cannot tell whether {file.destination} was published: {found}",
            operation=self.name,
            path=self.context.layout.target(file.destination),
            next_step=step,
            causes=causes,
        )
