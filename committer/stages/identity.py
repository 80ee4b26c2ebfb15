"""Tests whether an existing file is the one that a record or a decision names."""

from __future__ import annotations

import msgspec

from committer.records.job_state import Fact
from committer.records.publish_chunk import PlannedFile
from committer.stores.base import Capabilities, FileStatus


def is_file_of(status: FileStatus | None, file: PlannedFile) -> bool:
    """Whether the status is provably that of a committed file."""
    if status is None or (status.identity is None and not file.stamp):
        return False
    return may_be_file_of(status, file, proved=True)


def may_be_file_of(status: FileStatus, file: PlannedFile, *, proved: bool = False) -> bool:
    """Whether the status can be that of a committed file as far as the store shows; with `proved`, beyond doubt."""
    if not is_regular(status) or status.size != file.size:
        return False
    if file.upload is not None and file.stamp:
        return status.stamp == file.stamp
    if file.identity is None or status.identity is None:
        return not proved
    return status.identity == file.identity


def is_recorded(status: FileStatus, fact: Fact) -> bool:
    """Whether the status matches what the decision recorded at that path."""
    if stands_as_directory(status) or fact.is_directory:
        return stands_as_directory(status) and fact.is_directory
    return status.identity == fact.identity and status.size == fact.size


def stood_there(file: PlannedFile) -> bool:
    """Whether the committed file is a hard link of the old file at its destination: publishing it changes nothing."""
    stood = file.stood
    return (
        stood is not None and not stood.is_directory and file.identity is not None and stood.identity == file.identity
    )


def is_regular(status: FileStatus) -> bool:
    """Whether an entry is a file: no directory, link, pipe, socket or device."""
    return not (status.is_directory or status.is_link or status.is_special)


def stands_as_directory(status: FileStatus) -> bool:
    """Whether an entry is a directory itself. A link to one is moved, replaced and deleted like a file."""
    return status.is_directory and not status.is_link


def is_virtual_directory(status: FileStatus, capabilities: Capabilities) -> bool:
    """Whether an entry is a directory that exists only through files below; a file of its name can exist beside."""
    return status.is_directory and not capabilities.directories


def as_entry(status: FileStatus) -> FileStatus:
    """Returns the status to move aside: a link to a directory counts as a file."""
    return msgspec.structs.replace(status, is_directory=False) if status.is_link else status
