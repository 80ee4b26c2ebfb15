"""The interface for the files of a task attempt, which differs between committers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from committer.errors import UnsupportedError
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.task_output import WrittenFile
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
