"""Whether what stands somewhere is the very file that a record or a decision speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from committer.records.job_state import Fact
from committer.stores.base import Capabilities, FileStatus

if TYPE_CHECKING:
    from committer.stages.load.planned_files import PlannedFile


def is_file_of(status: FileStatus | None, file: PlannedFile) -> bool:
    """Whether this is proved to be a committed file."""
    if status is None or (status.identity is None and not file.stamp):
        return False
    return may_be_file_of(status, file, proved=True)


def may_be_file_of(status: FileStatus, file: PlannedFile, *, proved: bool = False) -> bool:
    """Whether this is a committed file as far as the store can say, or (with `proved`) beyond doubt."""
    if not is_regular(status) or status.size != file.size:
        return False
    if file.upload is not None and file.stamp:
        return status.stamp == file.stamp
    if file.identity is None or status.identity is None:
        return not proved
    return status.identity == file.identity


def is_recorded(status: FileStatus, fact: Fact) -> bool:
    """Whether this is what the decision says stood there."""
    if stands_as_directory(status) or fact.is_directory:
        return stands_as_directory(status) and fact.is_directory
    return status.identity == fact.identity and status.size == fact.size


def stood_there(file: PlannedFile, stood: Fact | None) -> bool:
    """Whether the file that was committed is the one that stood at its destination before: a hard link of it.

    Publishing such a file changed nothing at its destination, so there is nothing to take back.
    """
    return (
        stood is not None and not stood.is_directory and file.identity is not None and stood.identity == file.identity
    )


def is_regular(status: FileStatus) -> bool:
    """Whether it is a file: no directory, link, pipe, socket or device."""
    return not (status.is_directory or status.is_link or status.is_special)


def stands_as_directory(status: FileStatus) -> bool:
    """Whether a directory itself is there. A link to one is moved, replaced and deleted like a file."""
    return status.is_directory and not status.is_link


def is_virtual_directory(status: FileStatus, capabilities: Capabilities) -> bool:
    """Whether it is a directory that is nothing but the files below it: a file of its name can stand beside it."""
    return status.is_directory and not capabilities.directories


def as_entry(status: FileStatus) -> FileStatus:
    """What has to make room: of a link that leads to a directory the link, which counts as a file."""
    return msgspec.structs.replace(status, is_directory=False) if status.is_link else status
