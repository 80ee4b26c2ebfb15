"""CompleteUploads: makes every file of a decided job visible by completing its upload, whatever happened before."""

from __future__ import annotations

from committer.errors import (
    CommitterError,
    OutcomeUnknownError,
    RecordError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StoreUploadNotFoundError,
    TargetExistsError,
)
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import CommitState, other_end
from committer.stages.existing_target import ExistingTargets
from committer.stages.identity import is_file_of
from committer.stages.planned_files import PlannedFile
from committer.stages.publish import Published
from committer.stores.helpers import status_or_none
from committer.stores.upload_ends import finish_upload
from committer.stores.uploads import UploadPart

_ROUNDS = 5


class CompleteUploads(Stage[CommitState, Published]):
    """Completes the upload of each file, exclusively where nothing may be replaced.

    A file is proved by its stamp and length, so that a completion that finds no upload any more is told from one that
    was aborted. Any driver can run it again, at any time.

    Preconditions: the decision stands.
    Postconditions: every file of every winner is at its destination.
    Failure modes: `TargetExistsError` and `StorePartsError` are definite: nothing of that file happened;
    `OutcomeUnknownError`; a store error leaves a decided job that `recover` finishes. After the first failure no new
    completion starts.
    Cost: one call a file; one or two more for each that fails, or that replaces.
    Hadoop: ``AbstractS3ACommitter.commitPendingUploads``.
    """

    name = "job_stage_complete_uploads"

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._existing: ExistingTargets

    async def execute(self, value: CommitState) -> Published:
        """Completes all, many at once."""
        self._existing = ExistingTargets(self.context, value, self.name)
        self.context.progress.expect(value.decision.files)
        published, workers = Published(), self.context.config.io_concurrency
        async for batch in value.files.batches():
            done = await run_workers(batch, self._publish, workers=workers, operation=self.name)
            published.add(self.context.layout, batch, done)
        return published

    async def _publish(self, file: PlannedFile) -> None:
        await self._complete(file, self.context.layout.target(file.destination))
        self.context.progress.advance(1, file.size)

    async def _complete(self, file: PlannedFile, target: StorePath) -> None:
        exclusive = self._existing.recorded(file) is None
        last: StoreError | None = None
        for _round in range(_ROUNDS):
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
                # Another change of the name was under way. S3 may have dropped the upload; the next try learns it.
                last = error
            except StoreUploadNotFoundError as error:
                dropped = isinstance(last, StoreConflictError)
                failure = self._taken(target, file, last) if dropped else await self._unknown(file, target, error)
                raise failure from error
            except StoreOutcomeUnknownError as error:
                raise await self._unknown(file, target, error) from error
        raise await self._unknown(file, target, last)

    async def _finish(self, file: PlannedFile, target: StorePath, *, exclusive: bool) -> None:
        if file.upload is None:
            raise RecordError(
                f"the record of {file.destination} names no upload", field="files", operation=self.name, path=target
            )
        await finish_upload(
            self.context.store,
            target,
            file.upload.id,
            parts_of(file.upload),
            stamp=file.stamp,
            size=file.size,
            identity=file.identity,
            exclusive=exclusive,
        )

    def _taken(self, target: StorePath, file: PlannedFile, error: StoreError | None) -> TargetExistsError:
        causes = [error] if error is not None else []
        return self._existing.refusal(file, target, "a file", causes, still=error is None)

    async def _unknown(self, file: PlannedFile, target: StorePath, error: StoreError | None) -> CommitterError:
        end = await other_end(self.context, forward_only=self._existing.forward_only)
        if isinstance(error, StoreUploadNotFoundError):
            found = (
                "its upload is gone, and its file is not at its destination: another process aborted the one, or "
                "replaced or deleted the other"
            )
            step = (
                "look for a lifecycle rule that aborts uploads, or for a program that changed it; nothing was deleted, "
                f"and {self.context.recover_call()} goes on from here; where the file is lost, {end}"
            )
        else:
            found = "the answers to its completion were lost, and its file is not at its destination"
            # SeaweedFS answers so for good where a directory stands at the file's name.
            step = (
                f"{self.context.recover_call()} goes on from here, nothing was deleted; where it ends like this again, "
                f"{end}"
            )
        return OutcomeUnknownError(
            f"cannot tell whether {file.destination} was published: {found}",
            operation=self.name,
            path=target,
            next_step=step,
            causes=[error] if error is not None else [],
        )


def parts_of(entry: UploadEntry) -> list[UploadPart]:
    """What the completion of a recorded upload names."""
    if len(entry.checksums) != len(entry.etags):
        return [UploadPart(number, etag) for number, etag in enumerate(entry.etags, 1)]
    return [
        UploadPart(number, etag, None, checksum, entry.algorithm)
        for number, (etag, checksum) in enumerate(zip(entry.etags, entry.checksums, strict=True), 1)
    ]
