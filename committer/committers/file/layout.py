"""Paths of Hadoop's FileOutputCommitter, which keeps the task output of all jobs of a destination in one directory.

Below the destination D of job J, application attempt N, beside what every committer has (`committer.layout`)::

    D/_temporary/N/<task>/…                             output that a task committed (algorithm 1)
    D/_temporary/N/_temporary/<attempt>-<nonce>/…       output of a running task attempt (Hadoop's has no nonce)
    D/_temporary/N/_temporary/<task>-<nonce>/…          output that a later commit of the task replaced
    D/_temporary/J~S/NN/attempts/                       records of what each attempt of this engine commits or moves
    D/_temporary/J~S/work/tasks/<task>/…                a task's directory, after a job commit took it
    D/_temporary/J~S/work/returning/<task>/…            the same, while a refused job commit gives it back

Hadoop's driver reads only the directories of D/_temporary/N except `_temporary`. So it commits what tasks of this
engine left, unless a driver of this engine took it. Source of the names: ``FileOutputCommitter``.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Final

from committer.errors import ConfigurationError
from committer.layout import TEMPORARY, JobLayout
from committer.paths import StorePath

_MERGING: Final = "merging-"


class FileLayout(JobLayout):
    """Paths of a job whose task attempts write to `application_attempt`, the directory of all its jobs."""

    def _place_own(self) -> None:
        if self.job_id.isdecimal():
            raise ConfigurationError(
                f"job id {self.job_id}: FileOutputCommitter keeps all jobs of an application attempt in a directory of "
                "that name",
                operation="open_job",
                path=self.job_directory,
                next_step="choose an id that is no number, such as 'nightly-2026-01-31'",
            )
        self.application_attempt: StorePath = self.temporary / str(self.job_attempt)
        self.runs: StorePath = self.application_attempt / TEMPORARY
        self.shared: tuple[StorePath, ...] = (self.runs, self.application_attempt)

    def records_of(self, *, by_listing: bool) -> tuple[StorePath, ...]:
        """Returns the directories that hold records of tasks and attempts."""
        return (self.manifests, self.attempts) if by_listing else (self.attempts,)

    def merging(self, task: int, attempt: int, nonce: str) -> StorePath:
        """Returns the path of the record of files that a run is about to move to the destination."""
        return self.attempts / f"{_MERGING}{self.task_attempt_id(task, attempt)}-{nonce}.json"

    def is_merging(self, name: str, task: int) -> bool:
        """Returns whether a name is that of such a record, of an attempt of the task."""
        return name.startswith(f"{_MERGING}{self.attempt_stem}{task:06d}_")

    @property
    def tracker(self) -> str:
        """Prefix of all task names of an application; empty unless the job's id has MapReduce's form."""
        application, number = self.task_stem.removesuffix("_m_").rpartition("_")[::2]
        return f"{application}_" if self.job_id == f"job_{application.removeprefix('task_')}_{number}" else ""

    @property
    def task_stem(self) -> str:
        """Prefix of the job's task names, before the task's number."""
        return self.task_id(0).removesuffix("000000")

    @property
    def attempt_stem(self) -> str:
        """Prefix of the job's task attempt names, before the task's number."""
        return self.task_attempt_id(0, 0).removesuffix("000000_0")

    def is_task(self, name: str) -> bool:
        """Returns whether a name is that of one of the job's tasks."""
        number = name.removeprefix(self.task_stem)
        return number != name and number.isdecimal()

    def replaced(self, task_name: str, token: str) -> StorePath:
        """Returns the path to which a replaced task directory moves. Hadoop's drivers ignore it."""
        return self.runs / f"{task_name}-{token}"

    def task_replaced(self, name: str) -> str | None:
        """Returns the task of a replaced directory in `runs`; None for another name."""
        task, hyphen, token = name.rpartition("-")
        return task if hyphen and token and self.is_task(task) else None


class CommittedLayout(FileLayout):
    """Paths of a job by listing whose task records are the directories of its tasks (algorithm 1)."""

    record_suffix: ClassVar[str] = ""
    record_kind: ClassVar[str] = "task directory"

    def _place_own(self) -> None:
        super()._place_own()
        # A job commit moves the directories out of the tasks' reach, and publishes from there: so a driver that
        # outlived its job takes nothing from a later job of the same id.
        self.tasks: StorePath = self.work / "tasks"
        self.returning: StorePath = self.work / "returning"

    def _place_records(self) -> tuple[StorePath, StorePath]:
        return self.temporary / str(self.job_attempt), self.job_attempt_directory / "uploads"

    @property
    def is_out_of_reach(self) -> bool:
        """Always true: task attempts write elsewhere."""
        return True

    @property
    def of_attempts(self) -> frozenset[str]:
        """Names of the directories inside a job attempt's directory, and in `work`."""
        return super().of_attempts | {self.returning.name}

    def earlier(self) -> StorePath | None:
        """Returns where tasks of the previous application attempt committed; None in the first."""
        return self.temporary / str(self.job_attempt - 1) if self.job_attempt else None

    def is_record(self, name: str) -> bool:
        """Returns whether a name is that of one of the job's tasks."""
        return self.is_task(name)

    def record_name(self, path: StorePath) -> str:
        """Returns a record's name: the bare name for a directory that no job commit took."""
        return path.name if path.parent == self.manifests else super().record_name(path)

    def record_path(self, name: str) -> StorePath:
        """Returns the path of a record."""
        return self.manifests / name if self.is_record(name) else super().record_path(name)

    def is_directory_of_task(self, path: StorePath) -> bool:
        """Returns whether a path is that of a task's directory, before or after a job commit takes it."""
        return path.parent in (self.manifests, self.tasks) and self.is_record(path.name)

    def of_no_task(self) -> CommittedLayout:
        """Returns the layout for a read-only process of a job without committed tasks: it lists an unused directory."""
        layout = copy.copy(self)
        layout.manifests = self.job_attempt_directory
        return layout
