"""The stages that create directories at the destination, and rename every file of a decided job into place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from committer.errors import (
    CommitterError,
    OutcomeUnknownError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StoreThrottledError,
    StoreUnavailableError,
    TargetExistsError,
)
from committer.events import names
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.records.job_state import Fact
from committer.records.publish_chunk import PlannedFile
from committer.records.success import FILENAMES_LIMIT
from committer.stages.base import Stage, StageContext
from committer.stages.check.preflight import end_it_first
from committer.stages.check.superseded import job_inside
from committer.stages.decide.commit_state import CommitState, end_advice, is_forward_only, looking_again
from committer.stages.durability import run_together
from committer.stages.identity import is_file_of, is_recorded, is_virtual_directory, may_be_file_of, stands_as_directory
from committer.stages.names import with_ancestors
from committer.stores.abilities import (
    BATCH_RENAME,
    HARD_LINKS,
    TREE_COUNTS,
    SupportsBatchRename,
    SupportsTreeCounts,
    TreeCounts,
)
from committer.stores.base import FileStatus, Store


class CreateDirectories(Stage[list[str], int]):
    """The stage that creates every absent directory: it creates the leaves with their parents.

    Preconditions: the decision exists; files in the way were moved aside (with `existing_target="replace"`).
    Failure modes: a file in the way is a definite refusal (`TargetExistsError`).
    Cost: one call per leaf; none where directories are not real.
    Hadoop: ``CreateOutputDirectoriesStage``.
    """

    name = statistic = names.JOB_STAGE_CREATE_TARGET_DIRS

    async def execute(self, value: list[str]) -> int:
        """Creates the leaves of `value` concurrently; returns their number."""
        store, layout = self.context.store, self.context.layout
        if not store.capabilities.directories:
            return 0

        async def make(directory: str) -> None:
            path = layout.target(directory)
            try:
                # The rollback of another job may remove a parent that it created, while this one is created below it.
                await looking_again(lambda: store.make_directory(path, parents=True), after=StoreNotFoundError)
            except (StoreExistsError, StoreNotADirectoryError) as error:
                raise refused_directory(directory, error) from error

        with self.context.statistics.timed(names.OP_CREATE_DIRECTORIES):
            return await run_workers(
                leaves(value), make, workers=self.context.config.io_concurrency, operation=self.name
            )


def leaves(directories: list[str]) -> list[str]:
    """Returns the directories that are not the parent of another."""
    parents = {directory.rpartition("/")[0] for directory in directories}
    return sorted(set(directories) - parents)


async def make_missing(context: StageContext, destination: str, made: list[StorePath]) -> None:
    """Creates the directory of a file's destination if it is missing: a status per directory, and one call."""
    # Adds the missing directories to `made`, deepest first, before it creates them.
    store = context.store
    needed = missing = context.layout.target(destination).parent
    while missing != missing.parent and not await _is_directory(store, missing):
        made.append(missing)
        missing = missing.parent
    if missing == needed:
        return
    try:
        await store.make_directory(needed, parents=True)
    except (StoreExistsError, StoreNotADirectoryError) as error:
        raise refused_directory(destination.rpartition("/")[0], error) from error


async def remove_made(context: StageContext, made: list[StorePath]) -> None:
    """Removes directories that `make_missing` created, if they are empty."""
    for directory in made:
        with suppress(StoreError):
            await context.store.delete_directory(directory, recursive=False)


async def remove_empty(
    context: StageContext, directories: Collection[str], *, unless: tuple[type[CommitterError], ...], operation: str
) -> None:
    """Removes empty directories, deepest first; ignores the errors in `unless`."""
    if not context.store.capabilities.directories:
        return

    async def remove(directory: str) -> None:
        with suppress(*unless):
            await context.store.delete_directory(context.layout.target(directory), recursive=False)

    workers = context.config.io_concurrency
    for depth in sorted({directory.count("/") for directory in directories}, reverse=True):
        level = sorted(directory for directory in directories if directory.count("/") == depth)
        await run_workers(level, remove, workers=workers, operation=operation)


async def _is_directory(store: Store, path: StorePath) -> bool:
    try:
        return (await store.status(path)).is_directory
    except (StoreNotFoundError, StoreNotADirectoryError):
        return False


def refused_directory(directory: str, error: CommitterError) -> TargetExistsError:
    """Builds the error of a file that appeared after preflight where a directory is needed."""
    return TargetExistsError(
        f"a file exists at {error.path or directory}, where the directory {directory} goes",
        conflicts=[f"a file exists at {error.path or directory}, where a directory goes"],
        operation=CreateDirectories.name,
        path=directory,
        next_step="remove it and run the job again",
        causes=[error],
    )


# For fewer files, a status of each costs no more than the count.
_WORTH_A_COUNT = 2


async def counted_files(
    context: StageContext, store: SupportsTreeCounts, files: list[PlannedFile], *, operation: str
) -> tuple[list[PlannedFile], list[PlannedFile]]:
    """Splits files into those that are known to be regular files, and those to look at. One call per attempt."""
    # A directory in the place of a file changes the counts. An attempt's directory whose files, directories
    # and bytes differ from its record, or that cannot be counted, proves nothing. Differences that compensate
    # each other are not detected: only the attempt writes to a directory with its nonce. `files` must contain
    # all files of an attempt, or those are looked at.
    attempts: dict[str, list[PlannedFile]] = {}
    for file in files:
        attempts.setdefault(file.source.partition("/")[0], []).append(file)
    proved: set[str] = set()

    async def count(attempt: str) -> None:
        try:
            found = await store.count_tree(context.layout.tasks / attempt)
        except StoreError:
            # The looks that follow show what is wrong.
            return
        if found == _recorded(attempts[attempt]):
            proved.add(attempt)

    worth = [attempt for attempt, some in attempts.items() if len(some) >= _WORTH_A_COUNT]
    await run_workers(worth, count, workers=context.config.io_concurrency, operation=operation)
    known = [file for attempt, some in attempts.items() if attempt in proved for file in some]
    rest = [file for attempt, some in attempts.items() if attempt not in proved for file in some]
    return known, rest


def _recorded(files: list[PlannedFile]) -> TreeCounts:
    """Returns the counts of a directory with these files and nothing else."""
    directories = with_ancestors({file.source.rpartition("/")[0] for file in files})
    return TreeCounts(len(files), len(directories), sum([file.size for file in files]))


_Ends: TypeAlias = tuple[StorePath, StorePath]

# How often a file is looked at and retried. Each round ends, or saw the store change; more would be a livelock
# with a process that keeps changing it.
_ROUNDS = 5


@dataclass(slots=True)
class Published:
    """Published files, by this driver or before.

    Attributes:
        recovered: Files found in place although the rename failed.
        filenames: URIs of the first `most` files (`RecordForms.filenames_limit`).
        named: The same files; empty if their names come from a record.
    """

    files: int = 0
    size: int = 0
    recovered: int = 0
    filenames: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    named: list[PlannedFile] = field(default_factory=list)
    most: int = FILENAMES_LIMIT

    def add(self, layout: JobLayout, files: list[PlannedFile], done: int) -> None:
        """Adds files in place; `done` is the sum over their publish actions."""
        self.files += done
        self.size += sum([file.size for file in files])
        for file in files[: self.most - len(self.filenames)]:
            self.filenames.append(layout.target(file.destination).uri)
            self.lengths.append(file.size)
            self.named.append(file)


class ExistingTargets:
    """The existing-target rule of one job; `forward_only` says whether the job cannot be rolled back."""

    def __init__(self, context: StageContext, state: CommitState, operation: str) -> None:
        self._context = context
        self._replaces = context.config.existing_target == "replace"
        self.forward_only: bool = is_forward_only(context, state)
        self._operation = operation

    def may_replace(self, file: PlannedFile, standing: FileStatus) -> bool:
        """Whether the job replaces an existing file: it must replace, and the decision must have recorded the file."""
        # A rollback could not restore a file that came later, so only a job that cannot roll back replaces one.
        fact = file.stood
        recorded = fact is not None and is_recorded(standing, fact)
        allowed = recorded or (self._replaces and self.forward_only)
        return allowed and (self._replaces or self._context.config.supersedes(file.destination))

    def refusal(
        self,
        file: PlannedFile,
        target: StorePath,
        what: str,
        causes: Sequence[CommitterError] = (),
        *,
        still: bool = True,
    ) -> TargetExistsError:
        """Builds the error of a file whose destination exists; `still` if a call just showed that."""
        stands = "exists" if still else "exists, or existed a moment ago,"
        replace = "" if self._replaces else ", with existing_target='replace' if it may be replaced"
        return TargetExistsError(
            f"{what} {stands} at {target}, where {self._context.layout.job_id} publishes a file",
            conflicts=[f"{what} {stands} at {file.destination}, where a file goes"],
            operation=self._operation,
            path=target,
            # It came after this job's check, so it is most likely another job's output: no reader may lose that.
            next_step="find out whether another job committed it (_SUCCESS may tell); if it is not needed, remove it, "
            f"and run the job again{replace}",
            causes=causes,
        )


class PublishFiles(Stage[CommitState, Published]):
    """The stage that publishes each file by one rename, and looks further only if that fails.

    Then, for (source, target): present/absent is published; absent/same identity is done; present/same identity
    (a link whose old name is left) is finished; present/other follows the existing-target rule; absent/other
    and absent/absent are unknown and stop the commit with `outcome="unknown"`. So any driver can run it again,
    at any time.

    Preconditions: the decision exists; the directories exist.
    Postconditions: every file of every winner is at its destination and nowhere else.
    Failure modes: `TargetExistsError` is definite: nothing of that file happened; `OutcomeUnknownError`; a
    store error leaves a decided job that `recover` finishes. After the first failure no new call starts.
    Cost: one call per file, and one per attempt where the store counts; 2 to 5 more for each that fails; 2 or 3
    more for one that replaces, and two listings of each directory in a replaced directory.
    Hadoop: ``RenameFilesStage``.
    """

    name = statistic = names.JOB_STAGE_RENAME_FILES

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._published = Published()
        self._ends = _make_ends(context.layout)
        self._existing: ExistingTargets

    async def execute(self, value: CommitState) -> Published:
        """Publishes all files, many concurrently."""
        self._existing = ExistingTargets(self.context, value, self.name)
        self.context.progress.expect(value.decision.files)
        layout, store, published = self.context.layout, self.context.store, self._published
        promote = value.promote
        rename_file, advance, ends = store.rename_file, self.context.progress.advance, self._ends

        async def publish(file: PlannedFile) -> None:
            if file.stood is not None:
                await self._settle(file, *ends(file), None)
            else:
                source, target = ends(file)
                try:
                    await rename_file(source, target, identity=file.identity, version=file.version)
                except StoreError as error:
                    await self._settle(file, source, target, error)
            advance(1, file.size)

        workers, able = self.context.config.io_concurrency, BATCH_RENAME.of(store)
        async for batch in value.files.batches():
            rest = batch if promote is None else await promote(batch)
            done = len(batch) - len(rest)
            if done:
                advance(done, sum([file.size for file in batch]) - sum([file.size for file in rest]))
            if able is not None:
                plain, rest = _without_stood(rest) if value.targets else (rest, [])
                done += await self._publish_plain(able, plain)
            done += await run_workers(rest, publish, workers=workers, operation=self.name)
            published.add(layout, batch, done)
        return published

    async def _publish_plain(self, store: SupportsBatchRename, files: list[PlannedFile]) -> int:
        """Publishes files whose targets are expected to be absent, many in one call; returns how many."""
        counting = TREE_COUNTS.of(self.context.store)
        if counting is None:
            return await self._publish_together(store, files, looks=True)
        known, rest = await counted_files(self.context, counting, files, operation=self.name)
        done = await self._publish_together(store, known, looks=False)
        return done + await self._publish_together(store, rest, looks=True)

    async def _publish_together(self, store: SupportsBatchRename, files: list[PlannedFile], *, looks: bool) -> int:
        done = 0
        advance = self.context.progress.advance
        most = self.context.config.io_concurrency

        async def publish(some: Sequence[PlannedFile]) -> None:
            nonlocal done
            renames = [self._ends(file) for file in some]
            errors = await store.rename_files(renames, looks=looks)

            async def settle(index: int) -> None:
                await self._settle(some[index], *renames[index], errors[index])

            await run_workers(errors, settle, workers=most, operation=self.name)
            done += len(some)
            advance(len(some), sum([file.size for file in some]))

        await run_together(_by_directory(files), publish, io_concurrency=most, operation=self.name)
        return done

    async def _settle(self, file: PlannedFile, source: StorePath, target: StorePath, error: StoreError | None) -> None:
        """Publishes one file after a failed rename, or refuses it, by what exists at source and target."""
        made: list[StorePath] = []
        try:
            await self._settle_by_looks(file, source, target, error, made)
        except CommitterError:
            # The job may have been rolled back since this driver, or worker, looked.
            await remove_made(self.context, made)
            raise

    async def _settle_by_looks(
        self, file: PlannedFile, source: StorePath, target: StorePath, error: StoreError | None, made: list[StorePath]
    ) -> None:
        for _round in range(_ROUNDS):
            at_source, at_target = await self._look(source), await self._look(target)
            same = is_file_of(at_target, file)
            if same and not (at_source is not None and may_be_file_of(at_source, file)):
                # A file at its source by now (a delayed request creates an empty one again) is another one.
                if error is not None:
                    self._published.recovered += 1
                    self.context.statistics.count(names.COMMIT_FILE_RENAME_RECOVERED)
                return
            if at_source is None:
                raise await self._unknown(file, target, at_target, error)
            if not may_be_file_of(at_source, file):
                raise await self._unknown(file, source, at_target, error)
            if error is not None and not _worth_another_try(error):
                raise error
            try:
                if at_target is None:
                    await self._rename_into_place(file, source, target, made)
                elif same:
                    # Two names of one file: the rename was a link whose old name was not yet removed. Renaming
                    # one onto the other would do nothing (POSIX), so the old name is removed.
                    await self.context.store.delete_file(source)
                else:
                    await self._replace_target(file, source, target, at_target)
                return
            except StoreError as again:
                error = again
        if isinstance(error, StoreExistsError):
            # The store sees something there that it does not show. The file is at its source, and nothing happened.
            raise self._existing.refusal(file, target, "something that cannot be looked at", [error])
        if isinstance(error, StoreUnavailableError | StoreThrottledError):
            # The file is at its source, and nothing happened.
            raise error
        raise await self._unknown(file, target, None, error, gone=False)

    async def _look(self, path: StorePath) -> FileStatus | None:
        try:
            status = await self.context.store.status(path)
        except (StoreNotFoundError, StoreNotADirectoryError):
            return None
        return None if is_virtual_directory(status, self.context.store.capabilities) else status

    async def _rename_into_place(
        self, file: PlannedFile, source: StorePath, target: StorePath, made: list[StorePath]
    ) -> None:
        store = self.context.store
        fact = file.stood
        if fact is not None and fact.is_directory:
            # Moved by a call without response, by a driver that died, or by one that runs beside this one.
            await self._refuse_job_aside(file, target, self.context.layout.superseded / f"{fact.aside:08d}")
        if store.capabilities.directories:
            # The directory may have been removed since it was created or seen.
            await make_missing(self.context, file.destination, made)
        await store.rename_file(source, target, identity=file.identity)

    async def _replace_target(
        self, file: PlannedFile, source: StorePath, target: StorePath, standing: FileStatus
    ) -> None:
        store, layout = self.context.store, self.context.layout
        fact = file.stood
        if not self._existing.may_replace(file, standing):
            raise self._existing.refusal(file, target, "a link" if standing.is_link else "a file")
        aside = layout.superseded / _aside_name(file.destination, fact, standing)
        if stands_as_directory(standing):
            await self._take_directory(file, target, aside)
            await store.rename_file(source, target, identity=file.identity)
            return
        able = HARD_LINKS.of(store)
        if able is not None:
            try:
                await able.link_file(target, aside)
            except StoreExistsError:
                # Linked before, by a driver that died or runs beside this one. It must be this very file.
                kept = await store.status(aside)
                if kept.identity != standing.identity:
                    raise
        await store.rename_file(source, target, replace=True, identity=file.identity)

    async def _take_directory(self, file: PlannedFile, target: StorePath, aside: StorePath) -> None:
        """Moves a directory aside, unless a job began to run into it, even after the decision."""
        store = self.context.store
        await self._refuse_job(file, target, target)
        if not store.capabilities.atomic_directory_rename:
            await store.delete_directory(target, recursive=True)
            return
        await store.rename_directory(target, aside)
        await self._refuse_job_aside(file, target, aside)

    async def _refuse_job_aside(self, file: PlannedFile, target: StorePath, aside: StorePath) -> None:
        """Looks again at a directory that was moved: a job may have come to a part that the first look had passed."""
        try:
            await self._refuse_job(file, target, aside)
        except TargetExistsError:
            await self.context.store.rename_directory(aside, target)
            raise

    async def _refuse_job(self, file: PlannedFile, target: StorePath, standing: StorePath) -> None:
        found = await job_inside(self.context.store, standing)
        if found is not None:
            job = target / found.relative_to(standing)
            refusal = self._existing.refusal(file, target, f"a directory that a job runs into (it holds {job})")
            refusal.next_step = end_it_first(job)
            raise refusal

    async def _unknown(
        self,
        file: PlannedFile,
        path: StorePath,
        standing: FileStatus | None,
        error: StoreError | None,
        *,
        gone: bool = True,
    ) -> CommitterError:
        if not gone:
            found = f"{_ROUNDS} renames of it failed one after the other"
        elif standing is None:
            found = "it is at neither its source nor its destination"
        elif file.identity is None or standing.identity is None:
            found = "its source is gone and the store cannot prove that what exists at its destination is it"
        else:
            found = "its source is gone, or not what was committed, and another file exists at its destination"
        end = await end_advice(self.context, forward_only=self._existing.forward_only)
        return OutcomeUnknownError(
            f"cannot tell what happened to {file.destination}: {found}",
            operation=self.name,
            path=path,
            next_step=f"find out who changed it; {self.context.recover_call()} goes on from here, nothing was deleted; "
            f"where it is lost, {end}",
            causes=[error] if error is not None else [],
        )


def _make_ends(layout: JobLayout) -> Callable[[PlannedFile], _Ends]:
    """Returns a function for source and target of a file, without validation: called for every file of a job."""
    tasks, destination = layout.tasks, layout.destination
    scheme, authority = destination.scheme, destination.authority
    above_source = f"{tasks.path}/"
    above_target = "/" if destination.path == "/" else f"{destination.path}/"

    def ends(file: PlannedFile) -> _Ends:
        name = file.destination
        return (
            StorePath(scheme, authority, above_source + file.source),
            StorePath(scheme, authority, name if name[0] == "/" else above_target + name),
        )

    return ends


def _without_stood(files: list[PlannedFile]) -> tuple[list[PlannedFile], list[PlannedFile]]:
    return [file for file in files if file.stood is None], [file for file in files if file.stood is not None]


def _by_directory(files: list[PlannedFile]) -> list[PlannedFile]:
    """Groups files by directory: a store looks at a directory once for all files in it."""
    directories: dict[str, list[PlannedFile]] = {}
    for file in files:
        name = file.destination
        directory = name[: name.rfind("/") + 1]
        some = directories.get(directory)
        if some is None:
            directories[directory] = [file]
        else:
            some.append(file)
    return [file for some in directories.values() for file in some]


def _worth_another_try(error: StoreError) -> bool:
    """Whether another try can help; other errors (permissions, limits) are the user's to solve."""
    return isinstance(
        error,
        StoreOutcomeUnknownError
        | StoreConflictError
        | StoreNotFoundError
        | StoreExistsError
        | StoreNotADirectoryError
        | StoreUnavailableError
        | StoreThrottledError
        | StoreIsADirectoryError,
    )


def _aside_name(destination: str, fact: Fact | None, standing: FileStatus) -> str:
    if fact is not None and fact.identity == standing.identity and fact.is_directory == stands_as_directory(standing):
        return f"{fact.aside:08d}"
    # It came after the decision, so a rollback will not restore it; it is kept until cleanup all the same.
    digest = hashlib.sha256(f"{destination}\0{standing.identity}".encode()).hexdigest()
    return f"late-{digest[:32]}"
