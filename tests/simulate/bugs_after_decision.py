"""Mutants of how the engine publishes, ends and rolls back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from committer.committers.base import Committer
from committer.committers.results import JobReport
from committer.errors import CommitterError, StoreExistsError, StoreNotFoundError, StoreOutcomeUnknownError
from committer.records.success import encode_success
from committer.stages.base import StageContext
from committer.stages.check.superseded import ListSuperseded, Superseded
from committer.stages.finish.success_file import SaveSuccess, success_data
from committer.stages.finish.validate_output import ValidateOutput
from committer.stages.names import NameFolding
from committer.stages.publish.move_aside import MoveAside
from committer.stages.publish.publish import Published, PublishFiles
from committer.stages.remove.removal import CleanupJob, RemoveJob, keep_outcome
from committer.stages.undo.roll_back import RollBack, fence
from tests.simulate.patches import Patches, create_by_put


def blind_rename_retry(patches: Patches) -> None:
    """A rename that failed is sent again without looking, over whatever exists there; a missing source is fine."""

    async def settle(self: PublishFiles, file: Any, source: Any, target: Any, error: object) -> None:
        try:
            await self.context.store.rename_file(source, target, replace=True, identity=file.identity)
        except StoreNotFoundError:
            return

    patches.method(PublishFiles, "_settle", settle)


def publish_errors_ignored(patches: Patches) -> None:
    """A file that could not be published is left out without a word."""
    original = PublishFiles.execute

    async def execute(self: PublishFiles, value: Any) -> Published:
        try:
            return await original(self, value)
        except (StoreOutcomeUnknownError, StoreNotFoundError, StoreExistsError):
            raise
        except CommitterError:
            return Published(files=value.decision.files, size=value.decision.size)

    patches.method(PublishFiles, "execute", execute)


def lost_answers_ignored(patches: Patches) -> None:
    """A rename whose answer was lost counts as done, although the request may be lost as well."""

    async def settle(self: PublishFiles, file: Any, source: Any, target: Any, error: object) -> None:
        if not isinstance(error, StoreOutcomeUnknownError):
            await original(self, file, source, target, error)

    original: Callable[..., Any] = getattr(PublishFiles, "_settle")  # noqa: B009
    patches.method(PublishFiles, "_settle", settle)


def superseded_set_listed_anew(patches: Patches) -> None:
    """What is replaced is listed when it is taken away, not before the decision."""
    published: dict[str, set[str]] = {}
    publish, move = PublishFiles.execute, MoveAside.execute

    async def remember(self: PublishFiles, value: Any) -> Published:
        published[self.context.layout.job_id] = {file.destination async for file in value.files}
        return await publish(self, value)

    async def execute(self: MoveAside, value: Any) -> None:
        if "superseded" not in {fact.kind async for some in value.batches() for fact in some}:
            await move(self, value)
            return
        own = published.get(self.context.layout.job_id, set())
        anew = Superseded(layout=self.context.layout, folding=NameFolding(self.context.store.capabilities))
        await ListSuperseded(self.context, anew).run(sorted(await value.directories()))
        for name in {fact.path async for some in anew.facts.batches() for fact in some} - own:
            await self.context.store.delete_file(self.context.layout.destination / name)

    patches.method(PublishFiles, "execute", remember)
    patches.method(MoveAside, "execute", execute)


def success_before_validation(patches: Patches) -> None:
    """`_SUCCESS` is written before the output is validated, and so before the outcome (Hadoop does)."""
    validate = ValidateOutput.execute

    async def execute(self: ValidateOutput, value: Any) -> None:
        marker = success_data(self.context, success=True, published=value[1], stage="mutant")
        await SaveSuccess(self.context).run(marker)
        await validate(self, value)

    patches.method(ValidateOutput, "execute", execute)


def success_written_over(patches: Patches) -> None:
    """`_SUCCESS` is written over whatever exists there (Hadoop does)."""

    async def execute(self: SaveSuccess, value: Any) -> None:
        await self.context.store.put(self.context.layout.success, encode_success(value))

    patches.method(SaveSuccess, "execute", execute)


def outcome_not_exclusive(patches: Patches) -> None:
    """The last driver to end the job wins."""
    create_by_put(patches, "outcome")


def cleanup_of_all_temporary(patches: Patches) -> None:
    """Cleanup deletes `_temporary`, other jobs and all (Hadoop does)."""

    async def execute(self: CleanupJob, value: None) -> list[str]:
        await self.context.store.delete_directory(self.context.layout.temporary, recursive=True)
        return []

    patches.method(CleanupJob, "execute", execute)


def decision_cleaned_first(patches: Patches) -> None:
    """Cleanup deletes decision and outcome before all else."""
    original = CleanupJob.execute

    async def execute(self: CleanupJob, value: None) -> list[str]:
        await self.context.store.delete_file(self.context.layout.outcome)
        await self.context.store.delete_file(self.context.layout.decision)
        return await original(self, value)

    patches.method(CleanupJob, "execute", execute)


def setup_record_removed_last(patches: Patches) -> None:
    """A removal deletes the records of a job before that which says that it is live."""
    original = RemoveJob.execute

    async def execute(self: RemoveJob, value: Any) -> None:
        store, layout = self.context.store, self.context.layout
        await store.delete_file(layout.outcome)
        await store.delete_file(layout.decision)
        await original(self, value)

    patches.method(RemoveJob, "execute", execute)


def kept_outcome_cleaned_up(patches: Patches) -> None:
    """Cleanup removes the outcome of every job, those that are to be kept too."""
    original = RemoveJob.execute

    async def execute(self: RemoveJob, value: Any) -> None:
        await original(self, None)

    patches.method(RemoveJob, "execute", execute)


def opened_removed_with_kept(patches: Patches) -> None:
    """A job that keeps its outcome keeps `kept` alone."""

    async def keep(context: StageContext) -> None:
        await keep_outcome(context)
        await context.store.delete_file(context.layout.opened)

    patches.function(keep_outcome, keep)


def cancelled_commit_reported_done(patches: Patches) -> None:
    """A commit that is cancelled returns as if it were over."""
    original = Committer.commit_job

    async def commit_job(self: Committer, context: StageContext, task_commits: Any, tasks: Any) -> JobReport:
        try:
            return await original(self, context, task_commits, tasks)
        except asyncio.CancelledError:
            return JobReport(success=True, job_id=context.layout.job_id, committer=self.name)

    patches.method(Committer, "commit_job", commit_job)


def abort_ignores_decision(patches: Patches) -> None:
    """An abort removes the job, decided or not."""

    async def abort_job(self: Committer, context: StageContext) -> bool:
        await CleanupJob(context).run(None)
        await RemoveJob(context).run(None)
        return True

    patches.method(Committer, "abort_job", abort_job)


def no_fence(patches: Patches) -> None:
    """A rollback does not keep other drivers from publishing on."""

    async def nothing(context: StageContext) -> None:
        return

    patches.function(fence, nothing)


def rollback_by_name(patches: Patches) -> None:
    """A rollback rolls back whatever stands under the job's names, whose ever it is."""

    async def stands(self: RollBack, path: Any, file: object) -> bool:
        try:
            return not (await self.context.store.status(path)).is_directory
        except StoreNotFoundError:
            return False

    patches.method(RollBack, "_stands", stands)


AFTER_DECISION: tuple[Callable[[Patches], None], ...] = (
    blind_rename_retry,
    publish_errors_ignored,
    lost_answers_ignored,
    superseded_set_listed_anew,
    success_before_validation,
    success_written_over,
    outcome_not_exclusive,
    cleanup_of_all_temporary,
    decision_cleaned_first,
    setup_record_removed_last,
    kept_outcome_cleaned_up,
    opened_removed_with_kept,
    cancelled_commit_reported_done,
    abort_ignores_decision,
    no_fence,
    rollback_by_name,
)
