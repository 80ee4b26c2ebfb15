"""The names of `committer`, blocking: for scripts, notebooks, threads, and libraries without an event loop.

    from committer import sync

    with sync.open_job("/data/flights") as job:
        with job.task_attempt(task=0) as task:
            with task.open("month=1/part-00000.csv") as file:
                file.write(b"...")

Each function that opens something returns it open, like the builtin `open`; ``with`` closes it. All calls of a
process run on one event loop in a thread of its own, from the first call to the end of the interpreter. So they
work inside a running loop, from any number of threads, and after a fork. The caller's context variables hold in
them (`use_runtime`, `audit`), and errors are raised unchanged.

An interrupt (KeyboardInterrupt, or what a signal handler raises) cancels the call, waits until it has unwound,
at most 75 seconds or until the next interrupt, and is raised again. A decided commit stays decided.

At interpreter exit nothing is decided: `list_jobs` shows a job that was left open. In exit handlers new calls
raise `CommitterError`; `Job.close` does nothing, because everything is freed anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

import committer as engine
from committer import advice
from committer.api.list_jobs import JobInfo
from committer.api.uploads import UploadInfo
from committer.api.validate import ValidationReport, Winners
from committer.committers import results
from committer.committers.results import CommitPlan, JobReport
from committer.errors import CommitterError
from committer.flow.portal import wait_for
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.file_list import CommittedFile
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.sync.blocking import blocking, like
from committer.sync.jobs import Job, TaskAttempt
from committer.sync.publishing import ExecutorPool, publish_chunk

__all__ = [
    "CommitPlan",
    "CommittedFile",
    "CommitterConfig",
    "CommitterError",
    "ExecutorPool",
    "Job",
    "JobInfo",
    "JobReport",
    "JobSpec",
    "StorePath",
    "TaskAttempt",
    "TaskCommit",
    "UploadInfo",
    "ValidationReport",
    "Winners",
    "abort_uploads",
    "attach_job",
    "cleanup",
    "committed_files",
    "list_jobs",
    "list_uploads",
    "list_winners",
    "load_record",
    "open_job",
    "open_task",
    "publish_chunk",
    "recover",
    "settle",
    "validate",
]


def _advised(jobs: list[JobInfo]) -> list[JobInfo]:
    return [msgspec.structs.replace(job, problem=advice.blocking(job.problem)) for job in jobs]


abort_uploads: Final = blocking(engine.abort_uploads)
attach_job: Final = blocking(engine.attach_job, Job)
cleanup: Final = blocking(engine.cleanup)
list_jobs: Final = blocking(engine.list_jobs, _advised)
list_uploads: Final = blocking(engine.list_uploads)
list_winners: Final = blocking(engine.list_winners)
load_record: Final = blocking(engine.load_record)
open_job: Final = blocking(engine.open_job, Job)
open_task: Final = blocking(engine.open_task, TaskAttempt)
recover: Final = blocking(engine.recover)
settle: Final = blocking(engine.settle)
validate: Final = blocking(engine.validate)


@like(results.committed_files)
def committed_files(
    report: JobReport, *, storage_options: Mapping[str, object] | None = None
) -> Iterator[CommittedFile]:
    parts = results.committed_parts(report, storage_options)

    async def next_part() -> list[CommittedFile] | None:
        return await anext(parts, None)

    try:
        while (part := wait_for(next_part, "committed_files")) is not None:
            yield from part
    finally:
        wait_for(parts.aclose, "committed_files")


def __dir__() -> list[str]:
    return sorted(__all__)
