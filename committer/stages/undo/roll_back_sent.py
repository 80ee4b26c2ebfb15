"""RollBackUploads and RollBackBlocks: undo a job whose files were sent to the store."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import (
    OutcomeUnknownError,
    StoreExistsError,
    StorePartsError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.decide.commit_state import CommitState, looking_again
from committer.stages.identity import is_file_of
from committer.stages.load.planned_files import PlannedFile
from committer.stages.undo.roll_back import RollBack, RollBackRequest
from committer.stores.helpers import delete_seen, status_or_none
from committer.stores.upload_ends import end_upload, finish_block_list, is_pending


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


class RollBackBlocks(RollBackUploads):
    """Every record read, outcome, then undo: what is published is deleted, on the condition that it still is the job's
    file; the blocks of the rest are used up.

    No call drops blocks, and while they wait a late request makes a file of them. So a file that was not published yet
    is published and deleted at once: the job was decided, and a reader who comes then sees what he would have seen had
    it gone on. Nothing can come of a request that arrives later. Two kinds of files stay without this fence: one whose
    name another file has, which keeps the late request out as long as it stands; and an empty one, which takes no
    blocks.

    Cost: 2 calls a file that was published, 4 a file that was not.
    """

    async def _end(self, file: PlannedFile) -> None:
        if file.upload is None or await self._deleted(file) or not file.upload.etags:
            return
        target = self.context.layout.target(file.destination)
        # Used up before, or dropped; or another file has the name.
        with suppress(StorePartsError, StoreExistsError):
            await finish_block_list(
                self.context.store, target, file.upload.etags, stamp=file.stamp, size=file.size, exclusive=True
            )
        await self._deleted(file)

    async def _restore(self, aside: StorePath, fact: Fact) -> None:
        # An etag is never given twice here, so that a late request can delete only the `_SUCCESS` it was sent for.
        await RollBack._restore(self, aside, fact)
