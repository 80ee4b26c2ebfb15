"""Which task commits the driver of a job knows, and whose it takes where its caller names none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from committer.committers.base import Committer
from committer.committers.fresh import fresh_statistics
from committer.errors import (
    ConfigurationError,
    StoreNotFoundError,
    TaskCommitsRequiredError,
    TaskError,
    TaskMissingError,
)
from committer.layout import MANIFEST_SUFFIX, JobLayout, check_number
from committer.paths import StorePath
from committer.readable import count
from committer.records.task_commit import TaskCommit
from committer.stages.base import StageContext
from committer.stages.job_directory import look_at_job


class OwnAttempts:
    """The task attempts that one Job opened in its process.

    Attributes:
        open: Task and attempt of those that are open now, or being opened.
    """

    def __init__(self, layout: JobLayout) -> None:
        self.open: list[tuple[int, int]] = []
        self._layout = layout
        self._messages: dict[int, TaskCommit] = {}
        self._records: set[str] = set()
        self._begun: set[int] = set()

    @property
    def messages(self) -> list[TaskCommit]:
        """The message of the attempt of each task that committed last."""
        return list(self._messages.values())

    def begin(self, task: int, attempt: int) -> Callable[[], None]:
        """Registers an attempt that is about to be opened; returns the function to call when the attempt ended.

        Only the last of several commits of one task wins, so two tasks under one number would lose files.

        Raises:
            TaskError: This attempt of the task is open or has committed.
        """
        message = self._messages.get(task)
        state = "is open already" if (task, attempt) in self.open else ""
        if message is not None and message.attempt == attempt:
            state = f"committed already, with {count(message.files, 'file')}"
        if state:
            raise TaskError(
                f"task {task} attempt {attempt} of job {self._layout.job_id} {state}",
                operation="task_attempt",
                path=self._layout.destination.uri,
                next_step="give each task a number of its own; to run this task again, use another attempt number: "
                f"job.task_attempt(task={task}, attempt={attempt + 1})",
            )
        self.open.append((task, attempt))
        self._begun.add(task)
        return partial(self.open.remove, (task, attempt))

    def check_named(self, task_commits: list[TaskCommit]) -> None:
        """Refuses messages that leave out a task which committed in this Job; later steps refuse other types.

        Raises:
            TaskMissingError: A task that committed has no message.
        """
        if not all(isinstance(message, TaskCommit) for message in task_commits):
            return
        named = {message.task for message in task_commits}
        missing = next((message for task, message in self._messages.items() if task not in named), None)
        if missing is not None:
            raise TaskMissingError(
                f"task {missing.task} of job {self._layout.job_id} committed in this process, and "
                "task_commits has no message of it",
                operation="commit_job",
                path=self._layout.destination,
                next_step="pass the message of each task (`task.task_commit`), or no task_commits: the Job knows its "
                f"own attempts; to leave this one out, `await job.abort_task({missing.task}, {missing.attempt})` first",
            )

    @property
    def uncommitted(self) -> set[int]:
        """Numbers of tasks that ran in this Job without a committed attempt."""
        return self._begun - self._messages.keys()

    def note(self, message: TaskCommit) -> None:
        """An attempt committed, here or, where its message was lost, elsewhere."""
        self._messages[message.task] = message
        self._records.add(StorePath.from_uri(message.record).name)

    def forget(self, task: int, attempt: int) -> None:
        """An attempt that had committed was aborted."""
        message = self._messages.get(task)
        if message is not None and message.attempt == attempt:
            del self._messages[task]

    async def only_ones(self, context: StageContext) -> list[TaskCommit] | None:
        """The messages, where no other attempt committed; None for a job that is decided. One or two calls.

        Raises:
            TaskCommitsRequiredError: Others committed too.
        """
        layout, store = self._layout, context.store
        found = await look_at_job(store, layout)
        if found.decided or found.ended:
            return None
        try:
            records = {child.path.name async for child in store.list(layout.attempts)}
        except StoreNotFoundError:
            records = set()
        others = {name for name in records - self._records if name.endswith(MANIFEST_SUFFIX)}
        if others:
            raise TaskCommitsRequiredError(
                f"{len(others)} task attempts of job {layout.job_id} committed elsewhere, the first: {min(others)}",
                operation="commit_job",
                path=layout.attempts,
                next_step="`await job.commit(task_commits=[...])` with the message of the winner of each task; or, if "
                "each of its N tasks committed once, `await job.commit(from_attempts=True, tasks=N)`; or abort it, and "
                'run it as a new job with delivery="listing", whose commit() takes what a listing finds. Until then '
                "the job stays open",
            )
        return self.messages


async def messages_of_all_attempts(
    committer: Committer, context: StageContext, task_commits: Iterable[TaskCommit] | None, tasks: int | None
) -> list[TaskCommit] | None:
    """The messages of the one committed attempt of each task, for a driver that has none; None for a decided job.

    Args:
        committer: The job's committer.
        context: The job.
        task_commits: What the caller gave beside; there must be none.
        tasks: How many tasks the job has.

    Raises:
        ConfigurationError: Messages are given, or the number of tasks is not.
        TaskCommitsRequiredError, TaskMissingError: Not exactly one attempt of each task committed.
    """
    if task_commits is not None or tasks is None:
        raise ConfigurationError(
            "from_attempts takes the number of the job's tasks, and no messages",
            operation="commit_job",
            next_step="commit(from_attempts=True, tasks=...), or commit(task_commits=[...])",
        )
    if context.spec.delivery == "listing":
        # There a task has one record, whatever number of its attempts committed.
        return None
    found = await look_at_job(context.store, context.layout)
    if found.decided or found.ended:
        return None
    return await committer.recover_tasks(fresh_statistics(context), check_number(tasks, "tasks", "commit_job"))
