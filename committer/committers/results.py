"""What a user gets back: the report of a commit, and the plan of one."""

from __future__ import annotations

import msgspec

from committer.records.statistics import IOStatistics


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended.

    Attributes:
        success: Whether its output is at the destination, all of it.
        job_id: The job's id.
        committer: The committer's name.
        files_committed: Files at the destination because of it.
        bytes_committed: Their bytes.
        directories_created: Directories it made there.
        renames_recovered: Files found in place although the answer to their rename was lost or refused.
        duration_s: Seconds the call took.
        statistics: Counts and durations under Hadoop's names, tasks' and job's together.
        filenames: URIs of at most a hundred of the files.
        uploads_left: Paths of at most a hundred uploads that are still pending at the destination, began since the job
            was set up, and may be anybody's: no list and no name says that they are the job's, so they were left alone.
    """

    success: bool
    job_id: str
    committer: str
    files_committed: int = 0
    bytes_committed: int = 0
    directories_created: int = 0
    renames_recovered: int = 0
    duration_s: float = 0.0
    statistics: IOStatistics = msgspec.field(default_factory=IOStatistics)
    filenames: list[str] = []
    uploads_left: list[str] = []


class CommitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit would do now.

    Attributes:
        files: Files it would publish.
        bytes: Their bytes.
        directories: Directories it would make, relative to the destination.
        conflicts: What would refuse it, one sentence each, at most a hundred.
        replaced: Files and directories that would be replaced or taken away, relative, at most a hundred.
        tasks: Task records it would publish.
        stray: What it would leave alone: records of late tasks, and the like.
    """

    files: int
    bytes: int
    directories: list[str]
    conflicts: list[str]
    replaced: list[str] = []
    tasks: int = 0
    stray: list[str] = []
