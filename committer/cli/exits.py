"""Exit codes, and which one an error has."""

from __future__ import annotations

from enum import IntEnum

from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    DestinationNotFoundError,
    JobNotFoundError,
    StoreNotFoundError,
)


class Exit(IntEnum):
    """What the process returns.

    Attributes:
        OK: Done, or nothing is wrong.
        FAILED: It failed, or what was compared does not match. Nothing is half done.
        USAGE: The command line cannot be honoured, or a command that changes things was not confirmed.
        UNKNOWN: The job may be committed, wholly or in part: run ``recover``, which finds out and finishes.
        NOT_FOUND: There is no such job, record, path, bucket or container.
        BUSY: Another job holds the destination.
        NOT_ALL_COMPARED: What was compared is as it should be, and not all could be.
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    UNKNOWN = 3
    NOT_FOUND = 4
    BUSY = 5
    NOT_ALL_COMPARED = 6


def exit_of(error: BaseException) -> Exit:
    """The exit code of an error.

    What the error says about the outcome comes first: a script must learn that a job is not settled, whatever the
    reason.
    """
    if isinstance(error, DestinationBusyError):
        return Exit.BUSY
    if isinstance(error, CommitterError):
        if error.outcome in ("unknown", "partial"):
            return Exit.UNKNOWN
        if isinstance(error, DestinationNotFoundError | JobNotFoundError | StoreNotFoundError):
            return Exit.NOT_FOUND
        if isinstance(error, ConfigurationError):
            return Exit.USAGE
    return Exit.FAILED
