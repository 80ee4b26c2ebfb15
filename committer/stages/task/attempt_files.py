"""Where one run of a task attempt writes its files: what differs between committers on the tasks' side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from committer.errors import UnsupportedError
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.task_output import WrittenFile
from committer.stores.base import FileStatus, FileWriter, Store


class AttemptFiles(ABC):
    """The files of one run of a task attempt, while they are written. None of them can be seen at the destination."""

    @abstractmethod
    async def open(self, destination: str, staged: str) -> FileWriter:
        """Begins a file.

        Args:
            destination: Where it will stand: relative to the job's destination, or an absolute path.
            staged: Its name within the attempt, which no other file of it has.

        Raises:
            TaskError: It was written before.
            JobNotFoundError: The job was cleaned up.
        """

    @abstractmethod
    def written(self, staged: str, status: FileStatus, *, absolute: str) -> WrittenFile:
        """What the attempt's record says of a file whose writer was closed; no call.

        Args:
            staged: As for `open`.
            status: What closing the writer returned.
            absolute: The absolute path it goes to; empty where it goes below the destination.
        """

    @abstractmethod
    def kept_at(self, staged: str) -> StorePath | None:
        """The longest path that a file, or what tells of it, has until its job commits; None where it has none whose
        length depends on its name. No call.
        """

    @abstractmethod
    def local_directory(self, name: str) -> str:
        """The directory of this machine that any program can write files of the attempt to. It may be made: a system
        call or two.

        Args:
            name: The file it is asked for, for errors.

        Raises:
            UnsupportedError: There is none.
        """

    @abstractmethod
    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """What programs wrote there: the files, and the directories to have at the destination.

        Files that were opened by `open` may be among them.

        Raises:
            TaskError: Something there cannot be committed.
        """

    @abstractmethod
    async def settle(self, files: Sequence[WrittenFile]) -> Sequence[WrittenFile]:
        """Does what is left to do with the files of an attempt before its record is saved.

        May run again, after a commit that failed.

        Returns:
            The same files, as the record names them.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Ends what is under way of files that were never closed: nothing is sent any more once this returns."""

    @abstractmethod
    def uploads(self) -> Sequence[tuple[StorePath, str]]:
        """Every upload that was begun and not aborted since, by path and id, the oldest first; no call."""

    @abstractmethod
    async def close(self) -> None:
        """Frees what this process keeps for the attempt, which is over here. Raises nothing; safe to call twice."""


class FilesInStore(AttemptFiles):
    """Files whose every byte goes to the store: no program writes one by a path of this machine.

    Args:
        context: The job, with the attempt's own statistics.
    """

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def local_directory(self, name: str) -> str:
        """There is none.

        Raises:
            UnsupportedError: Always.
        """
        raise no_local_paths(self._context.store, name)

    async def scan(self) -> tuple[list[WrittenFile], list[str]]:
        """Nothing: no program wrote anything by a path."""
        return [], []

    async def close(self) -> None:
        """Nothing: all is in the store."""


def no_local_paths(store: Store, name: str) -> UnsupportedError:
    """What to raise where no program of this machine can write files of an attempt by their paths."""
    return UnsupportedError(
        f"files of a {store.scheme}:// store have no path on this machine",
        operation="work_path",
        path=name,
        next_step="use task.open or task.open_blocking",
    )
