"""Stages that publish sent files: they complete uploads, or put block lists."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from committer.errors import (
    OutcomeUnknownError,
    RecordError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
    StoreUploadNotFoundError,
    TargetExistsError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, end_advice
from committer.stages.identity import is_file_of
from committer.stages.publish.publish import ExistingTargets, Published
from committer.stores.base import FileStatus
from committer.stores.helpers import finish_block_list, finish_upload, status_or_none
from committer.stores.uploads import UploadPart

ROUNDS: Final = 5
"""Number of tries for a file while other changes of its name intervene."""


class PublishSentFiles(Stage[CommitState, Published]):
    """Base class of stages that send a call per file that makes it visible. Any driver can run it again, at any time.

    A file is proved by its stamp and length: that tells a published file from one whose upload was aborted.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._existing: ExistingTargets

    @abstractmethod
    async def _make_visible(self, file: PlannedFile, target: StorePath) -> None:
        """Publishes one file, or finds it published."""

    async def execute(self, value: CommitState) -> Published:
        """Publishes all, many concurrently."""
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
        """Returns the upload in the file's record, or raises `RecordError`."""
        if file.upload is None:
            target = self.context.layout.target(file.destination)
            raise RecordError(
                f"the record of {file.destination} names no {what}", field="files", operation=self.name, path=target
            )
        return file.upload

    async def _lost(self, file: PlannedFile, gone: str, step: str, causes: list[StoreError]) -> OutcomeUnknownError:
        """Builds the error of a file that is neither at its destination nor waiting."""
        again = f"nothing was deleted, and {self.context.recover_call()} goes on from here"
        return await self._unknown(file, gone, f"{step}; {again}; where the file is lost", causes)

    async def _unanswered(self, file: PlannedFile, what: str, causes: list[StoreError]) -> OutcomeUnknownError:
        """Builds the error of a file of which too many responses were lost."""
        # SeaweedFS answers like this permanently if a directory exists at the file's name.
        step = f"{self.context.recover_call()} goes on from here, nothing was deleted; where it ends like this again"
        found = f"the answers to its {what} were lost, and its file is not at its destination"
        return await self._unknown(file, found, step, causes)

    async def _unknown(self, file: PlannedFile, found: str, step: str, causes: list[StoreError]) -> OutcomeUnknownError:
        end = await end_advice(self.context, forward_only=self._existing.forward_only)
        return OutcomeUnknownError(
            f"cannot tell whether {file.destination} was published: {found}",
            operation=self.name,
            path=self.context.layout.target(file.destination),
            next_step=f"{step}, {end}",
            causes=causes,
        )


class CompleteUploads(PublishSentFiles):
    """The stage that completes the upload of each file, exclusively where nothing may be replaced.

    Preconditions: the decision exists.
    Postconditions: every file of every winner is at its destination.
    Failure modes: `TargetExistsError` and `StorePartsError` are definite: nothing of that file happened;
    `OutcomeUnknownError`; a store error leaves a decided job that `recover` finishes. After the first failure
    no new completion starts.
    Cost: one call per file; one or two more for each that fails, or that replaces.
    Hadoop: ``AbstractS3ACommitter.commitPendingUploads``.
    """

    name = "job_stage_complete_uploads"

    async def _make_visible(self, file: PlannedFile, target: StorePath) -> None:
        exclusive = file.stood is None
        last: StoreError | None = None
        for _round in range(ROUNDS):
            if not exclusive:
                standing = await status_or_none(self.context.store, target)
                if is_file_of(standing, file):
                    return
                if standing is not None and not self._existing.may_replace(file, standing):
                    raise self._taken(target, file, last)
                exclusive = standing is None
            try:
                await self._finish(file, target, exclusive=exclusive)
                return
            except StoreExistsError as error:
                exclusive, last = False, error
            except StoreConflictError as error:
                # Another change of the name was under way. S3 may have dropped the upload; the next try shows it.
                last = error
            except StoreUploadNotFoundError as error:
                dropped = isinstance(last, StoreConflictError)
                raise (self._taken(target, file, last) if dropped else await self._gone(file, error)) from error
            except StoreOutcomeUnknownError as error:
                raise await self._unanswered(file, "completion", [error]) from error
        raise await self._unanswered(file, "completion", [] if last is None else [last])

    async def _finish(self, file: PlannedFile, target: StorePath, *, exclusive: bool) -> None:
        upload = self._sent(file, "upload")
        await finish_upload(
            self.context.store,
            target,
            upload.id,
            parts_of(upload),
            stamp=file.stamp,
            size=file.size,
            identity=file.identity,
            exclusive=exclusive,
        )

    def _taken(self, target: StorePath, file: PlannedFile, error: StoreError | None) -> TargetExistsError:
        causes = [error] if error is not None else []
        return self._existing.refusal(file, target, "a file", causes, still=error is None)

    async def _gone(self, file: PlannedFile, error: StoreError) -> OutcomeUnknownError:
        return await self._lost(
            file,
            "its upload is gone, and its file is not at its destination: another process aborted the one, or replaced "
            "or deleted the other",
            "look for a lifecycle rule that aborts uploads, or for a program that changed it",
            [error],
        )


def parts_of(entry: UploadEntry) -> list[UploadPart]:
    """Returns the parts of a recorded upload, for its completion."""
    if len(entry.checksums) != len(entry.etags):
        return [UploadPart(number, etag) for number, etag in enumerate(entry.etags, 1)]
    return [
        UploadPart(number, etag, None, checksum, entry.algorithm)
        for number, (etag, checksum) in enumerate(zip(entry.etags, entry.checksums, strict=True), 1)
    ]


class PutBlockLists(PublishSentFiles):
    """The stage that puts each file's block list: exclusively, or on condition that the existing file is the one seen.

    Preconditions: the decision exists.
    Postconditions: every file of every winner is at its destination.
    Failure modes: `TargetExistsError` is definite: nothing of that file happened; `OutcomeUnknownError`; a
    store error leaves a decided job that `recover` finishes. After the first failure no new list is sent.
    Cost: one call per file; one or two more for each that fails, or that replaces.
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
                # Another file exists there, or none any more: the next round sees which.
                looks, last = True, error
            except StorePartsError as error:
                # A writer that created a file there also dropped the blocks: then that file is in the way.
                if is_file_of(await self._standing(file, target, error), file):
                    return
                raise await self._gone(file) from error
            except StoreOutcomeUnknownError as error:
                raise await self._unanswered(file, "list of blocks", [error]) from error
        raise await self._unanswered(file, "list of blocks", [])

    async def _standing(self, file: PlannedFile, target: StorePath, last: StoreError | None) -> FileStatus | None:
        """Returns the file at the destination, if it is the job's or may be replaced."""
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
        # Without a cause: a driver would take a refused list for a reason to roll the job back.
        return await self._lost(
            file,
            "its blocks are gone, and its file is not at its destination: another writer of that name dropped the "
            "ones, or replaced or deleted the other, or the service dropped blocks that were a week old",
            "find out which program wrote to that name",
            [],
        )
