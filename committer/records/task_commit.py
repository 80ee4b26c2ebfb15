"""Message by which a driver learns that a task attempt committed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from committer.errors import ConfigurationError, RecordError
from committer.readable import UNDECODABLE, encoded

INLINE_LIMIT = 6 * 1024
MESSAGE_LIMIT = 8 * 1024


def digest_of(data: bytes) -> str:
    """Returns the SHA-256 of a record, in hex."""
    return hashlib.sha256(data).hexdigest()


class TaskCommit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Message of one committed task attempt to its driver. At most 8 KiB encoded, picklable.

    Attributes:
        job_id: The job.
        task: The task's number.
        attempt: The attempt's number.
        nonce: Distinguishes two runs of one attempt.
        record: URI of the attempt's record.
        digest: SHA-256 of the record, in hex.
        length: Length of the record in bytes.
        files: Number of files.
        size: Their bytes.
        inline: The record itself if it is at most 6 KiB.
    """

    job_id: str
    task: int
    attempt: int
    nonce: str
    record: str
    digest: str
    length: int
    files: int
    size: int
    inline: str | None = None

    def encode(self) -> bytes:
        """Encodes the message as JSON, at most 8 KiB."""
        data = msgspec.json.encode(self)
        if len(data) > MESSAGE_LIMIT and self.inline is not None:
            return msgspec.json.encode(msgspec.structs.replace(self, inline=None))
        return data

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | str) -> TaskCommit:
        """Decodes a message from `encode`.

        Raises:
            RecordError: The data is no task commit message, or the inline record does not match its digest.
        """
        try:
            message = msgspec.json.decode(encoded(data), type=cls)
        except (*UNDECODABLE, TypeError) as error:
            raise RecordError(
                f"not a task commit message: {error}",
                operation="decode TaskCommit",
                next_step="pass what task.task_commit.encode() returned, whole, with the same release on both sides",
            ) from error
        if message.inline is not None and digest_of(message.inline.encode()) != message.digest:
            raise RecordError(
                "the record inside a task commit message is not the one its digest names",
                field="inline",
                path=message.record,
                operation="decode TaskCommit",
            )
        for name in ("task", "attempt", "length", "files", "size"):
            if getattr(message, name) < 0:
                raise RecordError(
                    f"{name} of a task commit message is negative", field=name, operation="decode TaskCommit"
                )
        return message


def messages_in(task_commits: Iterable[TaskCommit] | None) -> list[TaskCommit] | None:
    """Lists the messages that a caller gave for a commit; None if it gave none."""
    if isinstance(task_commits, TaskCommit):
        raise ConfigurationError(
            "one task commit message was given in place of a list of them",
            operation="commit_job",
            next_step="give task_commits=[message, ...], the task_commit of every task",
        )
    if task_commits is not None and not isinstance(task_commits, Iterable):
        raise ConfigurationError(
            f"task_commits is a list of messages, not a {type(task_commits).__name__}",
            operation="commit_job",
            next_step="give task_commits=[message, ...], the task_commit of every task",
        )
    return None if task_commits is None else list(task_commits)
