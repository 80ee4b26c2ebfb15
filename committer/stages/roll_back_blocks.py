"""RollBackBlocks: takes back a job whose files are made of blocks."""

from __future__ import annotations

from contextlib import suppress

from committer.errors import StoreExistsError, StorePartsError
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.stages.planned_file import PlannedFile
from committer.stages.roll_back import RollBack
from committer.stages.roll_back_uploads import RollBackUploads
from committer.stores.block_ends import finish_block_list


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
