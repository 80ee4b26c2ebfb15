"""Places whose jobs have a file committer, and directories as Hadoop's tasks leave them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from committer.committers.file.layout import CommittedLayout
from committer.paths import StorePath
from tests.places import DiskPlace, MemoryPlace, Place

HADOOP_JOB = "job_202611230000_0001"
STEM = "202611230000_0001"


class FileOnDisk(DiskPlace):
    """A disk, with jobs of a file committer."""

    def __init__(self, root: Path, committer: str) -> None:
        super().__init__(root)
        self.committer = committer

    def open_job(self, **arguments: object):
        return super().open_job(**{"committer": self.committer, **arguments})


class FileInMemory(MemoryPlace):
    """A memory space, with jobs of a file committer."""

    def __init__(self, committer: str, profile: str = "local", **flags: bool) -> None:
        super().__init__(profile, **flags)
        self.committer = committer

    def open_job(self, **arguments: object):
        return super().open_job(**{"committer": self.committer, **arguments})


def file_place(kind: str, committer: str, tmp_path: Path) -> Place:
    """The place of a kind, `disk` or a memory profile, with that committer."""
    return FileOnDisk(tmp_path, committer) if kind == "disk" else FileInMemory(committer, kind)


def layout_of(place: Place, job_id: str, job_attempt: int = 0) -> CommittedLayout:
    """Where a job by listing lives."""
    setup = place.layout(job_id).setup_name
    return CommittedLayout(StorePath.of(place.dest), job_id, job_attempt, setup="" if setup == "none" else setup)


def committed_by_hadoop(
    place: Place, task: int, files: Mapping[str, bytes], *, stem: str = STEM, job_attempt: int = 0
) -> None:
    """Leaves a task's directory as ``FileOutputCommitter.commitTask`` does."""
    for name, data in files.items():
        place.write(f"_temporary/{job_attempt}/task_{stem}_m_{task:06d}/{name}", data)


def being_written_by_hadoop(place: Place, task: int, files: Mapping[str, bytes], *, stem: str = STEM) -> None:
    """Leaves a task attempt's directory as it is before its commit."""
    for name, data in files.items():
        place.write(f"_temporary/0/_temporary/attempt_{stem}_m_{task:06d}_0/{name}", data)
