"""MergeTask: moves what a task attempt wrote straight to the destination, as FileOutputCommitter's algorithm 2 does."""

from __future__ import annotations

from functools import partial

from committer.committers.file.layout import FileLayout
from committer.committers.file.tidy import tidy
from committer.errors import (
    CommitterError,
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
)
from committer.flow.workers import run_workers
from committer.logs import job_logger
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest
from committer.records.task_commit import TaskCommit, digest_of
from committer.stages.base import Stage, StageContext
from committer.stages.commit_task import CommitTask, sync_output
from committer.stages.create_directories import leaves
from committer.stages.durability import sync_directories
from committer.stages.identity import is_regular, stands_as_directory
from committer.stages.job_stands import check_job_stands, too_late
from committer.stages.names import with_ancestors
from committer.stages.target_directories import job_inside
from committer.stages.task_output import TaskOutput, WrittenFile
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of, status_or_none

_log = job_logger("committer.committers")

# Each round begins because something stood, or was missing, where the one before did not see it.
_ROUNDS = 5


class MergeTask(Stage[TaskOutput, TaskCommit]):
    """Renames each file to its destination, then saves the task's record. Readers see the files from then on.

    What stands there gives way with `existing_target="replace"`, as it always does in Hadoop: a file for a file or a
    directory, a file for a directory that is needed. Else it is refused, but for what an earlier attempt of the same
    task left.

    Preconditions: every file is closed; the job stands undecided.
    Postconditions: every file is at its destination, and the record under the task's name, or the attempt's, says so.
    Failure modes: with `outcome="partial"` or `"unknown"` some files are at the destination and stay there, whatever
    becomes of the task and the job. That is what makes this algorithm unsafe.
    Cost: one listing for each directory, one write, one rename a file, and that of `CommitTask`; with `task_cleanup`
    one call more.
    Hadoop: ``FileOutputCommitter.commitTask``, ``mergePaths``.
    """

    name = "task_stage_merge"

    def __init__(self, context: StageContext, layout: FileLayout) -> None:
        super().__init__(context)
        self._layout = layout
        self._earlier: dict[str, set[str]] | None = None
        self._merged = 0

    async def execute(self, value: TaskOutput) -> TaskCommit:
        """Tidies the attempt's directory, moves what is in it, saves the record."""
        context = self.context
        try:
            await tidy(context, value, operation=self.name)
        except TaskError:
            # Of a job that is over all is gone.
            await self._check_job(value)
            raise
        if context.durable:
            await sync_output(context, value)
        await self._check_job(value)
        await self._say_what_goes(value)
        try:
            await self._merge(value)
            message = self._message(value) if context.spec.hadoop else await CommitTask(context).run(value)
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
        found = await check_job_stands(self.context, operation=self.name)
        if found.intents:
            how = "this task attempt came too late"
            raise too_late(self._layout, how, operation=self.name, path=value.directory)

    async def _say_what_goes(self, value: TaskOutput) -> None:
        """Before the first rename: a later attempt may replace what this one leaves, whatever becomes of it."""
        context, identity = self.context, value.identity
        if not context.spec.hadoop:
            place = self._layout.merging(identity.task, identity.attempt, identity.nonce)
            await context.store.put(place, context.forms.encode_task(context, value, []), durable=context.durable)

    def _message(self, value: TaskOutput) -> TaskCommit:
        """Of a task of Hadoop's job: no record tells what it committed, since Hadoop's driver reads none."""
        identity = value.identity
        return TaskCommit(
            job_id=self._layout.job_id,
            task=identity.task,
            attempt=identity.attempt,
            nonce=identity.nonce,
            record=self._layout.manifest(identity.task).uri,
            digest=digest_of(b""),
            length=0,
            files=len(value.files),
            size=sum(file.size for file in value.files),
            inline=None,
        )

    async def _remove(self, value: TaskOutput) -> None:
        """Deletes the task attempt's directory. What stays goes with the job, so a failure is logged, as in Hadoop."""
        try:
            await self.context.store.delete_directory(value.directory, recursive=True)
        except StoreError as error:
            _log.warning("could not delete %s, whose task attempt is committed: %s", value.directory, error)

    # -- merging ------------------------------------------------------------------------------------------------

    async def _merge(self, value: TaskOutput) -> None:
        context, layout = self.context, self._layout
        needed = {file.destination.rpartition("/")[0] for file in value.files} | set(value.directories)
        directories = with_ancestors(needed, layout.roots)
        workers = context.config.io_concurrency
        if context.store.capabilities.directories:
            make = partial(self._make, value)
            await run_workers(leaves(sorted(directories)), make, workers=workers, operation=self.name)

        async def move(file: WrittenFile) -> None:
            await self._move(value, file)
            self._merged += 1

        await run_workers(value.files, move, workers=workers, operation=self.name)
        touched = {layout.destination, *(layout.target(name) for name in directories)}
        await sync_directories(context, touched, missing_ok=True)

    async def _make(self, value: TaskOutput, directory: str) -> None:
        """Makes a directory; files in its place, or in that of one above it, give way as the job says."""
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
                # Another job removed a parent that it had made.
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
                    # Two names of one file: a rename that was a link got half way.
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
            f"{what} stands at {name}, where {goes} goes",
            conflicts=[f"{what} stands at {name}, where {goes} goes"],
            operation=self.name,
            path=self._layout.target(name),
            next_step="remove it, or run the job with existing_target='replace'; if another task of the job wrote it, "
            "let the two write different names",
        )

    async def _left_by_earlier_attempts(self, value: TaskOutput) -> dict[str, set[str]]:
        """Identities of what other attempts of the task moved to the destination, by name: read once."""
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
