"""The staging committers: tasks write to a disk of their machine and send their files when they commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
import msgspec

from committer.committers.base import Committer
from committer.committers.listing import store_of
from committer.committers.publish_action import PublishAction
from committer.committers.results import CommitPlan, JobReport
from committer.committers.staging.forms import PlacedForms
from committer.committers.staging.joining import join_hadoop
from committer.committers.staging.layout import placed_layout
from committer.committers.staging.local_files import LocalFiles
from committer.committers.staging.places import remove_job, remove_runs
from committer.committers.upload_action import UPLOADS_NEED, UploadAction
from committer.config import CommitterConfig, SupersededScope
from committer.errors import ConfigurationError, JobExistsError, TargetExistsError
from committer.hadoop_user import hadoop_user
from committer.layout import JobLayout
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.abort_task import AbortRequest
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import RecordForms, StageContext
from committer.stages.foreign_metadata import first_data
from committer.stages.manifest_forms import ManifestForms
from committer.stages.task_output import AttemptIdentity, TaskOutput
from committer.stores.helpers import children_of

_log = job_logger("committer.committers")
_NEEDS: Final[Mapping[str, str]] = {
    "multipart": UPLOADS_NEED["multipart"],
    "exclusive_put": UPLOADS_NEED["exclusive_put"],
    "conditional_delete": UPLOADS_NEED["spares_others"],
}


class StagingCommitter(Committer):
    """What both have: how tasks write, and what they leave.

    For stores that have uploads and no renames. A task attempt keeps its files on a disk of its machine; its commit
    sends them, and saves a record of the uploads, which job commit completes. The records are this engine's, in the
    job's directory at the destination, by message and by listing; or by listing Hadoop's, in a place that the caller
    names, where Java's tasks and drivers take part. Decision and outcome are at the destination in any case.

    Attributes:
        scope: What conflict modes are of, where the caller does not say.
    """

    scope: SupersededScope
    needs: Mapping[str, str] = _NEEDS
    action: PublishAction = UploadAction()

    def forms(self, spec: JobSpec) -> RecordForms:
        """Task manifests that name uploads; in a place that the caller named, Hadoop's pending sets."""
        return PlacedForms(self.name) if self.layout(spec).keeps_elsewhere else ManifestForms(self.name, like_s3a=True)

    def layout(self, spec: JobSpec) -> JobLayout:
        """Where a job lives; its task records in a place that the caller named, if it was set up with that one."""
        placed = placed_layout(spec)
        if placed is not None and (spec.hadoop or placed.manifests.uri == spec.records_at):
            return placed
        return super().layout(spec)

    def settle(self, spec: JobSpec) -> JobSpec:
        """Where its records are, and whose they are there."""
        config = spec.config
        if not config.pending_set_directory:
            return spec
        if spec.delivery == "message":
            _log.warning(
                "pending_set_directory has no effect on job %s: by message its task records are at the destination",
                spec.job_id,
            )
            return spec
        # Tasks on other machines may run as another user.
        user = config.pending_set_user or hadoop_user()
        spec = msgspec.structs.replace(spec, config=config.replace(pending_set_user=user))
        placed = placed_layout(spec)
        return spec if placed is None else msgspec.structs.replace(spec, records_at=placed.manifests.uri)

    @asynccontextmanager
    async def opened(self, context: StageContext) -> AsyncIterator[StageContext]:
        """With the store of its task records, where these are elsewhere."""
        layout = context.layout
        if context.records is not None or not layout.keeps_elsewhere:
            yield context
            return
        store = await store_of(context, layout.manifests)
        try:
            yield replace(context, records=store)
        finally:
            if store is not context.store:
                with anyio.CancelScope(shield=True):
                    await store.close()

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Files on a disk of this machine."""
        return LocalFiles(context, identity)

    def choices(self, config: CommitterConfig) -> CommitterConfig:
        """What conflict modes are of, where the caller does not say."""
        if config.conflict_mode == "append" or config.superseded_scope is not None:
            return config
        return config.replace(superseded_scope=self.scope)

    # -- setup --------------------------------------------------------------------------------------------------

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`; where records are elsewhere, after a listing there."""
        async with self.opened(context) as opened:
            if opened.records is not None:
                await _refuse_left(opened)
            made = await super().setup_job(opened)
        return replace(made, records=context.records)

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Claims the job for this engine: from now on it has a setup record, as every other.

        Raises:
            ConfigurationError: The caller did not say where its tasks commit.
            JobNotFoundError: It is not there.
        """
        if not context.layout.keeps_elsewhere:
            raise _no_place(context)
        async with self.opened(context) as opened:
            claimed = await join_hadoop(self, opened, self.needs)
        return replace(claimed, records=None)

    async def setup_task(self, context: StageContext, identity: AttemptIdentity) -> StorePath:
        """Runs `SetupTask`."""
        if context.spec.hadoop and not context.layout.keeps_elsewhere:
            raise _no_place(context)
        async with self.opened(context) as opened:
            return await super().setup_task(opened, identity)

    # -- tasks --------------------------------------------------------------------------------------------------

    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Runs `CommitTask`."""
        async with self.opened(context) as opened:
            return await super().commit_task(opened, output)

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortTask`, then removes what the attempt left on this machine."""
        async with self.opened(context) as opened:
            await super().abort_task(opened, request)
        attempt_id = context.layout.task_attempt_id(request.task, request.attempt)
        await context.runtime.run_blocking(
            lambda: remove_runs(context.config, context.layout, attempt_id, request.nonce)
        )

    async def recover_task(self, context: StageContext, task: int, attempt: int) -> TaskCommit:
        """Finds the attempt's record."""
        async with self.opened(context) as opened:
            return await super().recover_task(opened, task, attempt)

    # -- jobs ---------------------------------------------------------------------------------------------------

    async def commit_job(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> JobReport:
        """Runs the job-commit core."""
        async with self.opened(context) as opened:
            return await super().commit_job(opened, task_commits, tasks)

    async def recover_job(self, context: StageContext, *, rollback: bool, force: bool) -> JobReport:
        """Runs the job-commit core from where the store says the job stands."""
        async with self.opened(context) as opened:
            return await super().recover_job(opened, rollback=rollback, force=force)

    async def abort_job(self, context: StageContext) -> bool:
        """Decides against the job and removes it."""
        async with self.opened(context) as opened:
            return await super().abort_job(opened)

    async def plan(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> CommitPlan:
        """Loads and checks, changes nothing."""
        async with self.opened(context) as opened:
            return await super().plan(opened, task_commits, tasks)

    async def forget(self, context: StageContext) -> None:
        """Removes what task attempts that died left on this machine."""
        await context.runtime.run_blocking(lambda: remove_job(context.config, context.layout))


class DirectoryCommitter(StagingCommitter):
    """S3A's committer `directory`: conflict modes are of the whole destination."""

    name = "directory"
    scope: SupersededScope = "destination"

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`; with `fail` after a listing, so that no task runs for a destination that holds data.

        Data that comes later is refused before the decision.
        """
        if context.config.refuses_used_destination:
            await _refuse_used(context)
        return await super().setup_job(context)


class PartitionedCommitter(StagingCommitter):
    """S3A's committer `partitioned`: conflict modes are of each partition that is written to.

    A partition is a directory that files go to, with all below it; what goes to the destination's own directory is
    added there in every mode.
    """

    name = "partitioned"
    scope: SupersededScope = "partitions"


async def _refuse_used(context: StageContext) -> None:
    destination = context.layout.destination
    found = await first_data(context.store, destination)
    if found is not None:
        raise TargetExistsError(
            f"the destination already holds data: {found.relative_to(destination)}",
            operation="open_job",
            path=destination,
            next_step="choose an empty one, or conflict_mode='append' or 'replace'; nothing was changed",
        )


async def _refuse_left(context: StageContext) -> None:
    """Refuses a job where tasks of another one of its id committed: they would count as its own. One listing."""
    layout = context.layout
    left = [one.path for one in await children_of(context.holding(layout.manifests), layout.manifests)]
    if left:
        raise JobExistsError(
            f"tasks of another job {layout.job_id} committed to {layout.manifests}",
            operation="open_job",
            path=left[0],
            next_step="choose another job id; or, if Hadoop set it up, `job = await committer.attach_job("
            f"committer.JobSpec.for_hadoop(...))` joins it; or make sure that it is over, and delete "
            f"{layout.record_root}",
        )


def _no_place(context: StageContext) -> ConfigurationError:
    return ConfigurationError(
        f"where tasks of Hadoop's {context.spec.committer} committer commit is not known: their records are on their "
        "cluster's file system",
        operation="attach_job",
        path=context.layout.destination,
        next_step="give JobSpec.for_hadoop a config with pending_set_directory, the URI of what the job's "
        "fs.s3a.committer.staging.tmp.path names, and with pending_set_user, the user of its driver",
    )
