"""Where Hadoop's FileOutputCommitter keeps what tasks write and commit: one directory for all jobs of a destination.

Below the destination D of job J, application attempt N, beside what every committer has (`committer.layout`)::

    D/_temporary/N/<task>/…                                 what a task committed (algorithm 1)
    D/_temporary/N/_temporary/<attempt>-<nonce>/…           what a task attempt writes (Hadoop's has no nonce)
    D/_temporary/N/_temporary/<task>-<nonce>/…              what a later commit of the task replaced
    D/_temporary/J~S/NN/attempts/                           what each attempt of this engine committed, or merges
    D/_temporary/J~S/work/tasks/<task>/…                    a task's directory, once a job commit took it
    D/_temporary/J~S/work/returning/<task>/…                the same, while a refused job commit gives it back

Hadoop's driver reads the directories of D/_temporary/N, all but `_temporary`, and nothing else. So it commits what
tasks of this engine left, as long as no driver of this engine began to.

Source of the names: ``FileOutputCommitter``.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Final

from committer.errors import ConfigurationError
from committer.layout import TEMPORARY, JobLayout
from committer.paths import StorePath

_MERGING: Final = "merging-"


class FileLayout(JobLayout):
    """The paths of a job whose task attempts write where FileOutputCommitter's do.

    Attributes:
        application_attempt: The directory of all jobs of an application attempt.

    Raises:
        ConfigurationError: The job's id is a number: its directory would be that of an application attempt.
    """

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
        """Where what tasks commit is told, and where attempts say what they do."""
        return (self.manifests, self.attempts) if by_listing else (self.attempts,)

    def merging(self, task: int, attempt: int, nonce: str) -> StorePath:
        """What one run of a task attempt moves to the destination, told before it does."""
        return self.attempts / f"{_MERGING}{self.task_attempt_id(task, attempt)}-{nonce}.json"

    def is_merging(self, name: str, task: int) -> bool:
        """Whether a record of that name is such a one, of an attempt of that task."""
        return name.startswith(f"{_MERGING}{self.attempt_stem}{task:06d}_")

    @property
    def tracker(self) -> str:
        """What the names of all tasks of an application begin with, where the job's id is of MapReduce's form."""
        application, number = self.task_stem.removesuffix("_m_").rpartition("_")[::2]
        return f"{application}_" if self.job_id == f"job_{application.removeprefix('task_')}_{number}" else ""

    @property
    def task_stem(self) -> str:
        """What the name of each task of the job begins with, before its number."""
        return self.task_id(0).removesuffix("000000")

    @property
    def attempt_stem(self) -> str:
        """What the name of each task attempt of the job begins with, before its task's number."""
        return self.task_attempt_id(0, 0).removesuffix("000000_0")

    def is_task(self, name: str) -> bool:
        """Whether one of the job's tasks is called that."""
        number = name.removeprefix(self.task_stem)
        return number != name and number.isdecimal()

    def replaced(self, task_name: str, token: str) -> StorePath:
        """Where a task's directory goes that another one replaces. Hadoop's drivers pass over what lies there."""
        return self.runs / f"{task_name}-{token}"

    def task_replaced(self, name: str) -> str | None:
        """The task of whose earlier commit that is the directory in `runs`; None where it is something else."""
        task, hyphen, token = name.rpartition("-")
        return task if hyphen and token and self.is_task(task) else None


class CommittedLayout(FileLayout):
    """The paths of a job by listing whose task records are the directories that tasks committed: algorithm 1."""

    record_suffix: ClassVar[str] = ""
    record_kind: ClassVar[str] = "task directory"

    def _place_own(self) -> None:
        super()._place_own()
        # A job commit takes the directories away from where tasks can reach them, to where it publishes from: a driver
        # that outlived its job takes nothing of another job that has the id since.
        self.tasks: StorePath = self.drivers / "tasks"
        self.returning: StorePath = self.drivers / "returning"

    def _place_records(self) -> tuple[StorePath, StorePath]:
        return self.temporary / str(self.job_attempt), self.job_attempt_directory / "uploads"

    @property
    def is_out_of_reach(self) -> bool:
        """Always: task attempts write elsewhere."""
        return True

    @property
    def of_attempts(self) -> frozenset[str]:
        """The names of the directories in that of a job attempt, and in `drivers`."""
        return super().of_attempts | {self.returning.name}

    def earlier(self) -> StorePath | None:
        """Where tasks committed in the application attempt before; None in the first."""
        return self.temporary / str(self.job_attempt - 1) if self.job_attempt else None

    def is_record(self, name: str) -> bool:
        """By the names of the job's tasks."""
        return self.is_task(name)

    def record_name(self, path: StorePath) -> str:
        """Of a directory that no job commit took its bare name."""
        return path.name if path.parent == self.manifests else super().record_name(path)

    def record_path(self, name: str) -> StorePath:
        """Where the record of that name is."""
        return self.manifests / name if self.is_record(name) else super().record_path(name)

    def is_directory_of_task(self, path: StorePath) -> bool:
        """Whether that is where a task's directory stands, before a job commit takes it or after."""
        return path.parent in (self.manifests, self.tasks) and self.is_record(path.name)

    def in_place(self) -> CommittedLayout:
        """The same for a process that only looks: what would be published is still where tasks committed it."""
        return self.with_tasks_in(self.manifests)

    def of_no_task(self) -> CommittedLayout:
        """The same to look only, where no task was found to have committed: records are sought where none is."""
        layout = copy.copy(self)
        layout.manifests = self.job_attempt_directory
        return layout
