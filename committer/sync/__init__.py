"""The names of `committer`, blocking: for scripts, notebooks, threads, and libraries without an event loop.

    from committer import sync

    with sync.open_job("/data/flights") as job:
        with job.task_attempt(task=0) as task:
            with task.open("month=1/part-00000.csv") as file:
                file.write(b"...")

Like the builtin `open`, each function that opens something returns it open: ``with`` is there for its end. All calls of
a process run on one event loop in a thread of its own, which starts with the first call and ends with the interpreter;
so they work inside a running loop, from any number of threads, and after a fork. The caller's context variables hold in
them (`use_runtime`, `audit`), errors come through as they are.

An interrupt (KeyboardInterrupt, or what a signal handler raises) cancels what was called, waits until it has unwound,
75 seconds at most and no longer than the next interrupt, and goes on. A commit that had decided stays decided.

Nothing is decided at interpreter exit: a job that was left open is seen by `list_jobs`. Exit handlers come too late for
new calls, which raise `CommitterError` there; `Job.close` does nothing then, for all is freed anyway.
"""

from __future__ import annotations

from committer.committers.results import CommitPlan, JobReport
from committer.config import CommitterConfig
from committer.errors import CommitterError
from committer.operations import JobInfo
from committer.paths import StorePath
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
    load_record,
    recover,
    validate,
)
from committer.sync.tasks import TaskAttempt, open_task
from committer.uploads import UploadInfo
from committer.validation import ValidationReport

__all__ = [
    "CommitPlan",
    "CommittedFile",
    "CommitterConfig",
    "CommitterError",
    "Job",
    "JobInfo",
    "JobReport",
    "JobSpec",
    "StorePath",
    "TaskAttempt",
    "TaskCommit",
    "UploadInfo",
    "ValidationReport",
    "abort_uploads",
    "attach_job",
    "cleanup",
    "committed_files",
    "list_jobs",
    "list_uploads",
    "load_record",
    "open_job",
    "open_task",
    "recover",
    "validate",
]
