"""The base class of both algorithms of FileOutputCommitter, and the directories that their jobs share."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from committer.committers.base import Committer
from committer.committers.file.layout import FileLayout
from committer.committers.file.taking import is_of_job
from committer.committers.results import CommitPlan
from committer.errors import JobNotFoundError, RecordError, StoreError, StoreNotFoundError, UnsupportedError
from committer.layout import TEMPORARY, DirectoryName, JobLayout
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, StageContext
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.state.own_records import read_setup
from committer.stages.task.attempt_files import AttemptFiles, StagedFiles
from committer.stores.base import Store
from committer.stores.helpers import children_of, exists

# A further try follows if another job removed a shared directory while it was empty.
_TRIES = 10


class FileOutputCommitter(Committer):
    """Base class of committers whose task attempts write to the shared directory of an application attempt."""

    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Returns the files of the task attempt directory."""
        return StagedFiles(context, directory)

    async def plan(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> CommitPlan:
        """Loads and checks the job; changes nothing."""
        plan = await super().plan(context, task_commits, tasks)
        if context.spec.delivery == "message":
            return plan
        # Records of what attempts did are not records of tasks.
        own = str(context.layout.attempts)
        return msgspec.structs.replace(plan, stray=[path for path in plan.stray if not path.startswith(own)])

    def refuse_roots(self, context: StageContext) -> None:
        """Refuses a job that would publish files outside the destination."""
        if context.layout.roots:
            raise UnsupportedError(
                "a task attempt's directory, by which FileOutputCommitter goes, cannot name files outside the "
                "destination",
                operation="open_job",
                path=context.layout.destination,
                next_step="leave absolute_roots out, or take another committer",
            )

    async def setup_task(self, context: StageContext, identity: AttemptIdentity) -> StorePath:
        """Creates the task attempt directory: 3 or 4 calls by listing."""
        layout, store = context.layout, context.store
        if not isinstance(layout, FileLayout):
            return await super().setup_task(context, identity)
        if not context.spec.hadoop:
            await check_job_is_live(context, operation="task_stage_setup")
        elif not await exists(store, layout.application_attempt):
            raise no_hadoop_job(layout)
        directory = layout.task_attempt_directory(*identity)
        for tries_left in reversed(range(_TRIES)):
            try:
                if not context.spec.hadoop:
                    await store.make_directory(layout.application_attempt, parents=False)
                await store.make_directory(layout.runs, parents=False)
                await store.make_directory(directory, parents=False)
                break
            except StoreNotFoundError as error:
                if tries_left and not context.spec.hadoop and await exists(store, layout.setup):
                    continue
                raise JobNotFoundError(
                    f"job {layout.job_id} was cleaned up while a task attempt started, or was never set up",
                    operation="task_stage_setup",
                    path=layout.application_attempt,
                    next_step="stop this task: its job is over",
                ) from error
        return directory


def no_hadoop_job(layout: FileLayout) -> JobNotFoundError:
    """Builds the error of a Hadoop job that does not exist."""
    return JobNotFoundError(
        f"there is no job {layout.job_id} at {layout.destination}: {layout.application_attempt} does not exist",
        operation="attach_job",
        path=layout.application_attempt,
        next_step="its driver makes it; look whether it ended, and whether its application attempt is another",
    )


async def holds_output_of_jobs(
    store: Store, destination: StorePath, directory_name: DirectoryName, jobs: Collection[DirectoryName]
) -> bool:
    """Returns whether a child of `_temporary` is an application attempt's and holds only output of `jobs`.

    No call for a name that is no number, or without other jobs; else two listings, and a call for each job.
    """
    name = directory_name.job_id
    if not name.isdecimal() or all(job.job_id.isdecimal() for job in jobs):
        return False
    directory = destination / TEMPORARY / name
    inside = [child.path.name for child in await children_of(store, directory)]
    inside += [child.path.name for child in await children_of(store, directory / TEMPORARY)]
    using = await jobs_that_use(store, destination, name, jobs)
    return bool(using) and all(one == TEMPORARY or any(is_of_job(layout, one) for layout in using) for one in inside)


async def jobs_that_use(
    store: Store, destination: StorePath, name: str, jobs: Collection[DirectoryName]
) -> list[FileLayout]:
    """Returns this engine's jobs whose tasks commit to an application attempt's directory: a call for each job."""
    found: list[FileLayout] = []
    if not name.isdecimal():
        return found
    for job in sorted(jobs):
        if job.job_id.isdecimal() or job.suffix:
            continue
        try:
            spec = (await read_setup(store, JobLayout(destination, job.job_id, setup=job.setup))).spec
        except (StoreError, RecordError):
            continue
        if _shares(spec) and str(spec.job_attempt) == name:
            found.append(FileLayout(destination, job.job_id, spec.job_attempt))
    return found


def _shares(spec: JobSpec) -> bool:
    return spec.committer == "file-v2" or (spec.committer == "file-v1" and spec.delivery == "listing")
