"""The staging committers: tasks write to a disk of their machine and send their files when they commit."""

from __future__ import annotations

from collections.abc import Mapping

from committer.committers.base import Committer
from committer.committers.publish_action import PublishAction
from committer.committers.staging.local_files import LocalFiles
from committer.committers.staging.places import remove_job, remove_runs
from committer.committers.upload_action import UPLOADS_NEED, UploadAction
from committer.config import CommitterConfig, SupersededScope
from committer.errors import StoreNotFoundError, TargetExistsError, UnsupportedError
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.abort_task import AbortRequest
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import RecordForms, StageContext
from committer.stages.manifest_forms import ManifestForms
from committer.stages.names import is_hidden
from committer.stages.task_output import AttemptIdentity


class StagingCommitter(Committer):
    """What both have: how tasks write, and what they leave.

    For stores that have uploads and no renames. A task attempt keeps its files on a disk of its machine; its commit
    sends them, and saves a record of the uploads, which job commit completes. The records are this engine's, in the
    job's directory at the destination, by message and by listing.

    Attributes:
        scope: What conflict modes are of, where the caller does not say.
    """

    scope: SupersededScope
    needs: Mapping[str, str] = UPLOADS_NEED
    action: PublishAction = UploadAction()

    def forms(self, spec: JobSpec) -> RecordForms:
        """Task manifests that name uploads."""
        return ManifestForms(self.name, like_s3a=True)

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Files on a disk of this machine."""
        return LocalFiles(context, identity)

    def choices(self, config: CommitterConfig) -> CommitterConfig:
        """What conflict modes are of, where the caller does not say."""
        if config.conflict_mode == "append" or config.superseded_scope is not None:
            return config
        return config.replace(superseded_scope=self.scope)

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Refuses: where Hadoop's staging committers keep their task records is not read.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"jobs that Hadoop's {self.name} committer set up cannot be joined: their records are on its cluster's "
            "file system",
            operation="attach_job",
            path=context.layout.destination,
            next_step="let its own driver commit it, or use Hadoop's magic committer, whose jobs can be joined",
        )

    async def setup_task(self, context: StageContext, identity: AttemptIdentity) -> StorePath:
        """Runs `SetupTask`."""
        if context.spec.hadoop:
            await self.join_hadoop(context)
        return await super().setup_task(context, identity)

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortTask`, then removes what the attempt left on this machine."""
        await super().abort_task(context, request)
        attempt_id = context.layout.task_attempt_id(request.task, request.attempt)
        await context.runtime.run_blocking(
            lambda: remove_runs(context.config, context.layout, attempt_id, request.nonce)
        )

    async def forget(self, context: StageContext) -> None:
        """Removes what task attempts that died left on this machine."""
        await context.runtime.run_blocking(lambda: remove_job(context.config, context.layout))


class DirectoryCommitter(StagingCommitter):
    """S3A's committer `directory`: conflict modes are of the whole destination."""

    name = "directory"
    scope: SupersededScope = "destination"

    async def setup_job(self, context: StageContext) -> str | None:
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
    try:
        async for child in context.store.list(destination):
            if not is_hidden(child.path.name):
                raise TargetExistsError(
                    f"the destination already holds data: {child.path.name}",
                    operation="open_job",
                    path=destination,
                    next_step="choose an empty one, or conflict_mode='append' or 'replace'; nothing was changed",
                )
    except StoreNotFoundError:
        return
