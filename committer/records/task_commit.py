"""TaskCommit: the message by which a driver learns that a task attempt committed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from committer.errors import ConfigurationError, RecordError
from committer.readable import UNDECODABLE, encoded

INLINE_LIMIT = 6 * 1024
MESSAGE_LIMIT = 8 * 1024


def digest_of(data: bytes) -> str:
    """SHA-256 of a record's bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


class TaskCommit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one committed task attempt tells its driver. At most 8 KiB encoded, picklable.

    Attributes:
        job_id: The job.
        task: The task's number.
        attempt: The attempt's number.
        nonce: What tells two runs of one attempt apart.
        record: URI of the attempt's record.
        digest: SHA-256 of the record, in hex.
        length: Length of the record in bytes.
        files: Files committed.
        size: Bytes committed.
        inline: The record itself when it is at most 6 KiB.
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
        """The message as JSON, at most 8 KiB."""
        data = msgspec.json.encode(self)
        if len(data) > MESSAGE_LIMIT and self.inline is not None:
            return msgspec.json.encode(msgspec.structs.replace(self, inline=None))
        return data

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | str) -> TaskCommit:
        """Reads what `encode` wrote.

        Raises:
            RecordError: It is not a task commit message, or its inline record is not the one its digest names.
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


def inline_record(record: bytes) -> str | None:
    """The record as the message carries it: None when it is over 6 KiB."""
    return record.decode() if len(record) <= INLINE_LIMIT else None


def messages_in(task_commits: Iterable[TaskCommit] | None) -> list[TaskCommit] | None:
    """The messages that a caller gave for a commit, drawn once; None where it gave none.

    Raises:
        ConfigurationError: Something else was given in place of a list of them.
    """
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
