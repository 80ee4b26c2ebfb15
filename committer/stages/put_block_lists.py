"""PutBlockLists: makes every file of a decided job visible by the list of its blocks, whatever happened before."""

from __future__ import annotations

from committer.errors import (
    OutcomeUnknownError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stages.identity import is_file_of
from committer.stages.planned_file import PlannedFile
from committer.stages.publish_sent_files import ROUNDS, PublishSentFiles
from committer.stores.base import FileStatus
from committer.stores.block_ends import finish_block_list
from committer.stores.helpers import status_or_none


class PutBlockLists(PublishSentFiles):
    """Puts the list of blocks of each file: exclusively where nothing may be replaced, else on the condition that what
    stands there still is what was seen.

    Preconditions: the decision stands.
    Postconditions: every file of every winner is at its destination.
    Failure modes: `TargetExistsError` is definite: nothing of that file happened; `OutcomeUnknownError`; a store error
    leaves a decided job that `recover` finishes. After the first failure no new list is sent.
    Cost: one call a file; one or two more for each that fails, or that replaces.
    """

    name = "job_stage_put_block_lists"

    async def _make_visible(self, file: PlannedFile, target: StorePath) -> None:
        identity: str | None = None
        looks = file.stood is not None
        last: StoreError | None = None
        for _round in range(ROUNDS):
            if looks:
                standing = await self._standing(file, target, last)
                if is_file_of(standing, file):
                    return
                identity = standing.identity if standing is not None else None
            try:
                await self._finish(file, target, identity=identity)
                return
            except (StoreExistsError, StorePreconditionError) as error:
                # Another file stands there, or none any more: the next round sees which.
                looks, last = True, error
            except StorePartsError as error:
                # Who made a file there dropped the blocks, too: then that is what is in the way.
                if is_file_of(await self._standing(file, target, error), file):
                    return
                raise await self._gone(file) from error
            except StoreOutcomeUnknownError as error:
                raise await self._unanswered(file, "list of blocks", [error]) from error
        raise await self._unanswered(file, "list of blocks", [])

    async def _standing(self, file: PlannedFile, target: StorePath, last: StoreError | None) -> FileStatus | None:
        """What stands there: the job's file, or what gives way to it."""
        standing = await status_or_none(self.context.store, target)
        if standing is None or is_file_of(standing, file) or self._existing.may_replace(file, standing):
            return standing
        raise self._existing.refusal(file, target, "a file", [last] if last is not None else [])

    async def _finish(self, file: PlannedFile, target: StorePath, *, identity: str | None) -> None:
        blocks = self._sent(file, "blocks")
        await finish_block_list(
            self.context.store,
            target,
            blocks.etags,
            stamp=file.stamp,
            size=file.size,
            exclusive=identity is None,
            identity=identity,
        )

    async def _gone(self, file: PlannedFile) -> OutcomeUnknownError:
        # Without a cause: a driver that goes by a list that was refused would take the job back.
        return await self._lost(
            file,
            "its blocks are gone, and its file is not at its destination: another writer of that name dropped the "
            "ones, or replaced or deleted the other, or the service dropped blocks that were a week old",
            "find out which program wrote to that name",
            [],
        )
