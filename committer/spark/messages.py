"""What Spark carries from a task to the driver: one message of each partition's winning attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from committer.errors import RecordError, TaskMissingError
from committer.records.task_commit import TaskCommit

SMALL_MESSAGE: Final = 3 * 1024


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """What a task returns to Spark.

    Attributes:
        data: An encoded `TaskCommit`, at most 8 KiB.
    """

    data: bytes


def encoded(commit: TaskCommit) -> bytes:
    """A message as Spark takes it to the driver: at most `SMALL_MESSAGE` bytes where it can be.

    The record inside only saves job commit a call, and ``spark.driver.maxResultSize`` counts every byte, of messages
    and of what Spark sends with each, before the first one is looked at.
    """
    data = commit.encode()
    if len(data) > SMALL_MESSAGE and commit.inline is not None:
        return msgspec.structs.replace(commit, inline=None).encode()
    return data


def task_commits(messages: Sequence[WriterCommitMessage | None], job_id: str) -> list[TaskCommit]:
    """Decodes the messages of a write: one a task, all of the same job.

    Raises:
        TaskMissingError: A task has no message, or two.
        RecordError: A message is not one of this job.
    """
    commits: dict[int, TaskCommit] = {}
    for position, message in enumerate(messages):
        if message is None:
            raise TaskMissingError(
                f"Spark asks to commit, but partition {position} of {len(messages)} has no task commit message",
                operation="commit_job",
                next_step="nothing was published: run the write again",
            )
        if not isinstance(message, TaskCommitMessage):
            raise RecordError(
                f"partition {position} returned a {type(message).__name__}, not a task commit message",
                operation="commit_job",
            )
        commit = TaskCommit.decode(message.data)
        if commit.job_id != job_id:
            raise RecordError(
                f"partition {position} returned a message of job {commit.job_id}, and this is job {job_id}",
                field="job_id",
                operation="commit_job",
            )
        if commit.task in commits:
            raise TaskMissingError(
                f"task {commit.task} has two task commit messages, of attempts {commits[commit.task].attempt} and"
                f" {commit.attempt}",
                operation="commit_job",
                next_step="nothing was published: run the write again",
            )
        if commit.task >= len(messages):
            raise TaskMissingError(
                f"there is a message of task {commit.task}, but the job has {len(messages)} tasks",
                operation="commit_job",
                next_step="nothing was published: run the write again",
            )
        commits[commit.task] = commit
    return list(commits.values())
