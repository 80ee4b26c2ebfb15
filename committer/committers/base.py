"""The committer interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from committer.committers.results import CommitPlan, JobReport
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.stages.abort_task import AbortRequest
from committer.stages.attempt_files import AttemptFiles
from committer.stages.base import StageContext
from committer.stages.task_output import AttemptIdentity, TaskOutput


class Committer(ABC):
    """How one job's output becomes visible.

    Side by side with MapReduce's ``OutputCommitter``: setupJob, setupTask, needsTaskCommit, commitTask, abortTask,
    commitJob, abortJob, recoverTask and isCommitJobRepeatable have their counterparts here under Python names.

    Attributes:
        name: What it is called in options and records.
        needs: What it needs of a store: capabilities, each with what it is to say.
        is_commit_repeatable: Whether a job commit that died can be run again.
        is_recovery_supported: Whether a driver that lost the message of a task can find it again.
    """

    name: str
    needs: Mapping[str, str]
    is_commit_repeatable: bool
    is_recovery_supported: bool

    @abstractmethod
    async def setup_job(self, context: StageContext) -> str | None:
        """Claims the job id and makes what tasks need; returns `StageContext.setup_identity`."""

    @abstractmethod
    async def setup_task(self, context: StageContext, identity: AttemptIdentity) -> StorePath:
        """Makes the task attempt directory."""

    @abstractmethod
    def files_of(self, context: StageContext, identity: AttemptIdentity, directory: StorePath) -> AttemptFiles:
        """Where one run of a task attempt writes its files."""

    @abstractmethod
    async def commit_task(self, context: StageContext, output: TaskOutput) -> TaskCommit:
        """Makes a task attempt's output the task's."""

    @abstractmethod
    async def abort_task(self, context: StageContext, request: AbortRequest) -> None:
        """Removes a task attempt, by its ids alone, or one run of it."""

    @abstractmethod
    async def recover_task(self, context: StageContext, task: int, attempt: int) -> TaskCommit:
        """Finds what a committed task attempt left, for a driver that lost its message."""

    @abstractmethod
    async def recover_tasks(self, context: StageContext, tasks: int) -> list[TaskCommit]:
        """Finds what committed of a job by message whose driver died, where each task has exactly one such attempt."""

    @abstractmethod
    async def commit_job(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> JobReport:
        """Makes the output of exactly the winners visible."""

    @abstractmethod
    async def recover_job(self, context: StageContext, *, rollback: bool, force: bool) -> JobReport:
        """Finishes what a driver began."""

    @abstractmethod
    async def check_recovery(self, context: StageContext, *, rollback: bool, force: bool) -> None:
        """Raises what `recover_job` would raise from where the job stands, as far as it is known before it is tried."""

    @abstractmethod
    async def abort_job(self, context: StageContext) -> bool:
        """Decides that the job never becomes visible, and removes it; False when it ended before."""

    @abstractmethod
    async def plan(
        self, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
    ) -> CommitPlan:
        """What `commit_job` would do; changes nothing."""
