"""Descriptions of a task attempt's output, passed between its stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from committer.paths import StorePath
from committer.records.pending_uploads import UploadEntry


class AttemptIdentity(NamedTuple):
    """The identity of one run of a task attempt; the random `nonce` is part of every path of the run."""

    task: int
    attempt: int
    nonce: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a task attempt.

    Attributes:
        name: Relative to the task attempt directory.
        identity: From the store, after the file was closed.
        synced: Whether its data survives a power loss already, if that was requested.
        absolute: Its absolute destination path; empty if it has the same name below the destination.
        upload: Its pending upload, if the file does not exist under its name.
        version: The version for the store's preconditions (`FileStatus.version`).
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
        """Published name of the file."""
        return self.absolute or self.name


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """Everything that a task attempt wrote.

    Attributes:
        files: Its files, oldest first.
        directories: Relative directories to create at the destination; parents of files may be left out.
        by_path: Whether programs got the directory's path, so that only the caller knows when they stop writing.
    """

    identity: AttemptIdentity
    directory: StorePath
    files: list[WrittenFile]
    directories: list[str]
    by_path: bool = False


def oldest_first(files: Iterable[WrittenFile], begun: Iterable[tuple[StorePath, str]]) -> list[WrittenFile]:
    """Sorts uploads by their position in `begun`; other files keep their order, that of their closing."""
    # An abort by another process aborts the uploads that exist by then. If the attempt goes on and commits,
    # its oldest upload is among them, and a job commit checks that one (`LoadRecords`).
    order = {upload_id: number for number, (_path, upload_id) in enumerate(begun)}
    return sorted(files, key=lambda file: 0 if file.upload is None else order[file.upload.id])
