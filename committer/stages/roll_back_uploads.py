"""RollBackUploads: takes back a job whose files are completed uploads."""

from __future__ import annotations

from typing import cast

from committer.errors import StorePreconditionError
from committer.flow.workers import run_workers
from committer.stages.commit_state import CommitState, looking_again
from committer.stages.identity import is_file_of
from committer.stages.planned_files import PlannedFile
from committer.stages.roll_back import RollBack, RollBackRequest
from committer.stores.base import SupportsConditionalDelete
from committer.stores.helpers import end_upload, status_or_none


class RollBackUploads(RollBack):
    """Outcome, then undo: what is completed is deleted, on the condition that it still is the job's file; the rest
    is aborted.

    An upload that is gone can never be completed, however late the request: so each file fences itself, and no word is
    needed that other drivers are dead. Nothing old was taken away yet (G13), so nothing but `_SUCCESS` comes back.

    Cost: 2 calls a file that was published, 4 a file that was not.
    """

    name = "job_stage_roll_back"

    def _check_fencing(self, value: RollBackRequest) -> None:
        """Every upload is a fence of its own."""

    async def _check_provable(self, state: CommitState, tasks: object) -> None:
        """Stamps prove which files are the job's."""

    async def put_back_late(self, state: CommitState) -> None:
        """Puts `_SUCCESS` back, should this driver have taken it away after the job was rolled back by another."""
        await self._put_back_success(state)

    async def undo(self, state: CommitState) -> None:
        """Takes back what was published, ends what was not. Idempotent; only for a job that is rolled back."""
        await run_workers(
            state.files,
            lambda file: looking_again(lambda: self._end(file)),
            workers=self.context.config.io_concurrency,
            operation=self.name,
        )
        await self._put_back_success(state)

    async def _end(self, file: PlannedFile) -> None:
        if file.upload is None or await self._deleted(file):
            return
        await end_upload(self.context.store, self.context.layout.target(file.destination), file.upload.id)
        # Another driver may have completed it since it was looked at; from here on none can.
        await self._deleted(file)

    async def _deleted(self, file: PlannedFile) -> bool:
        """Deletes the file where it is the job's; whether it was."""
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.identity is None or not is_file_of(status, file):
            return False
        try:
            await cast("SupportsConditionalDelete", self.context.store).delete_file_if(target, identity=status.identity)
        except StorePreconditionError:
            # Somebody replaced it since it was looked at.
            return True
        return True
