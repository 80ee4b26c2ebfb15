"""ScanTask: finds the files that were written into a task attempt directory by path."""

from __future__ import annotations

from committer.errors import StoreNotFoundError, TaskError
from committer.events import names
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import Stage
from committer.stores.base import FileStatus


class ScanTask(Stage[StorePath, tuple[list[FileStatus], list[StorePath]]]):
    """Lists a task attempt directory with all its subdirectories, many at once.

    Only regular files can be committed. A rename would move a link or pipe itself, never what is behind it; following a
    link would move files that are not the attempt's.

    Preconditions: the task attempt directory stands and no process writes to it any more.
    Postconditions: every file with its status, and every directory below it, empty ones too.
    Failure modes: `TaskError` when something else than files and directories is found.
    Cost: one listing a directory; dependent round trips = depth. (Hadoop lists one after the other.)
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
                await run_workers(level, look, workers=self.context.config.io_concurrency, operation=self.name)
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
