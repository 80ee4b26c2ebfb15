"""CompleteUploads: makes every file of a decided job visible by completing its upload, whatever happened before."""

from __future__ import annotations

from committer.errors import (
    OutcomeUnknownError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StoreUploadNotFoundError,
    TargetExistsError,
)
from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry
from committer.stages.identity import is_file_of
from committer.stages.planned_file import PlannedFile
from committer.stages.publish_sent_files import ROUNDS, PublishSentFiles
from committer.stores.helpers import status_or_none
from committer.stores.upload_ends import finish_upload
from committer.stores.uploads import UploadPart


class CompleteUploads(PublishSentFiles):
    """Completes the upload of each file, exclusively where nothing may be replaced.

    Preconditions: the decision stands.
    Postconditions: every file of every winner is at its destination.
    Failure modes: `TargetExistsError` and `StorePartsError` are definite: nothing of that file happened;
    `OutcomeUnknownError`; a store error leaves a decided job that `recover` finishes. After the first failure no new
    completion starts.
    Cost: one call a file; one or two more for each that fails, or that replaces.
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
                # Another change of the name was under way. S3 may have dropped the upload; the next try learns it.
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
    """What the completion of a recorded upload names."""
    if len(entry.checksums) != len(entry.etags):
        return [UploadPart(number, etag) for number, etag in enumerate(entry.etags, 1)]
    return [
        UploadPart(number, etag, None, checksum, entry.algorithm)
        for number, (etag, checksum) in enumerate(zip(entry.etags, entry.checksums, strict=True), 1)
    ]
