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
from committer.records.job_state import Fact
from committer.records.pending_uploads import UploadEntry
from committer.stages.base import Stage, StageContext
from committer.stages.commit_state import CommitState, is_forward_only
from committer.stages.identity import is_file_of, is_recorded
from committer.stages.planned_files import PlannedFile
from committer.stages.publish import Published
from committer.stores.base import FileStatus
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
        self._targets: dict[str, Fact] = {}
        self._replace = context.config.existing_target == "replace"
        self._forward_only = False

    async def execute(self, value: CommitState) -> Published:
        """Completes all, many at once."""
        self._targets = value.targets
        self._forward_only = is_forward_only(self.context, value)
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
        exclusive = file.destination not in self._targets
        last: StoreError | None = None
        for _round in range(_ROUNDS):
            if not exclusive:
                standing = await status_or_none(self.context.store, target)
                if is_file_of(standing, file):
                    return
                if standing is not None and not self._may_replace(file, standing):
                    raise self._refusal(target, file, last)
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
                failure = self._refusal(target, file, last) if dropped else self._unknown(file, target, error)
                raise failure from error
            except StoreOutcomeUnknownError as error:
                raise self._unknown(file, target, error) from error
        raise self._unknown(file, target, last)

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

    def _may_replace(self, file: PlannedFile, standing: FileStatus) -> bool:
        """Whether what stands there gives way: what the decision recorded or, in a job that cannot be taken back
        anyway, whatever came since.
        """
        fact = self._targets.get(file.destination)
        recorded = fact is not None and is_recorded(standing, fact)
        allowed = recorded or (self._replace and self._forward_only)
        return allowed and (self._replace or self.context.config.conflict_mode == "replace")

    def _refusal(self, target: StorePath, file: PlannedFile, error: StoreError | None) -> TargetExistsError:
        return TargetExistsError(
            f"a file stands at {target}, or did a moment ago, where {self.context.layout.job_id} publishes one",
            conflicts=[f"a file stands at {file.destination}, where a file goes"],
            operation=self.name,
            path=target,
            next_step="remove it, or set existing_target='replace', and run the job again",
            causes=[error] if error is not None else [],
        )

    def _unknown(self, file: PlannedFile, target: StorePath, error: StoreError | None) -> CommitterError:
        gone = isinstance(error, StoreUploadNotFoundError)
        found = (
            "its upload is gone, and its file is not at its destination: another process aborted the one, or "
            "replaced or deleted the other"
            if gone
            else "the answers to its completion were lost, and its file is not at its destination"
        )
        return OutcomeUnknownError(
            f"cannot tell whether {file.destination} was published: {found}",
            operation=self.name,
            path=target,
            next_step="look for a lifecycle rule that aborts uploads, or for who changed it; nothing was deleted, and "
            f"{self.context.recover_call()} goes on from here; {self.context.recover_call(rollback=True)} takes the "
            "job's files back"
            if gone
            else f"call {self.context.recover_call()}: it goes on from here, nothing was deleted",
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
