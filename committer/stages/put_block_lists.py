"""PutBlockLists: makes every file of a decided job visible by the list of its blocks, whatever happened before."""

from __future__ import annotations

from committer.errors import (
    OutcomeUnknownError,
    RecordError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import CommitState, other_end
from committer.stages.existing_target import ExistingTargets
from committer.stages.identity import is_file_of
from committer.stages.planned_files import PlannedFile
from committer.stages.publish import Published
from committer.stores.base import FileStatus
from committer.stores.block_ends import finish_block_list
from committer.stores.helpers import status_or_none

_ROUNDS = 5


class PutBlockLists(Stage[CommitState, Published]):
    """Puts the list of blocks of each file: exclusively where nothing may be replaced, else on the condition that what
    stands there still is what was seen.

    A file is proved by its stamp and length, so that a list whose blocks are used up is told from one whose blocks were
    dropped. Any driver can run it again, at any time.

    Preconditions: the decision stands.
    Postconditions: every file of every winner is at its destination.
    Failure modes: `TargetExistsError` is definite: nothing of that file happened; `OutcomeUnknownError`; a store error
    leaves a decided job that `recover` finishes. After the first failure no new list is sent.
    Cost: one call a file; one or two more for each that fails, or that replaces.
    """

    name = "job_stage_put_block_lists"

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._existing: ExistingTargets

    async def execute(self, value: CommitState) -> Published:
        """Puts all, many at once."""
        self._existing = ExistingTargets(self.context, value, self.name)
        self.context.progress.expect(value.decision.files)
        published, workers = Published(), self.context.config.io_concurrency
        async for batch in value.files.batches():
            done = await run_workers(batch, self._publish, workers=workers, operation=self.name)
            published.add(self.context.layout, batch, done)
        return published

    async def _publish(self, file: PlannedFile) -> None:
        await self._put(file, self.context.layout.target(file.destination))
        self.context.progress.advance(1, file.size)

    async def _put(self, file: PlannedFile, target: StorePath) -> None:
        identity: str | None = None
        looks = self._existing.recorded(file) is not None
        last: StoreError | None = None
        for _round in range(_ROUNDS):
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
                raise await self._unknown(file, target, error) from error
            except StoreOutcomeUnknownError as error:
                raise await self._unknown(file, target, error) from error
        raise await self._unknown(file, target, last)

    async def _standing(self, file: PlannedFile, target: StorePath, last: StoreError | None) -> FileStatus | None:
        """What stands there: the job's file, or what gives way to it."""
        standing = await status_or_none(self.context.store, target)
        if standing is None or is_file_of(standing, file) or self._existing.may_replace(file, standing):
            return standing
        raise self._existing.refusal(file, target, "a file", [last] if last is not None else [])

    async def _finish(self, file: PlannedFile, target: StorePath, *, identity: str | None) -> None:
        if file.upload is None:
            raise RecordError(
                f"the record of {file.destination} names no blocks", field="files", operation=self.name, path=target
            )
        await finish_block_list(
            self.context.store,
            target,
            file.upload.etags,
            stamp=file.stamp,
            size=file.size,
            exclusive=identity is None,
            identity=identity,
        )

    async def _unknown(self, file: PlannedFile, target: StorePath, error: StoreError | None) -> OutcomeUnknownError:
        end = await other_end(self.context, forward_only=self._existing.forward_only)
        if isinstance(error, StorePartsError):
            found = (
                "its blocks are gone, and its file is not at its destination: another writer of that name dropped the "
                "ones, or replaced or deleted the other, or the service dropped blocks that were a week old"
            )
            step = (
                "find out which program wrote to that name; nothing was deleted, and "
                f"{self.context.recover_call()} goes on from here; where the file is lost, {end}"
            )
        else:
            found = "the answers to its list of blocks were lost, and its file is not at its destination"
            step = (
                f"{self.context.recover_call()} goes on from here, nothing was deleted; where it ends like this again, "
                f"{end}"
            )
        return OutcomeUnknownError(
            f"cannot tell whether {file.destination} was published: {found}",
            operation=self.name,
            path=target,
            next_step=step,
            # A list that was refused is none of the causes: who goes by those would take the job back.
            causes=[error] if isinstance(error, StoreOutcomeUnknownError) else [],
        )
