"""Mutants of how the magic committer completes uploads, ends them, and takes old files away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from committer.errors import StoreExistsError, StoreUploadNotFoundError
from committer.layout import SUCCESS
from committer.stages.publish.move_aside import DeleteSuperseded
from committer.stages.publish.sent_files import CompleteUploads, PublishSentFiles, parts_of
from committer.stages.remove.abort_uploads import AbortUploads
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.task.commit_task import CommitTask
from committer.stages.task.sent_files import UploadedFiles
from committer.stages.undo.roll_back import RollBack, RollBackUploads
from committer.stores.helpers import end_upload, status_or_none
from tests.simulate.patches import Patches


def completed_before_decision(patches: Patches) -> None:
    """A task completes its uploads as it commits (EMRFS does)."""
    original = CommitTask.execute

    async def execute(self: CommitTask, value: Any) -> Any:
        message = await original(self, value)
        store: Any = self.context.store
        for file in value.files:
            target = self.context.layout.target(file.destination)
            await store.complete_upload(target, file.upload.id, parts_of(file.upload))
        return message

    patches.method(CommitTask, "execute", execute)


def uploads_aborted_by_prefix(patches: Patches) -> None:
    """Cleanup aborts every upload below the destination, whose ever it is (S3A does)."""

    async def execute(self: AbortUploads, value: None) -> list[str]:
        store: Any = self.context.store
        found = [upload async for upload in store.list_uploads(self.context.layout.destination)]
        for upload in found:
            await end_upload(store, upload.path, upload.upload_id)
        return []

    patches.method(AbortUploads, "execute", execute)


def blind_completion_retry(patches: Patches) -> None:
    """A completion that is refused is sent again without condition; that there is no upload any more is fine."""

    async def finish(self: CompleteUploads, file: Any, target: Any, *, exclusive: bool) -> None:
        store: Any = self.context.store
        try:
            await store.complete_upload(target, file.upload.id, parts_of(file.upload), exclusive=exclusive)
        except StoreExistsError:
            await store.complete_upload(target, file.upload.id, parts_of(file.upload))
        except StoreUploadNotFoundError:
            return

    patches.method(CompleteUploads, "_finish", finish)


def deleted_without_condition(patches: Patches) -> None:
    """What is superseded, or published, is deleted by its name alone."""

    async def delete(self: DeleteSuperseded, fact: Any) -> bool:
        return await self.context.store.delete_file(self.context.layout.target(fact.path))

    async def deleted(self: RollBackUploads, file: Any) -> bool:
        target = self.context.layout.target(file.destination)
        if await status_or_none(self.context.store, target) is None:
            return False
        return await self.context.store.delete_file(target)

    patches.method(DeleteSuperseded, "_delete", delete)
    patches.method(RollBackUploads, "_deleted", deleted)


def batch_deleted_without_conditions(patches: Patches) -> None:
    """Old files go in one call by their names alone (S3A does)."""

    async def delete(self: DeleteSuperseded, facts: Any, able: Any) -> list[Any]:
        await self.context.store.delete_files({self.context.layout.target(fact.path): None for fact in facts})  # type: ignore[attr-defined]
        return []

    patches.method(DeleteSuperseded, "_delete_together", delete)


def superseded_deleted_before_outcome(patches: Patches) -> None:
    """Old files go as soon as the new ones stand, although the job may yet be rolled back."""
    original = PublishSentFiles.execute

    async def execute(self: PublishSentFiles, value: Any) -> Any:
        published = await original(self, value)
        await DeleteSuperseded(self.context).run(value.superseded)
        return published

    patches.method(PublishSentFiles, "execute", execute)


def uploads_not_listed(patches: Patches) -> None:
    """Which uploads a task attempt began is known to its own process alone."""
    original = UploadedFiles.__init__

    async def nothing(upload: object) -> None:
        return

    def init(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        self._list.add = nothing

    patches.method(UploadedFiles, "__init__", init)


def job_not_looked_at_once_listed(patches: Patches) -> None:
    """What an executor lists is sent, although its job may be over and cleaned up by then."""

    async def stands(*arguments: object, operation: str, **options: object) -> None:
        if operation != "open":
            await check_job_is_live(*arguments, operation=operation, **options)  # type: ignore[arg-type]

    patches.function(check_job_is_live, stands)


def success_put_back_as_it_was(patches: Patches) -> None:
    """A rollback puts `_SUCCESS` back under the etag that a request without answer may delete yet."""

    async def put_old(self: RollBack, identity: str | None) -> None:
        kept = await self._kept_success(self.context.layout.superseded / SUCCESS)
        if kept is not None:
            with suppress(StoreExistsError):
                await self.context.store.put(self.context.layout.success, kept, exclusive=True)

    patches.method(RollBack, "_put_old_success", put_old)


OF_UPLOADS: tuple[Callable[[Patches], None], ...] = (
    completed_before_decision,
    uploads_aborted_by_prefix,
    blind_completion_retry,
    deleted_without_condition,
    batch_deleted_without_conditions,
    superseded_deleted_before_outcome,
    uploads_not_listed,
    job_not_looked_at_once_listed,
    success_put_back_as_it_was,
)
