"""The base class of both algorithms of FileOutputCommitter."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from committer.committers.base import Committer
from committer.committers.file.layout import FileLayout
from committer.committers.results import CommitPlan
from committer.errors import JobNotFoundError, StoreNotFoundError, UnsupportedError
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.stages.base import StageContext
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.task.attempt_files import AttemptFiles, StagedFiles
from committer.stages.task_output import AttemptIdentity
from committer.stores.helpers import exists

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
