"""The names of `committer`, blocking: for scripts, notebooks, threads, and libraries without an event loop.

    from committer import sync

    with sync.open_job("/data/flights") as job:
        with job.task_attempt(task=0) as task:
            with task.open("month=1/part-00000.csv") as file:
                file.write(b"...")

Each function that opens something returns it open, like the builtin `open`; ``with`` closes it. All calls of a
process run on one event loop in a thread of its own. The thread starts with the first call and ends with the
interpreter. So the calls work inside a running loop, from any number of threads, and after a fork. The caller's
context variables hold in them (`use_runtime`, `audit`), and errors are raised as they are.

An interrupt (KeyboardInterrupt, or what a signal handler raises) cancels the call, waits until it has unwound, 75
seconds at most and no longer than until the next interrupt, and is raised again. A commit that had decided stays
decided.

Nothing is decided at interpreter exit: `list_jobs` shows a job that was left open. Exit handlers come too late for
new calls, which raise `CommitterError` there; `Job.close` does nothing then, because everything is freed anyway.
"""

from __future__ import annotations

from committer.committers.results import CommitPlan, JobReport
from committer.config import CommitterConfig
from committer.errors import CommitterError
from committer.operations import JobInfo
from committer.paths import StorePath
from committer.reading import Winners
from committer.records.file_list import CommittedFile
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.sync.jobs import Job, attach_job, open_job
from committer.sync.operations import (
    abort_uploads,
    cleanup,
    committed_files,
    list_jobs,
    list_uploads,
    list_winners,
    load_record,
    recover,
    settle,
    validate,
)
from committer.sync.publishing import ExecutorPool, publish_chunk
from committer.sync.tasks import TaskAttempt, open_task
from committer.uploads import UploadInfo
from committer.validation import ValidationReport

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


def __dir__() -> list[str]:
    return sorted(__all__)
