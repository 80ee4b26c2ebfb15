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
from committer.committers.file.walking import manifest_of_directory, record_of_directory, tidy
from committer.committers.results import CommitPlan
from committer.errors import (
    CommitterError,
    JobExistsError,
    JobNotFoundError,
    JobStateError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    TaskError,
)
from committer.events import names
from committer.flow.together import both
from committer.layout import MANIFEST_SUFFIX, JobLayout
from committer.logs import audit
from committer.paths import StorePath
from committer.records.manifest import TaskManifest, decode_task_manifest, encode_task_manifest
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, RecordForms, Stage, StageContext, TaskOutput
from committer.stages.durability import sync_directories
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.setup.setup_job import join_hadoop_job
from committer.stages.state.job_directory import look_at_job
from committer.stages.state.job_liveness import check_job_is_live, too_late
from committer.stages.task.abort_task import AbortRequest, AbortTask
from committer.stages.task.attempt_files import attempt_aborted
from committer.stages.task.commit_task import message_of, sync_output
from committer.stores.helpers import children_of, exists

# A further round follows if another attempt of the task committed.
_ROUNDS = 10


class CommitFileTask(Stage[TaskOutput, TaskCommit]):
    """Stage that renames a task attempt's directory to its task's name; of several attempts the last wins.

    The directory's content is what the task commits, for Hadoop's driver too: unfinished files are deleted
    first. A driver writes its intent before it takes directories; a task looks for one after its rename. So one
    of the two sees the other: a commit that returns is part of the job.

    Preconditions: every file is closed; the job exists, and no driver commits it.
    Postconditions: the directory has the task's name; the attempt's record tells whose it is; earlier commits
    are aside.
    Failure modes: the attempt did not commit; or, with `outcome="unknown"`, it may have.
    Cost: one listing a directory, four looks at the job, one write, one rename; two more renames after an
    earlier commit.
    Hadoop: ``FileOutputCommitter.commitTask``, which deletes the earlier directory first: a moment without either.
    """

    name = statistic = names.TASK_STAGE_COMMIT

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._layout = layout_of(context)

    async def execute(self, value: TaskOutput) -> TaskCommit:
        """Deletes strays from the directory, renames it."""
        context, layout, identity = self.context, self._layout, value.identity
        task_name = layout.task_id(identity.task)
        try:
            await tidy(context, value, operation=self.name)
        except TaskError:
            # A removed job explains the missing files.
            await self._check_job(value)
            raise
        if context.durable:
            await sync_output(context, value)
        manifest = await manifest_of_directory(context, value.directory, task_name=task_name)
        record = encode_task_manifest(manifest)
        await self._check_job(value)
        if not context.spec.hadoop:
            # Written before the rename: an abort must be able to tell whose the task's directory is.
            place = layout.attempt_record(*identity)
            await context.store.put(place, record, durable=context.durable)
        await self._rename(value, record, layout.manifests / task_name)
        try:
            # Another job that ended may have removed the shared directories since setup, and this attempt created
            # them again: then their names are not on the disk yet either.
            await sync_directories(context, [layout.manifests, layout.runs, layout.temporary])
            await self._look_again(value)
        except CommitterError as error:
            # The directory has its task's name, and a job commit may take it.
            error.outcome = "unknown"
            raise
        size = sum(file.z for file in manifest.files)
        context.statistics.sample(names.COMMITTER_TASK_FILE_COUNT, len(manifest.files))
        context.statistics.sample(names.COMMITTER_TASK_FILE_SIZE, size)
        context.statistics.count(names.COMMITTER_TASKS_COMPLETED)
        return message_of_directory(context, identity, record, manifest)

    async def _check_job(self, value: TaskOutput) -> None:
        if self.context.spec.hadoop:
            return
        found, taken = await both(check_job_is_live(self.context, operation=self.name), self._is_taken(value))
        if found.intents:
            raise self._too_late(value, "this task attempt came too late")
        if taken:
            raise self._replaces_nothing(value)

    async def _is_taken(self, value: TaskOutput) -> bool:
        """Returns True if an earlier commit of the task lies where refused drivers took it."""
        store, task_name = self.context.store, self._layout.task_id(value.identity.task)
        places = (self._layout.tasks / task_name, self._layout.returning / task_name)
        return any(await both(*(exists(store, place) for place in places)))

    async def _look_again(self, value: TaskOutput) -> None:
        """Refuses a commit that a driver may have missed when it listed committed tasks."""
        try:
            found = await look_at_job(self.context.store, self._layout)
        except JobNotFoundError:
            if self.context.spec.hadoop:
                return
            raise
        if found.intents or found.decided or found.ended:
            raise self._too_late(value, "this task attempt came too late, or just in time")
        # Only after that look: a driver that took directories has an intent, or is giving them back.
        if not self.context.spec.hadoop and await self._is_taken(value):
            raise self._replaces_nothing(value)

    def _too_late(self, value: TaskOutput, how: str) -> JobStateError:
        return too_late(self._layout, how, operation=self.name, path=value.directory)

    def _replaces_nothing(self, value: TaskOutput) -> JobStateError:
        task_name = self._layout.task_id(value.identity.task)
        return JobStateError(
            f"a refused commit of job {self._layout.job_id} took what {task_name} committed before: that counts, and "
            "this task attempt came too late",
            operation=self.name,
            path=value.directory,
            next_step="commit the job with the earlier attempt of the task, or abort it",
        )

    async def _rename(self, value: TaskOutput, record: bytes, target: StorePath) -> None:
        store, layout = self.context.store, self._layout
        for round_number in range(_ROUNDS):
            try:
                await store.rename_directory(value.directory, target)
                return
            except StoreExistsError:
                await self._move_aside(target, layout.replaced(target.name, f"{value.identity.nonce}{round_number:x}"))
            except StoreOutcomeUnknownError as error:
                if await exists(store, value.directory):
                    continue
                if await _holds(self.context, target, target.name, record):
                    return
                raise self._unknown(value, error) from error
            except StoreNotFoundError as error:
                await self._check_job(value)
                raise attempt_aborted(self.name, value.directory) from error
        raise TaskError(
            f"other attempts of {target.name} committed at each of {_ROUNDS} tries",
            operation=self.name,
            path=target,
            next_step="run one attempt of the task at a time",
        )

    async def _move_aside(self, target: StorePath, aside: StorePath) -> None:
        """Moves an earlier commit of the task aside; the next round handles a lost response."""
        with suppress(StoreNotFoundError, StoreOutcomeUnknownError):
            await self.context.store.rename_directory(target, aside)

    def _unknown(self, value: TaskOutput, error: StoreOutcomeUnknownError) -> JobStateError:
        return JobStateError(
            "cannot tell whether the task attempt committed: its directory is gone, and another one, or none, exists "
            "under its task's name",
            operation=self.name,
            path=value.directory,
            outcome="unknown",
            next_step="run the task again as a new attempt: its commit replaces this one",
            causes=[error],
        )


async def _holds(context: StageContext, directory: StorePath, task: str, record: bytes) -> bool:
    """Returns whether a directory holds exactly the output of a task that a record describes."""
    try:
        return await record_of_directory(context, directory, task_name=task) == record
    except (StoreNotFoundError, StoreNotADirectoryError, TaskError):
        return False


def message_of_directory(
    context: StageContext, identity: AttemptIdentity, record: bytes, manifest: TaskManifest
) -> TaskCommit:
    """Builds the message of a committed task from its manifest."""
    sizes = [file.z for file in manifest.files]
    return message_of(context, identity, context.layout.manifest(identity.task), record, sizes, inline=False)


class AbortFileTask(AbortTask):
    """Stage that deletes the directories of an attempt's runs, and its commit if its record proves it.

    Commits of Hadoop's attempts, and commits without files, stay: no record tells whose they are.

    Cost: by ids three listings; for each record one read, one listing for each directory of the task, and one of the
    job where another run of the task, or a driver, has its place.
    Hadoop: ``FileOutputCommitter.abortTask``.
    """

    async def _remove_records(self, value: AbortRequest, attempt_id: str) -> None:
        layout, store = layout_of(self.context), self.context.store
        await self._check_not_being_committed()
        for record in await self._of_request(value, layout.attempts, MANIFEST_SUFFIX):
            try:
                told = await store.read(record, limit=self.context.config.record_size_limit)
            except StoreNotFoundError:
                continue
            if decode_task_manifest(told, source=str(record)).files:
                await self._take_back(value, layout, attempt_id, told)
            await store.delete_file(record)

    async def _take_back(self, value: AbortRequest, layout: CommittedLayout, attempt_id: str, told: bytes) -> None:
        """Removes a task's commit, if it is the one that a record describes.

        It is first moved to where a job commit still finds it, and compared there: a job commit never finds
        half of it.
        """
        task, token = layout.task_id(value.task), self.context.runtime.nonce()
        committed, aside = layout.manifests / task, layout.replaced(task, token)
        if not await _holds(self.context, committed, task, told):
            await self._refuse_taken(value, layout, told)
            return
        for earlier in await self._runs(layout.runs, task):
            # An earlier commit that this one replaced does not come back.
            await self._discard(layout, earlier, f"{attempt_id}-{self.context.runtime.nonce()}")
        try:
            await self.context.store.rename_directory(committed, aside)
        except StoreNotFoundError:
            await self._refuse_taken(value, layout, told)
            return
        try:
            await self._check_not_being_committed()
        except (JobStateError, JobNotFoundError):
            await self._put_there(aside, committed)
            raise
        if not await _holds(self.context, aside, task, told):
            # Another attempt of the task committed after the comparison, or a driver took it.
            await self._put_there(aside, committed)
            await self._refuse_taken(value, layout, told)
            return
        if not await self._discard(layout, aside, f"{attempt_id}-{token}"):
            await self._refuse_taken(value, layout, told)

    async def _refuse_taken(self, value: AbortRequest, layout: CommittedLayout, told: bytes) -> None:
        """Refuses the abort of a commit that is gone from its place: a driver may have taken it, and publish it.

        Raises:
            JobStateError: A driver is at work, or a refused one left the commit taken.
            JobNotFoundError: The job ended meanwhile.
        """
        task = layout.task_id(value.task)
        for place in (layout.tasks, layout.returning):
            if await _holds(self.context, place / task, task, told):
                raise JobStateError(
                    f"a refused commit of job {layout.job_id} took what this attempt of {task} committed",
                    operation=self.name,
                    path=place / task,
                    next_step="commit the job with it, or abort the job",
                )
        await self._check_not_being_committed()
        if not self.context.spec.hadoop:
            await look_at_job(self.context.store, layout)

    async def _put_there(self, aside: StorePath, committed: StorePath) -> None:
        # A later commit of the task, or a job commit that took it, wins.
        with suppress(StoreExistsError, StoreNotFoundError):
            await self.context.store.rename_directory(aside, committed)

    async def _discard(self, layout: CommittedLayout, directory: StorePath, name: str) -> bool:
        """Renames a directory to a name that job commits ignore, then deletes it; returns False if it is gone."""
        try:
            await self.context.store.rename_directory(directory, layout.runs / name)
        except StoreNotFoundError:
            return False
        await self.context.store.delete_directory(layout.runs / name, recursive=True)
        return True


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
        return await CommitFileTask(context).run(output)

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
                # What would be published is still where tasks committed it.
                context = replace(context, layout=layout.with_tasks_in(layout.manifests))
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
