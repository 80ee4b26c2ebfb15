"""An asyncio commit engine for data lakes.

Many tasks write files in parallel; a committer publishes exactly the output of the successful tasks at the
destination, even when tasks and drivers die half way::

    async with committer.open_job("/data/flights") as job:
        async with job.task_attempt(task=0) as task:
            async with task.open("month=1/part-00000.csv") as file:
                await file.write(b"...")

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

# Python's thread pools cannot be imported after the main thread ended; a thread that outlives it needs them.
import concurrent.futures.thread  # noqa: F401
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from committer import errors as errors
    from committer import spark as spark
    from committer import sync as sync
    from committer.api.cleanup import cleanup
    from committer.api.job import Job
    from committer.api.job_opening import attach_job, open_job
    from committer.api.list_jobs import JobInfo, list_jobs
    from committer.api.load_record import load_record
    from committer.api.publishing import publish_chunk
    from committer.api.recover import recover, settle
    from committer.api.task import TaskAttempt, open_task
    from committer.api.uploads import UploadInfo, abort_uploads, list_uploads
    from committer.api.validate import ValidationReport, Winners, list_winners, validate
    from committer.committers.results import CommitPlan, JobReport, committed_files
    from committer.errors import CommitterError
    from committer.options.config import CommitterConfig
    from committer.paths import StorePath
    from committer.records.file_list import CommittedFile
    from committer.records.task_commit import TaskCommit
    from committer.spec import JobSpec

__version__ = "0.1.0"

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
    "Winners",
    "__version__",
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

_HOMES = {
    "committer.api.cleanup": ("cleanup",),
    "committer.api.job": ("Job",),
    "committer.api.job_opening": ("attach_job", "open_job"),
    "committer.api.list_jobs": ("JobInfo", "list_jobs"),
    "committer.api.load_record": ("load_record",),
    "committer.api.publishing": ("publish_chunk",),
    "committer.api.recover": ("recover", "settle"),
    "committer.api.task": ("TaskAttempt", "open_task"),
    "committer.api.uploads": ("UploadInfo", "abort_uploads", "list_uploads"),
    "committer.api.validate": ("ValidationReport", "Winners", "list_winners", "validate"),
    "committer.committers.results": ("CommitPlan", "JobReport", "committed_files"),
    "committer.errors": ("CommitterError",),
    "committer.options.config": ("CommitterConfig",),
    "committer.paths": ("StorePath",),
    "committer.records.file_list": ("CommittedFile",),
    "committer.records.task_commit": ("TaskCommit",),
    "committer.spec": ("JobSpec",),
}
"""The public names by the modules that define them."""

_MODULES = ("errors", "spark", "sync")


if not TYPE_CHECKING:  # a type checker must see the names above and no others

    def __getattr__(name: str) -> object:
        if name in _MODULES:  # attributes too, so that `import committer` is all a user needs
            return import_module(f"committer.{name}")
        home = next((module for module, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
