"""Stages that roll back a job whose files were sent to the store."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import OutcomeUnknownError, StoreExistsError, StorePartsError, StorePreconditionError
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.records.publish_chunk import PlannedFile
from committer.stages.decide.commit_state import CommitState, looking_again
from committer.stages.identity import is_file_of
from committer.stages.undo.roll_back import RollBack, RollBackRequest
from committer.stores.helpers import delete_seen, status_or_none
from committer.stores.upload_ends import end_upload, finish_block_list, is_pending


class RollBackUploads(RollBack):
    """The rollback of uploads: deletes completed files that are still the job's, and aborts the rest.

    An aborted upload can never be completed, however late the request: so each file fences itself, and `force` is not
    needed. No old file was deleted yet (G13), so only `_SUCCESS` is restored.

    A request to delete the old `_SUCCESS` may still arrive: a delayed one, or one of a paused driver. Its only
    condition is an etag, which is made of the content and of the way it was sent. So `_SUCCESS` is written with the
    same content, sent the other way, even if it still exists.

    Cost: 2 calls per published file, 4 per unpublished one, 2 more for each of Hadoop's; some 20 for `_SUCCESS`.
    """

    name = "job_stage_roll_back"

    def _check_fencing(self, value: RollBackRequest) -> None:
        """Does nothing: every upload is its own fence."""

    async def _check_provable(self, state: CommitState, tasks: object) -> None:
        """Stamps prove which files are the job's."""

    async def put_back_late(self, state: CommitState) -> None:
        """Restores `_SUCCESS`, if this driver moved it after another driver had rolled the job back."""
        await self._put_back_success(state)

    async def undo(self, state: CommitState) -> None:
        """Undoes what was published and aborts the rest. Idempotent; only for a job that is rolled back."""
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
            # Hadoop sets no stamp. A file that exists while the upload is pending is not the job's, however similar.
            alike = is_file_of(await status_or_none(store, target), file)
            pends = await is_pending(store, target, file.upload.id)
            if alike and pends:
                await end_upload(store, target, file.upload.id)
                return
        if await self._deleted(file):
            return
        await end_upload(store, target, file.upload.id)
        # Another driver may have completed it since the look; from here on none can.
        if not await self._deleted(file) and not (file.stamp or (file.identity and pends)):
            await self._refuse_to_guess(file)

    async def _refuse_to_guess(self, file: PlannedFile) -> None:
        """Raises if a file of Hadoop's, without stamp, may be the job's: etags of encrypted parts prove nothing."""
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.is_directory or status.size != file.size:
            return
        raise OutcomeUnknownError(
            f"cannot tell whether what exists at {file.destination} is the job's: it has its length, and nothing "
            "proves what Hadoop's tasks wrote there",
            operation=self.name,
            path=target,
            next_step=f"look at it, delete it if it is the job's, then call {self.context.recover_call(rollback=True)}",
        )

    async def _deleted(self, file: PlannedFile) -> bool:
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.identity is None or not is_file_of(status, file):
            return False
        try:
            await delete_seen(self.context.store, target, identity=status.identity)
        except StorePreconditionError:
            # Another process has replaced it since the look.
            return True
        return True


class RollBackBlocks(RollBackUploads):
    """The rollback of blocks: deletes published files that are still the job's, and uses the other blocks up.

    No call drops blocks, and while they exist a delayed request can create a file of them. So an unpublished
    file is published and deleted at once: the job was decided, so a reader may see the file for a moment, and
    delayed requests have no effect afterwards. Two kinds of files lack this fence: one whose name another file
    has, which refuses the delayed request as long as it exists; and an empty one, which uses no blocks.

    Cost: 2 calls per published file, 4 per unpublished one.
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
        # An etag is never given twice here, so a delayed request can delete only the `_SUCCESS` it was sent for.
        await RollBack._restore(self, aside, fact)
