"""The committer `file-v2`: Hadoop's FileOutputCommitter, algorithm 2."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

import msgspec

from committer.committers.actions import PublishAction, needs_of
from committer.committers.file.base import FileOutputCommitter
from committer.committers.file.layout import FileLayout
from committer.committers.file.taking import outside_of
from committer.committers.file.walking import tidy
from committer.committers.opened_store import as_new_driver
from committer.committers.results import JobReport
from committer.errors import (
    CommitterError,
    JobStateError,
    MultipleError,
    OutcomeUnknownError,
    RecordError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    TargetExistsError,
    TaskError,
    UnsupportedError,
)
from committer.layout import JobLayout
from committer.logs import audit, job_logger
from committer.paths import StorePath
from committer.records.manifest import DirectoryEntry, decode_task_manifest, encode_task_manifest
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import RecordForms, Stage, StageContext, TaskOutput, WrittenFile
from committer.stages.check.superseded import job_inside
from committer.stages.decide.commit_state import CommitState
from committer.stages.durability import sync_directories
from committer.stages.finish.validate_output import ValidateOutput
from committer.stages.identity import is_regular, stands_as_directory
from committer.stages.load.manifest_forms import ManifestForms
from committer.stages.names import with_ancestors
from committer.stages.publish.move_aside import MoveAside, SetAsideSuccess
from committer.stages.publish.publish import Published, leaves
from committer.stages.state.job_liveness import check_job_is_live, too_late
from committer.stages.task.commit_task import CommitTask, message_of, sync_output
from committer.stages.undo.roll_back import RollBack, RollBackRequest
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, status_or_none

_log = job_logger("committer.committers")

# A further round follows if a rename found the destination changed since the round before.
_ROUNDS = 5


class MergeTask(Stage[TaskOutput, TaskCommit]):
    """Stage that renames each file to its destination, where readers see it, then saves the task's record.

    With `existing_target="replace"` an old file or directory is replaced, as always in Hadoop. Else it is
    refused, unless an earlier attempt of the same task left it.

    Preconditions: every file is closed; the job exists and is undecided.
    Postconditions: every file is at its destination; the task's or attempt's record lists them.
    Failure modes: with `outcome="partial"` or `"unknown"` some files are at the destination and stay there.
    Cost: one listing a directory, one write, one rename a file, that of `CommitTask`; one call for `task_cleanup`.
    Hadoop: ``FileOutputCommitter.commitTask``, ``mergePaths``.
    """

    name = "task_stage_merge"

    def __init__(self, context: StageContext, layout: FileLayout) -> None:
        super().__init__(context)
        self._layout = layout
        self._earlier: dict[str, set[str]] | None = None
        self._merged = 0

    async def execute(self, value: TaskOutput) -> TaskCommit:
        """Deletes strays, moves the files, saves the record."""
        context = self.context
        try:
            await tidy(context, value, operation=self.name)
        except TaskError:
            # A removed job explains the missing files.
            await self._check_job(value)
            raise
        if context.durable:
            await sync_output(context, value)
        await self._check_job(value)
        await self._say_what_goes(value)
        try:
            await self._merge(value)
            if context.spec.hadoop:
                # Without a record: Hadoop's driver reads none.
                place, sizes = self._layout.manifest(value.identity.task), [file.size for file in value.files]
                message = message_of(context, value.identity, place, b"", sizes, inline=False)
            else:
                message = await CommitTask(context).run(value)
        except CommitterError as error:
            if error.outcome != "unknown":
                error.outcome = "partial" if self._merged else error.outcome
            error.message = f"{error.message}; {self._merged} of {len(value.files)} files of the task are visible"
            raise
        if context.config.task_cleanup:
            await self._remove(value)
        return message

    async def _check_job(self, value: TaskOutput) -> None:
        if self.context.spec.hadoop:
            return
        found = await check_job_is_live(self.context, operation=self.name)
        if found.intents:
            how = "this task attempt came too late"
            raise too_late(self._layout, how, operation=self.name, path=value.directory)

    async def _say_what_goes(self, value: TaskOutput) -> None:
        """Records the files before the first rename, so that a later attempt may replace what this one leaves."""
        context, identity = self.context, value.identity
        if not context.spec.hadoop:
            place = self._layout.merging(identity.task, identity.attempt, identity.nonce)
            await context.store.put(place, context.forms.encode_task(context, value, []), durable=context.durable)

    async def _remove(self, value: TaskOutput) -> None:
        try:
            await self.context.store.delete_directory(value.directory, recursive=True)
        except StoreError as error:
            _log.warning("could not delete %s, whose task attempt is committed: %s", value.directory, error)

    # -- merging ------------------------------------------------------------------------------------------------

    async def _merge(self, value: TaskOutput) -> None:
        context, layout = self.context, self._layout
        needed = {file.destination.rpartition("/")[0] for file in value.files} | set(value.directories)
        directories = with_ancestors(needed, layout.roots)
        if context.store.capabilities.directories:
            make = partial(self._make, value)
            await self.run_workers(leaves(sorted(directories)), make)

        async def move(file: WrittenFile) -> None:
            await self._move(value, file)
            self._merged += 1

        await self.run_workers(value.files, move)
        touched = {layout.destination, *(layout.target(name) for name in directories)}
        await sync_directories(context, touched, missing_ok=True)

    async def _make(self, value: TaskOutput, directory: str) -> None:
        """Creates a directory, and replaces files in its place or a parent's if the job allows it."""
        store, layout = self.context.store, self._layout
        for _round in range(_ROUNDS):
            try:
                await store.make_directory(layout.target(directory), parents=True)
                return
            except (StoreExistsError, StoreNotADirectoryError):
                for name in sorted(with_ancestors({directory}, layout.roots)):
                    standing = await status_or_none(store, layout.target(name))
                    if standing is not None and not standing.is_directory:
                        await self._refuse_unless_replaced(value, name, standing, "a directory")
                        await store.delete_file(standing.path)
            except StoreNotFoundError:
                # Another job removed a parent directory since it was created.
                continue
        raise self._cannot_tell(directory, None)

    async def _move(self, value: TaskOutput, file: WrittenFile) -> None:
        store, source = self.context.store, value.directory / file.name
        target, name = self._layout.target(file.destination), file.destination
        error: StoreError | None = None
        for _round in range(_ROUNDS):
            try:
                await store.rename_file(source, target, identity=file.identity)
                return
            except (
                StoreExistsError,
                StoreIsADirectoryError,
                StoreNotFoundError,
                StoreNotADirectoryError,
                StoreOutcomeUnknownError,
            ) as failure:
                error = failure
            standing, at_source = await status_or_none(store, target), await status_or_none(store, source)
            if standing is not None and _is(standing, file):
                if at_source is not None:
                    # A rename made as link and unlink stopped half way: the file has two names.
                    await store.delete_file(source)
                return
            if at_source is None:
                raise self._cannot_tell(name, error)
            if standing is None:
                await self._make(value, name.rpartition("/")[0])
                continue
            await self._refuse_unless_replaced(value, name, standing, "a file")
            if stands_as_directory(standing):
                await self._remove_directory(name, target)
            else:
                await self._replace(source, target, file)
                return
        raise self._cannot_tell(name, error)

    async def _replace(self, source: StorePath, target: StorePath, file: WrittenFile) -> None:
        try:
            await self.context.store.rename_file(source, target, replace=True, identity=file.identity)
        except StoreOutcomeUnknownError:
            standing = await status_or_none(self.context.store, target)
            if standing is None or not _is(standing, file):
                raise

    async def _remove_directory(self, name: str, target: StorePath) -> None:
        job = await job_inside(self.context.store, target)
        if job is not None:
            raise self._refusal(name, f"a directory that a job runs into (it holds {job})", "a file")
        await self.context.store.delete_directory(target, recursive=True)

    async def _refuse_unless_replaced(self, value: TaskOutput, name: str, standing: FileStatus, goes: str) -> None:
        if self.context.config.existing_target == "replace":
            return
        if is_regular(standing) and standing.identity in (await self._left_by_earlier_attempts(value)).get(name, ()):
            return
        what = "a directory" if standing.is_directory else "a link" if standing.is_link else "a file"
        raise self._refusal(name, what, goes)

    def _refusal(self, name: str, what: str, goes: str) -> TargetExistsError:
        return TargetExistsError(
            f"{what} exists at {name}, where {goes} goes",
            conflicts=[f"{what} exists at {name}, where {goes} goes"],
            operation=self.name,
            path=self._layout.target(name),
            next_step="remove it, or run the job with existing_target='replace'; if another task of the job wrote it, "
            "let the two write different names",
        )

    async def _left_by_earlier_attempts(self, value: TaskOutput) -> dict[str, set[str]]:
        """Returns the identities of files that other attempts of the task moved, by name: read once."""
        if self._earlier is None:
            found: dict[str, set[str]] = {}
            context, layout = self.context, self._layout
            for child in await children_of(context.store, layout.attempts):
                if not layout.is_merging(child.path.name, value.identity.task):
                    continue
                try:
                    data = await context.store.read(child.path, limit=context.config.record_size_limit)
                    manifest = decode_task_manifest(data, source=str(child.path))
                except (StoreNotFoundError, RecordError):
                    continue
                for entry in manifest.files:
                    name = layout.name_of(StorePath.from_uri(entry.d))
                    if entry.e:
                        found.setdefault(name, set()).add(entry.e)
            self._earlier = found
        return self._earlier

    def _cannot_tell(self, name: str, error: StoreError | None) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"cannot tell what happened to {name}: it is not where the attempt wrote it, and is not at its destination",
            operation=self.name,
            path=self._layout.target(name),
            next_step="find out who works there, and run the task again as a new attempt",
            causes=[error] if error is not None else [],
        )


def _is(standing: FileStatus, file: WrittenFile) -> bool:
    return (
        is_regular(standing)
        and standing.identity is not None
        and (standing.identity, standing.size) == (file.identity, file.size)
    )


class MergedForms(ManifestForms):
    """Record format of task manifests whose files are at their destinations before the job commits."""

    visible_early: bool = True
    forward_only: bool = True

    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """Encodes a task manifest with the usual source paths, although the files have been moved."""
        run = output.directory
        data = super().encode_task(context, replace(output, directory=context.layout.tasks / run.name), directories)
        manifest = decode_task_manifest(data, source=str(run))
        return encode_task_manifest(msgspec.structs.replace(manifest, taskAttemptDir=run.uri))

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Lists the job's task attempt directories: two listings."""
        return await outside_of(context, cast("FileLayout", context.layout))


class _NoRollBack(RollBack):
    def refuse(self, value: RollBackRequest) -> None:
        """Refuses every rollback; no store call."""
        layout = self.context.layout
        raise JobStateError(
            f"job {layout.job_id} made its output visible when its tasks committed, and replaced existing files: it "
            "can only go forward",
            operation=self.name,
            path=layout.destination,
            outcome="partial",
            next_step=f"{self.context.recover_call()} finishes it",
        )


class MergedAction(PublishAction):
    """A publish action that counts the files that tasks moved, and moves only stale summary files aside."""

    roll_back: type[RollBack] = _NoRollBack

    async def publish(self, context: StageContext, state: CommitState) -> Published:
        """Moves `_SUCCESS` aside, counts the files, moves summaries aside, validates."""
        published = Published()
        await SetAsideSuccess(context).run(state.decision)
        async for batch in state.files.batches():
            published.add(context.layout, batch, len(batch))
        if state.superseded:
            await MoveAside(context).run(state.superseded)
        await ValidateOutput(context).run((state, published))
        return published


class FileCommitterV2(FileOutputCommitter):
    """Committer that follows FileOutputCommitter's algorithm 2: task commit moves files to the destination. Unsafe.

    Files of an aborted job stay. An attempt that dies in its commit leaves files, and the next attempt replaces
    only those of the same names. Job commit checks each file, and `_SUCCESS` lists those that count.
    """

    name = "file-v2"
    unsafe: str = (
        "output is visible when a task commits, not when the job does; that of failed attempts and aborted jobs stays"
    )
    needs: Mapping[str, str] = needs_of(
        "atomic_file_rename",
        "no_replace_rename",
        "replacing_rename",
        "exclusive_put",
        "identity",
        "identity_through_rename",
    )
    action: PublishAction = MergedAction()
    listed_layout: type[JobLayout] = FileLayout

    def layout(self, spec: JobSpec) -> JobLayout:
        """Returns the same paths for both deliveries."""
        return spec.laid_out(FileLayout)

    def forms(self, spec: JobSpec) -> RecordForms:
        """Returns task manifests of files at their destinations."""
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
        """Refuses: no record says which files Hadoop's tasks moved to the destination."""
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
        """Commits the job with `CommitterConfig.commit_attempts` tries, as Hadoop does, each as a new driver."""
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
