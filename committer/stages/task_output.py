"""What a task attempt wrote, as its stages hand it on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry


@dataclass(frozen=True, slots=True)
class AttemptIdentity:
    """Which run of which task attempt.

    Attributes:
        task: The task's number.
        attempt: The attempt's number.
        nonce: Random; part of every path of this run.
    """

    task: int
    attempt: int
    nonce: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a task attempt.

    Attributes:
        name: Relative to the task attempt directory.
        size: Bytes.
        identity: As the store gave it once the file was closed.
        synced: Whether its data survives a power loss already, where that was asked for.
        absolute: The absolute path it goes to; empty where it goes to the same name below the destination.
        upload: The upload it waits in, where nothing stands under its name.
        version: What the store's conditions know it by (`FileStatus.version`).
    """

    name: str
    size: int
    identity: str | None
    synced: bool = True
    absolute: str = ""
    upload: UploadEntry | None = None
    version: str | None = None

    @property
    def destination(self) -> str:
        """The name it is published under."""
        return self.absolute or self.name


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """Everything a task attempt wrote.

    Attributes:
        identity: Which run of which attempt.
        directory: The task attempt directory.
        files: Its files, the oldest first.
        directories: Directories to have at the destination, relative; parents of files need not be named.
        by_path: Whether programs were given the path of the directory, so that only the caller knows that they write
            no more.
    """

    identity: AttemptIdentity
    directory: StorePath
    files: list[WrittenFile]
    directories: list[str]
    by_path: bool = False


def oldest_first(files: Iterable[WrittenFile], begun: Iterable[tuple[StorePath, str]]) -> list[WrittenFile]:
    """Uploads in the order in which they were begun, other files in the one they come in: that of their closing.

    An abort from elsewhere takes what the attempt has by then. If it takes anything that an attempt which goes on
    commits, it takes the oldest, which a job commit looks at (`LoadRecords`).

    Args:
        files: What was written.
        begun: Every upload of the attempt, by path and id, the oldest first.
    """
    order = {upload_id: number for number, (_path, upload_id) in enumerate(begun)}
    return sorted(files, key=lambda file: 0 if file.upload is None else order[file.upload.id])
