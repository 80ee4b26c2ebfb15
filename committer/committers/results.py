"""Results of a commit: the report, the committed files, the plan."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

import msgspec

from committer.committers.opened_store import open_store
from committer.errors import ConfigurationError, RecordError, TaskMissingError
from committer.events import names
from committer.paths import StorePath
from committer.readable import Shown, count
from committer.records.file_list import CommittedFile
from committer.records.statistics import IOStatistics
from committer.stages.finish.file_list import read_parts


class JobReport(Shown, frozen=True, kw_only=True):
    """Report of a job that ended.

    Attributes:
        success: Whether all of its output is at the destination.
        files_committed: Number of files that the job published.
        bytes_committed: Their bytes.
        directories_created: Number of directories that it created at the destination.
        renames_recovered: Files found in place although the response to their rename was lost or an error.
        duration_s: Seconds the call took.
        statistics: Counts and durations under Hadoop's names, of tasks and job together.
        filenames: URIs of at most a hundred of the files; of all of them with `stocator`.
        uploads_left: Paths of at most a hundred pending uploads at the destination that began since the job was set
            up, and that no list or name assigns to it: they were left alone, since they may be another job's.
        file_list: URI of the complete list of its files, which `files` reads; empty if none was asked for
            (`CommitterConfig.file_list_directory`), or none could be written.
        file_list_problem: Why the list that was asked for could not be written. The job is committed all the same.
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
    filenames: list[str] = msgspec.field(default_factory=list)
    uploads_left: list[str] = msgspec.field(default_factory=list)
    file_list: str = ""
    file_list_problem: str = ""

    def files(self, *, storage_options: Mapping[str, object] | None = None) -> AsyncIterator[CommittedFile]:
        """Yields every committed file: ``async for file in report.files(): ...``; see `committed_files`."""
        return committed_files(self, storage_options=storage_options)


def refuse_other_tasks(
    report: JobReport, destination: StorePath | str, asked: int | None, *, other_attempts: bool = False
) -> None:
    """Refuses a commit of a committed job that asks for other tasks than the job has; no store call."""
    # The report of a job that Java committed may not tell.
    committed = report.statistics.counters.get(names.COMMITTER_TASKS_COMPLETED)
    if not other_attempts and (None in (asked, committed) or asked == committed):
        return
    known = "" if committed is None else f", with {count(committed, 'task')}"
    raise TaskMissingError(
        f"job {report.job_id} is committed{known}; this commit asks for {asked}, or for other tasks",
        operation="commit_job",
        path=destination,
        outcome="committed",
        next_step="run the missing tasks as a new job",
    )


class CommitPlan(Shown, frozen=True, kw_only=True):
    """Plan of a commit: its files, directories and conflicts now.

    Attributes:
        files: Number of files that it would publish.
        bytes: Their bytes.
        directories: Directories it would create, relative to the destination.
        conflicts: Reasons to refuse the commit, one sentence each, at most a hundred.
        replaced: Files and directories that it would replace or remove, relative, at most a hundred.
        tasks: Number of task records that it would publish.
        stray: Records that it would ignore, such as those of late tasks; at most a hundred.
    """

    files: int
    bytes: int
    directories: list[str]
    conflicts: list[str]
    replaced: list[str] = msgspec.field(default_factory=list)
    tasks: int = 0
    stray: list[str] = msgspec.field(default_factory=list)


async def committed_files(
    report: JobReport, *, storage_options: Mapping[str, object] | None = None
) -> AsyncIterator[CommittedFile]:
    """Yields every committed file from the complete list: ``async for file in committed_files(report): ...``.

    100,000 files are in memory at a time; each such part costs one call. `JobReport.files` is the same.

    Raises:
        ConfigurationError: No list was written, see `JobReport.file_list_problem`; or pyarrow is missing for Parquet.
        StoreNotFoundError: The list is gone.
        RecordError: It is damaged, or its totals differ from what was committed.
    """
    async with aclosing(committed_parts(report, storage_options)) as parts:
        async for part in parts:
            for file in part:
                yield file


async def committed_parts(
    report: JobReport, storage_options: Mapping[str, object] | None
) -> AsyncGenerator[list[CommittedFile], None]:
    """Yields the files of `committed_files`, one part of the list at a time."""
    if not report.file_list:
        problem = f": {report.file_list_problem}" if report.file_list_problem else ""
        raise ConfigurationError(
            f"no complete list of what job {report.job_id} committed was kept{problem}",
            operation="committed_files",
            next_step="give the next job config=CommitterConfig(file_list_directory=...)",
        )
    first = StorePath.from_uri(report.file_list)
    files = size = 0
    async with open_store(first, storage_options) as store:
        async for part in read_parts(store, first, CommittedFile):
            files += len(part)
            size += sum(file.size for file in part)
            yield part
    if (files, size) != (report.files_committed, report.bytes_committed):
        raise RecordError(
            f"the list names {files} files of {size} bytes, {report.files_committed} of {report.bytes_committed} bytes "
            "were committed",
            path=first,
        )
