"""The committer `file-v1`: Hadoop's FileOutputCommitter, algorithm 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import msgspec

from committer.committers.actions import PublishAction, needs_of
from committer.committers.file.base import FileOutputCommitter, no_hadoop_job
from committer.committers.file.layout import CommittedLayout
from committer.committers.file.taking import FileForms, TakenAction, layout_of, refuse_reducers
from committer.committers.file.task_v1 import AbortFileTask, CommitFileTask, message_of_directory
from committer.committers.results import CommitPlan
from committer.errors import (
    JobExistsError,
    JobStateError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    TaskError,
)
from committer.layout import JobLayout
from committer.logs import audit
from committer.records.manifest import decode_task_manifest
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import RecordForms, StageContext
from committer.stages.durability import sync_directories
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.setup.setup_job import join_hadoop_job
from committer.stages.task.abort_task import AbortRequest
from committer.stages.task_output import AttemptIdentity, TaskOutput
from committer.stores.helpers import children_of


class FileCommitterV1(FileOutputCommitter):
    """Committer that follows FileOutputCommitter's algorithm 1, for stores that rename directories atomically.

    By listing, Java's tasks and drivers can take part. By message they cannot: Hadoop's layout knows no attempts.
    """

    name = "file-v1"
    needs: Mapping[str, str] = needs_of(
        "atomic_file_rename",
        "no_replace_rename",
        "exclusive_put",
        "atomic_directory_rename",
        "identity",
        "identity_through_rename",
    )
    action: PublishAction = TakenAction()
    listed_layout: type[JobLayout] = CommittedLayout

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns task directories as records by listing, else task manifests."""
        return FileForms() if spec.delivery == "listing" else ManifestForms()

    # -- setup --------------------------------------------------------------------------------------------------

    async def setup_job(self, context: StageContext) -> StageContext:
        """Runs `SetupJob`; two listings more by listing."""
        if context.spec.delivery == "message":
            return await super().setup_job(context)
        self.refuse_roots(context)
        left = list(await context.forms.outside(context))
        if left:
            raise JobExistsError(
                f"tasks of an earlier job {context.layout.job_id} left their output at {context.layout.destination}",
                operation="open_job",
                path=left[0].path,
                next_step="choose another job id; or make sure that no task of that job runs any more, and delete "
                f"{', '.join(str(status.path) for status in left[:3])}",
            )
        return await super().setup_job(context)

    async def join_hadoop(self, context: StageContext) -> StageContext:
        """Claims the job for this engine by a setup record. Hadoop's driver ignores that record and its directory."""
        layout = layout_of(context)
        if not layout.tracker:
            raise JobStateError(
                f"FileOutputCommitter names tasks by MapReduce's job id, job_<time>_<number>, not {layout.job_id}",
                operation="attach_job",
                path=layout.manifests,
                next_step=f"give the id that the names of directories in {layout.manifests} hold",
            )

        async def stands() -> bool:
            try:
                refuse_reducers(layout, [child.path.name async for child in context.store.list(layout.manifests)])
            except (StoreNotFoundError, StoreNotADirectoryError):
                return False
            return True

        claimed = self.known_as(context, msgspec.structs.replace(context.spec, hadoop=False))
        if await join_hadoop_job(claimed, self.needs, stands):
            return claimed
        raise no_hadoop_job(layout)

    # -- tasks --------------------------------------------------------------------------------------------------

    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Runs `CommitFileTask`."""
        if context.spec.delivery == "message":
            return await super().commit_task(context, output)
        return await CommitFileTask(context, layout_of(context)).run(output)

    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Runs `AbortFileTask`."""
        if context.spec.delivery == "message":
            await super().abort_task(context, request)
            return
        with audit(ji=context.layout.job_id, ta=context.layout.task_attempt_id(request.task, request.attempt)):
            await AbortFileTask(context).run(request)

    async def recover_task(self, context: StageContext, task: int, attempt: int) -> TaskCommit:
        """Recreates the task's message; a commit of the previous application attempt is taken over by one rename."""
        if context.spec.delivery == "message":
            return await super().recover_task(context, task, attempt)
        layout, store = layout_of(context), context.store
        committed, earlier = layout.manifest(task), layout.earlier()
        if earlier is not None:
            with suppress(StoreNotFoundError, StoreExistsError):
                await store.rename_directory(earlier / committed.name, committed)
            # Also after an earlier call that lost the rename's response. The target is synced before the source.
            await sync_directories(context, [layout.manifests, layout.temporary], missing_ok=True)
            await sync_directories(context, [earlier], missing_ok=True)
        for place in (committed, layout.tasks / committed.name):
            with suppress(StoreNotFoundError):
                record = await context.forms.read(context, place)
                nonce = await _whose(context, layout, task, attempt, record)
                if nonce is not None:
                    manifest = decode_task_manifest(record, source=str(place))
                    return message_of_directory(context, AttemptIdentity(task, attempt, nonce), record, manifest)
        raise TaskError(
            f"{layout.task_attempt_id(task, attempt)} did not commit, or another attempt of its task did since: there "
            "is nothing to recover",
            operation="recover_task",
            path=committed,
            next_step="run the task again",
        )

    async def plan(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> CommitPlan:
        """Loads and checks the job; changes nothing."""
        if context.spec.delivery == "listing":
            layout = layout_of(context)
            taken = await children_of(context.store, layout.tasks)
            committed = [child.path.name for child in await children_of(context.store, layout.manifests)]
            refuse_reducers(layout, committed)
            standing = list(filter(layout.is_record, committed))
            if taken and standing:
                raise JobStateError(
                    f"job {layout.job_id} is being committed: {len(taken)} of its tasks' directories were taken, "
                    f"{len(standing)} were not",
                    operation="plan",
                    path=layout.tasks,
                    next_step=f"wait for the commit to end; if its driver is dead, call {context.recover_call()}",
                )
            if standing:
                context = replace(context, layout=layout.in_place())
            elif not taken:
                # Another job that ends may remove the directory where tasks commit while it is empty.
                context = replace(context, layout=layout.of_no_task())
        return await super().plan(context, task_commits, tasks)


async def _whose(context: StageContext, layout: CommittedLayout, task: int, attempt: int, record: bytes) -> str | None:
    """Returns the nonce of the run with this record; "" if there is none, None if it is of another attempt."""
    for child in await children_of(context.store, layout.attempts):
        run = layout.parse_attempt_record(child.path.name)
        if run is not None and run[0] == task:
            with suppress(StoreNotFoundError):
                if await context.store.read(child.path, limit=context.config.record_size_limit) == record:
                    return run[2] if run[1] == attempt else None
    return ""
