"""Files of a task attempt: the interface, which differs between committers, and files below the attempt's directory."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence

from committer.errors import (
    CommitterError,
    JobNotFoundError,
    JobStateError,
    StoreExistsError,
    StoreNotFoundError,
    TaskError,
    UnsupportedError,
)
from committer.events import names
from committer.file_names import is_reserved
from committer.paths import StorePath
from committer.stages.base import Stage, StageContext, WrittenFile
from committer.stages.state.job_liveness import check_job_is_live
from committer.stores.abilities import LOCAL_PATHS
from committer.stores.base import FileStatus, FileWriter, Store


class AttemptFiles(ABC):
    """The files of one run of a task attempt while they are written; none is visible at the destination.

    What is not abstract suits files whose every byte goes to the store: no program writes one by a local path.
    """

    def __init__(self, context: StageContext) -> None:
        self._context = context

    @abstractmethod
    async def open(self, destination: str, staged: str) -> FileWriter:
        """Creates a file with a unique name `staged`; raises `TaskError` if it was written before."""

    @abstractmethod
    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Returns the record's entry of a closed file; `absolute` is its absolute destination, if any. No call."""

    def kept_at(self, staged: str) -> StorePath | None:
        """Returns the longest path that depends on the name until the job commits, None without one. No call."""
        return None

    def local_directory(self, name: str) -> str:
        """Returns the directory for programs that write by local path, or raises `UnsupportedError`. May create it."""
        raise no_local_paths(self._context.store, name)

    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """Returns programs' files there and directories to create, or raises `TaskError` for links and the like."""
        return [], []

    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Completes the files before the attempt's record is saved; returns them for the record. Repeatable."""
        return files

    async def stop(self) -> None:
        """Stops files that were never closed: nothing is sent any more once this returns."""
        return

    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Returns every upload that was begun and not aborted, by path and id, oldest first; no call."""
        return ()

    async def close(self) -> None:
        """Frees this process's resources for the attempt. Raises nothing; safe to call twice."""
        return


def no_local_paths(store: Store, name: str) -> UnsupportedError:
    """Builds the error of a store whose files have no local paths."""
    return UnsupportedError(
        f"files of a {store.scheme}:// store have no path on this machine",
        operation="work_path",
        path=name,
        next_step="use task.open or task.open_blocking",
    )


class ScanTask(Stage[StorePath, tuple[list[FileStatus], list[StorePath]]]):
    """The stage that lists a task attempt directory with all its subdirectories.

    Only regular files can be committed: a rename would move a link or pipe itself, and a followed link would
    move files that are not the attempt's.

    Preconditions: the task attempt directory exists and no process writes to it any more.
    Postconditions: every file with its status, and every directory below it, empty ones too.
    Failure modes: `TaskError` if anything but files and directories is found.
    Cost: one listing per directory; round trips: depth. (Hadoop lists one after the other.)
    Hadoop: ``TaskAttemptScanDirectoryStage``.
    """

    name = statistic = names.TASK_STAGE_SCAN_DIRECTORY

    async def execute(self, value: StorePath) -> tuple[list[FileStatus], list[StorePath]]:
        """Lists level by level."""
        files: list[FileStatus] = []
        directories: list[StorePath] = []
        level = [value]
        while level:
            below: list[StorePath] = []

            async def look(directory: StorePath, below: list[StorePath] = below) -> None:
                async for child in self.context.store.list(directory):
                    if child.is_link or child.is_special:
                        raise self._refused(child, value)
                    if child.is_directory:
                        below.append(child.path)
                    else:
                        files.append(child)

            try:
                await self.run_workers(level, look)
            except StoreNotFoundError as error:
                if not self.context.store.capabilities.directories:
                    return files, directories
                raise TaskError(
                    "the task attempt directory vanished, or something in it is being deleted",
                    operation=self.name,
                    path=error.path,
                    next_step="run the task again as a new attempt",
                ) from error
            directories.extend(below)
            level = below
        files.sort(key=lambda status: status.path)
        directories.sort()
        return files, directories

    def _refused(self, found: FileStatus, root: StorePath) -> TaskError:
        name = found.path.relative_to(root)
        what = "a symbolic link" if found.is_link else "a pipe, a socket or a device"
        return TaskError(
            f"{name} is {what}: only regular files can be committed",
            operation=self.name,
            path=found.path,
            next_step="copy the file, or make the link outside the task's directory"
            if found.is_link
            else "make it outside the task's directory",
        )


class StagedFiles(AttemptFiles):
    """Files of the task attempt directory; opening one costs a call, and one per new directory."""

    def __init__(self, context: StageContext, directory: StorePath) -> None:
        super().__init__(context)
        self._directory = directory
        self._made: set[str] = {""}
        self._held: int | None = None

    async def open(self, destination: str, staged: str) -> FileWriter:
        """Creates the file, and its directory."""
        await self._make_directory(staged.rpartition("/")[0])
        try:
            return await self._context.store.open_writer(self._directory / staged, durable=self._context.durable)
        except StoreExistsError as error:
            raise TaskError(
                f"{destination} was written into the task attempt directory already",
                operation="open",
                path=destination,
                causes=[error],
                next_step="give each file a name of its own",
            ) from error
        except StoreNotFoundError as error:
            raise await self._gone(destination) from error

    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """Returns the name, size, identity and version."""
        return WrittenFile(staged, status.size, status.identity, absolute=absolute, version=status.version)

    def kept_at(self, staged: str) -> StorePath:
        """Returns the path in the task attempt directory."""
        return self._directory / staged

    def local_directory(self, name: str) -> str:
        """Returns the local path of the task attempt directory, which stays open from now on."""
        path = local_path_of(self._context.store, self._directory, name)
        if self._held is None:
            try:
                # While it is open, no directory that is created in its place can have its inode number.
                self._held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError as error:
                raise attempt_vanished(self._context, "work_path", path) from error
            except OSError:
                # For example with too many open files: then a commit only sees whether a directory exists.
                self._held = None
        return path

    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """Runs `ScanTask` on the task attempt directory."""
        found, made = await ScanTask(self._context).run(self._directory)
        if self._held is not None and not await self._context.runtime.run_blocking(self._is_held):
            raise attempt_aborted("commit_task", self._directory)
        files = [
            WrittenFile(status.path.relative_to(self._directory), status.size, status.identity, synced=False)
            for status in found
        ]
        # Empty reserved directories are left out: libraries create them that take this for a job's directory.
        return files, [name for path in made if not is_reserved(name := path.relative_to(self._directory))]

    async def close(self) -> None:
        """Closes the directory."""
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _is_held(self) -> bool:
        """Whether the directory is the original one: one that a program created after an abort lacks earlier files."""
        if self._held is None:
            return True
        try:
            now = os.stat(local_path_of(self._context.store, self._directory, ""), follow_symlinks=False)
            return os.path.samestat(now, os.fstat(self._held))
        except OSError:
            return False

    async def _make_directory(self, directory: str) -> None:
        """Creates a directory below the attempt's, level by level, never the attempt directory itself."""
        if directory in self._made or not self._context.store.capabilities.refuses_late_writes:
            return
        level = ""
        for segment in directory.split("/"):
            level = f"{level}/{segment}" if level else segment
            if level in self._made:
                continue
            try:
                await self._context.store.make_directory(self._directory / level, parents=False)
            except StoreNotFoundError as error:
                raise await self._gone(level) from error
            self._made.add(level)

    async def _gone(self, name: str) -> JobNotFoundError:
        """Builds the error of a missing task attempt directory, or raises as `check_job_is_live`: one call."""
        await check_job_is_live(self._context, operation="open")
        return attempt_vanished(self._context, "open", name)


def local_path_of(store: Store, directory: StorePath, name: str) -> str:
    """Returns the local path of a task attempt directory, or raises `UnsupportedError`."""
    if not store.capabilities.local_paths:
        raise no_local_paths(store, name)
    return LOCAL_PATHS.required(store, "work_path", name).local_path(directory)


def make_local_directories(context: StageContext, base: str, name: str) -> str:
    """Creates the directories of a file by their local paths and returns the file's path: a system call each."""
    # The attempt directory itself is never created: a job that was cleaned up must not come back.
    *directories, file = name.split("/")
    made = base
    for segment in directories:
        made = os.path.join(made, segment)
        try:
            os.mkdir(made)
        except FileExistsError:
            continue
        except FileNotFoundError as error:
            raise attempt_vanished(context, "work_path", made) from error
        except OSError as error:
            raise TaskError(
                f"{made} could not be made: {error.strerror}",
                operation="work_path",
                path=name,
                causes=[error],
                next_step="give the file another name, or make room on the disk",
            ) from error
    return os.path.join(made, file)


def attempt_aborted(operation: str, directory: StorePath) -> TaskError:
    """Builds the error of an attempt that a driver aborted while it ran."""
    return TaskError(
        "the task attempt directory is gone: the attempt was aborted",
        operation=operation,
        path=directory,
        next_step="run the task again as a new attempt, if its job still runs",
    )


def attempt_vanished(context: StageContext, operation: str, path: str) -> JobNotFoundError:
    """Builds the error of a missing task attempt directory."""
    return JobNotFoundError(
        f"the directory of this task attempt vanished: job {context.layout.job_id} was cleaned up",
        operation=operation,
        path=path,
        next_step="stop this task: its job is over",
    )


async def why_attempt_is_gone(context: StageContext, directory: StorePath, error: StoreNotFoundError) -> CommitterError:
    """Builds the error of a missing file that was being written: its job is over, or its attempt was aborted."""
    # Two calls, for the job and the task attempt directory. Returns `error` if both exist, or cannot be read.
    try:
        await check_job_is_live(context, operation=error.operation)
        if context.store.capabilities.directories:
            await context.store.status(directory)
    except (JobNotFoundError, JobStateError) as reason:
        return reason
    except StoreNotFoundError:
        return attempt_aborted(error.operation, directory)
    except CommitterError:
        return error
    return error
