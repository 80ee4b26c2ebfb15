"""The staging committers: tasks write to a local disk and upload their files when they commit.

Below the caller's place P (``fs.s3a.committer.staging.tmp.path``), of user U, job J, attempt N, on any store::

    P/U/J/staging-uploads/_temporary/N/<task>                      a pending set under the task's name
    P/U/J/staging-uploads/_temporary/N/_<attempt>-<nonce>.tmp      one that is being written

Hadoop's drivers read the files there whose names begin neither with an underscore nor with a period; they leave
no record of the job, so the directory of pending sets proves that it exists. Without such a place records are
task manifests in the job's directory (`committer.layout`). Source of the names:
``Paths.getMultipartUploadCommitsDirectory``, ``FileOutputCommitter``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar, Final

import msgspec

from committer.committers.actions import PublishAction, UploadAction, needs_of
from committer.committers.base import Committer
from committer.committers.pending_sets import PendingSetForms, uploads_of_set
from committer.committers.reports import store_of
from committer.committers.staging.local_files import LocalFiles, remove_job, remove_runs
from committer.errors import ConfigurationError, JobExistsError, TargetExistsError
from committer.layout import TEMPORARY, JobLayout
from committer.logs import job_logger
from committer.options.config import CommitterConfig, SupersededScope
from committer.options.hadoop import hadoop_user
from committer.paths import StorePath
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, RecordForms, StageContext
from committer.stages.check.foreign_metadata import first_data
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.setup.setup_job import join_hadoop_job
from committer.stages.state.job_liveness import no_job_elsewhere
from committer.stages.task.abort_task import AbortRequest
from committer.stages.task.attempt_files import AttemptFiles
from committer.stores.helpers import children_of, exists

_UPLOADS: Final = "staging-uploads"
_NAMED: Final = "pending-sets/"


class PlacedLayout(JobLayout):
    """Paths of a job whose task records are in a place that the caller named."""

    record_suffix: ClassVar[str] = ""
    record_kind: ClassVar[str] = "pending set"
    hidden: ClassVar[str] = "_"
    keeps_elsewhere: ClassVar[bool] = True

    def keep_records_below(self, place: StorePath) -> None:
        """Sets the place that all jobs of one user share."""
        root = place / self.unique_id / _UPLOADS
        self.record_root: StorePath | None = root
        self.manifests: StorePath = root / TEMPORARY / str(self.job_attempt)

    def is_record(self, name: str) -> bool:
        """Returns whether Hadoop's drivers would read a file of that name."""
        return not name.startswith(("_", "."))

    def record_name(self, path: StorePath) -> str:
        """Returns a record's name: for a pending set with a prefix that no name in the job's directory has."""
        return f"{_NAMED}{path.name}" if path.parent == self.manifests else super().record_name(path)

    def record_path(self, name: str) -> StorePath:
        """Returns the path of a record."""
        return self.manifests / name.removeprefix(_NAMED) if name.startswith(_NAMED) else super().record_path(name)


def placed_layout(spec: JobSpec) -> PlacedLayout | None:
    """Returns the layout of a job by listing whose caller named a place; None for every other job."""
    config = spec.config
    if spec.delivery != "listing" or not config.pending_set_directory:
        return None
    layout = spec.laid_out(PlacedLayout)
    layout.keep_records_below(StorePath.of(config.pending_set_directory) / (config.pending_set_user or hadoop_user()))
    return layout


class PlacedForms(PendingSetForms):
    """Record format of pending sets in `pending_set_directory`; read only if the caller names that directory."""

    async def upload_lists(self, context: StageContext) -> list[StorePath]:
        """Lists the lists of runs, and the pending sets, also those that an abort renamed: two listings."""
        lists, place = await super().upload_lists(context), context.layout.manifests
        if context.records is None:
            return lists
        return [*lists, *(one.path for one in await children_of(context.records, place) if not one.is_directory)]

    async def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Yields the uploads of a run's list, or of a pending set (one read)."""
        is_set = place.parent == context.layout.manifests
        async for upload in uploads_of_set(context, place) if is_set else super().uploads_in(context, place):
            yield upload


_log = job_logger("committer.committers")


class StagingCommitter(Committer):
    """Base class of the staging committers, for stores with uploads and without renames.

    A task attempt keeps its files on a disk of its machine; its commit sends them, and job commit completes the
    uploads. By listing the records may be Hadoop's, in a place that the caller names, where Java's tasks and drivers
    can take part. Decision and outcome are always at the destination. `scope` is the default scope of conflict modes.
    """

    scope: SupersededScope
    needs: Mapping[str, str] = needs_of("multipart", "exclusive_put", "conditional_delete")
    action: PublishAction = UploadAction()

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns task manifests that name uploads; in a place that the caller named, Hadoop's pending sets."""
        return PlacedForms(self.name) if self.layout(spec).keeps_elsewhere else ManifestForms(self.name, like_s3a=True)

    def layout(self, spec: JobSpec) -> JobLayout:
        """Returns the paths of a job; with records in the caller's place, if the job was set up with that one."""
        placed = placed_layout(spec)
        if placed is not None and (spec.hadoop or placed.manifests.uri == spec.records_at):
            return placed
        return super().layout(spec)

    def settle(self, spec: JobSpec) -> JobSpec:
        """Adds the place of the task records, and their user, to the spec."""
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
        """Yields the context with the store of its task records, if they are elsewhere."""
        layout = context.layout
        if context.records is not None or not layout.keeps_elsewhere:
            yield context
            return
        async with store_of(context, layout.manifests) as store:
            yield replace(context, records=store)

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns files on a disk of this machine."""
        return LocalFiles(context, identity)

    def choices(self, config: CommitterConfig) -> CommitterConfig:
        """Sets the scope of conflict modes, unless the caller gave one."""
        if config.conflict_mode == "append" or config.superseded_scope is not None:
            return config
        return config.replace(superseded_scope=self.scope)

    # -- setup --------------------------------------------------------------------------------------------------

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`; if records are elsewhere, after a listing there."""
        async with self.opened(context) as opened:
            if opened.records is not None:
                await _refuse_left(opened)
            made = await super().setup_job(opened)
        return replace(made, records=context.records)

    def refuse_hadoop(self, context: StageContext) -> None:
        """Refuses a job that Hadoop set up, unless the caller names the place of its task records."""
        if context.layout.keeps_elsewhere:
            return
        raise ConfigurationError(
            f"where tasks of Hadoop's {context.spec.committer} committer commit is not known: their records are on "
            "their cluster's file system",
            operation="attach_job",
            path=context.layout.destination,
            next_step="give JobSpec.for_hadoop a config with pending_set_directory, the URI of what the job's "
            "fs.s3a.committer.staging.tmp.path names, and with pending_set_user, the user of its driver",
        )

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Claims the job by a setup record: some 12 calls the first time, else about 9. Needs the place of records."""
        self.refuse_hadoop(context)
        layout, config = context.layout, self.choices(context.config)
        spec = msgspec.structs.replace(context.spec, hadoop=False, records_at=layout.manifests.uri, config=config)
        async with self.opened(context) as opened:
            claimed = self.known_as(replace(opened, config=config), spec)

            async def stands() -> bool:
                return await exists(opened.holding(layout.manifests), layout.manifests)

            if not await join_hadoop_job(claimed, self.needs, stands):
                raise no_job_elsewhere(layout, "attach_job")
        return replace(claimed, records=None)

    # -- tasks --------------------------------------------------------------------------------------------------

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortTask`, then removes the attempt's files on this machine."""
        await super().abort_task(context, request)
        attempt_id = context.layout.task_attempt_id(request.task, request.attempt)
        await context.runtime.run_blocking(
            lambda: remove_runs(context.config, context.layout, attempt_id, request.nonce)
        )

    async def forget(self, context: StageContext) -> None:
        """Removes files of dead task attempts on this machine."""
        await context.runtime.run_blocking(lambda: remove_job(context.config, context.layout))


class DirectoryCommitter(StagingCommitter):
    """S3A's committer `directory`: conflict modes concern the whole destination."""

    name = "directory"
    scope: SupersededScope = "destination"

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`; with `fail` refuses a destination that holds data now; the commit refuses later data."""
        if context.config.refuses_used_destination:
            await _refuse_used(context)
        return await super().setup_job(context)


class PartitionedCommitter(StagingCommitter):
    """S3A's committer `partitioned`: conflict modes concern each directory that receives files, with all below it.

    Files directly in the destination are always added.
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
    """Refuses a job if tasks of another job of its id committed: they would count as its own. One listing."""
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
