"""The committer `file-v2`: Hadoop's FileOutputCommitter, algorithm 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from committer.audit import audit
from committer.committers.file.base import FileOutputCommitter
from committer.committers.file.layout import FileLayout
from committer.committers.file.merge_task import MergeTask
from committer.committers.file.merged import MergedAction, MergedForms
from committer.committers.fresh import as_new_driver
from committer.committers.publish_action import PublishAction
from committer.committers.results import JobReport
from committer.errors import MultipleError, OutcomeUnknownError, StoreError, UnsupportedError
from committer.layout import JobLayout
from committer.logs import job_logger
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import RecordForms, StageContext
from committer.stages.task_output import TaskOutput

_log = job_logger("committer.committers")

_NEEDS: Final = {
    "atomic_file_rename": "rename a file atomically",
    "no_replace_rename": "rename without replacing",
    "replacing_rename": "replace a file by a rename",
    "exclusive_put": "create a file exclusively",
    "identity": "tell a file from another of its name and length",
    "identity_through_rename": "still do so once the file was renamed",
}


class FileCommitterV2(FileOutputCommitter):
    """FileOutputCommitter's algorithm 2: a task commit moves the files to the destination. Unsafe by design.

    Readers see a task's files when the task commits, and those of a job that is aborted stay. A task attempt that dies
    while it commits leaves some of its files, and the next attempt replaces only those of the same names. Job commit
    looks at each file, and says in `_SUCCESS` which ones count.
    """

    name = "file-v2"
    unsafe: str = (
        "output is visible when a task commits, not when the job does; that of failed attempts and aborted jobs stays"
    )
    needs: Mapping[str, str] = _NEEDS
    action: PublishAction = MergedAction()
    listed_layout: type[JobLayout] = FileLayout

    def layout(self, spec: JobSpec) -> JobLayout:
        """The same for both deliveries."""
        return spec.laid_out(FileLayout)

    def forms(self, spec: JobSpec) -> RecordForms:
        """Task manifests of files that are at their destinations."""
        return MergedForms()

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`."""
        self.refuse_roots(context)
        if context.config.conflict_mode != "append":
            raise UnsupportedError(
                f"conflict_mode={context.config.conflict_mode!r} is decided when a job commits; tasks of 'file-v2' "
                "have moved their files to the destination by then",
                operation="open_job",
                path=context.layout.destination,
                next_step="take 'manifest', or 'file-v1'",
            )
        return await super().setup_job(context)

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Refuses: nothing tells what tasks of Hadoop's moved to the destination.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            f"nothing says which files tasks of Hadoop's job {context.layout.job_id} committed by algorithm 2",
            operation="attach_job",
            path=context.layout.destination,
            next_step="let its own driver commit it; tasks join it with open_task(JobSpec.for_hadoop(...))",
        )

    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Runs `MergeTask`."""
        layout = cast("FileLayout", context.layout)
        with audit(ji=layout.job_id):
            return await MergeTask(context, layout).run(output)

    async def commit_job(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> JobReport:
        """Runs the job-commit core, and again where a store call failed: `CommitterConfig.commit_attempts`. Each try is
        a driver of its own, and the report counts what the last one did.

        Hadoop: ``FileOutputCommitter.commitJob``, which repeats after every failure.
        """
        messages = None if task_commits is None else list(task_commits)
        attempts = context.config.commit_attempts
        for attempt in range(1, attempts):
            try:
                return await super().commit_job(context, messages, tasks)
            except (StoreError, OutcomeUnknownError, MultipleError) as error:
                if error.outcome == "committed":
                    raise
                job_id = context.layout.job_id
                _log.warning("attempt %d of %d to commit job %s failed: %s", attempt, attempts, job_id, error)
                context = as_new_driver(context)
        return await super().commit_job(context, messages, tasks)
