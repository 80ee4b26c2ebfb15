"""RollBackUploads: takes back a job whose files are completed uploads."""

from __future__ import annotations

from committer.errors import (
    OutcomeUnknownError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.stages.commit_state import CommitState, looking_again
from committer.stages.identity import is_file_of
from committer.stages.planned_file import PlannedFile
from committer.stages.roll_back import RollBack, RollBackRequest
from committer.stores.helpers import delete_seen, status_or_none
from committer.stores.upload_ends import end_upload, is_pending


class RollBackUploads(RollBack):
    """Every record read, outcome, then undo: what is completed is deleted, on the condition that it still is the job's
    file; the rest is aborted.

    An upload that is gone can never be completed, however late the request: so each file fences itself, and no word is
    needed that other drivers are dead. Nothing old was taken away yet (G13), so nothing but `_SUCCESS` comes back.

    A request to delete the old `_SUCCESS` may arrive yet: one without answer, or of a driver that was paused. All it is
    held to is an etag, which is made of the content and of how it was sent. So `_SUCCESS` comes back with the same
    content, sent the other way, even if it still stands there.

    Cost: 2 calls a file that was published, 4 a file that was not, each 2 more of Hadoop's; some 20 for `_SUCCESS`.
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
        if file.upload is None:
            return
        store, target = self.context.store, self.context.layout.target(file.destination)
        pends = False
        if not file.stamp:
            # Hadoop stamps nothing. What stands there while the upload still pends is not the job's, however like it.
            alike = is_file_of(await status_or_none(store, target), file)
            pends = await is_pending(store, target, file.upload.id)
            if alike and pends:
                await end_upload(store, target, file.upload.id)
                return
        if await self._deleted(file):
            return
        await end_upload(store, target, file.upload.id)
        # Another driver may have completed it since it was looked at; from here on none can.
        if not await self._deleted(file) and not (file.stamp or (file.identity and pends)):
            await self._refuse_to_guess(file)

    async def _refuse_to_guess(self, file: PlannedFile) -> None:
        """Hadoop stamps nothing, and where parts are encrypted their etags may say nothing of the file's, which then is
        not the one that was foreseen.
        """
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.is_directory or status.size != file.size:
            return
        raise OutcomeUnknownError(
            f"cannot tell whether what stands at {file.destination} is the job's: it has its length, and nothing "
            "proves what Hadoop's tasks wrote there",
            operation=self.name,
            path=target,
            next_step=f"look at it, delete it if it is the job's, then call {self.context.recover_call(rollback=True)}",
        )

    async def _deleted(self, file: PlannedFile) -> bool:
        """Deletes the file where it is the job's; whether it was."""
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.identity is None or not is_file_of(status, file):
            return False
        try:
            await delete_seen(self.context.store, target, identity=status.identity)
        except StorePreconditionError:
            # Another process replaced it since it was looked at.
            return True
        return True
