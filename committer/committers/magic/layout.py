"""Where S3A's magic committer keeps what tasks tell by listing: among the output, in a directory of the job's own.

Below the destination D of job J, attempt N, beside what every committer has (`committer.layout`)::

    D/__magic_job-J/job-J/NN/<task>.pendingset                     records under the task's name
    D/__magic_job-J/job-J/NN/tasks/<attempt>/__base/<nonce>/…      what waits of a task attempt, until it commits
    D/__magic_job-J/job-J/NN/uploads/<attempt>-<nonce>/            which uploads it began

By message only tasks that write by S3A itself (Spark's own writers) leave anything there, below
``tasks/<attempt>-<nonce>/__base/``.

Source of the names: ``MagicCommitPaths``, ``CommitUtilsWithMR`` (since HADOOP-18797, Hadoop 3.4.0).
"""

from __future__ import annotations

from typing import ClassVar

from committer.file_names import MAGIC_JOB
from committer.layout import JobLayout
from committer.paths import StorePath
from committer.records.pending_set import PENDING_SET_SUFFIX


class MagicLayout(JobLayout):
    """The paths of a job by listing whose task records are Hadoop's pending sets."""

    beside_prefix: ClassVar[str] = MAGIC_JOB
    record_suffix: ClassVar[str] = PENDING_SET_SUFFIX
    record_kind: ClassVar[str] = "pending set"

    def _place_records(self) -> tuple[StorePath, StorePath]:
        # Hadoop's cleanup of the job deletes all that lies there, lists of uploads too.
        attempt = attempt_directory(self)
        return attempt, attempt / "uploads"

    def record_name(self, path: StorePath) -> str:
        """Of a pending set its bare name."""
        return path.name if path.parent == self.manifests else super().record_name(path)

    def record_path(self, name: str) -> StorePath:
        """Where the record of that name is."""
        return self.manifests / name if name.endswith(PENDING_SET_SUFFIX) else super().record_path(name)


def attempts_directory(layout: JobLayout) -> StorePath:
    """The directory of a job's attempts."""
    return layout.destination / f"{MAGIC_JOB}{layout.unique_id}" / f"job-{layout.unique_id}"


def attempt_directory(layout: JobLayout) -> StorePath:
    """The directory of the job attempt."""
    return attempts_directory(layout) / f"{layout.job_attempt:02d}"


def task_attempt_directory(layout: JobLayout, attempt_id: str) -> StorePath:
    """Where all runs of a task attempt say which of their files wait, until it commits.

    Hadoop's task commit and abort read and delete all below `__base` in it, by the attempt's id alone.
    """
    return attempt_directory(layout) / "tasks" / attempt_id


def run_directory(layout: JobLayout, attempt_id: str, nonce: str) -> StorePath:
    """Where one run of it does."""
    return task_attempt_directory(layout, attempt_id) / "__base" / nonce
