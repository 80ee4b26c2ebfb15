"""Errors for the refusals of Google Cloud Storage, by HTTP status and reason."""

from __future__ import annotations

import re
from typing import Final

from committer.advice import page
from committer.errors import (
    CommitterError,
    ConfigurationError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores.http import Answer
from committer.stores.http_answers import Refusal

_SAYS_REASON: Final = re.compile(rb'"reason"\s*:\s*"(\w{1,100})"')
_SAYS_MESSAGE: Final = re.compile(rb'"message"\s*:\s*"((?:[^"\\]|\\.){1,300})')
# "HTTP status and error codes for JSON"; projects with a quota of their own answer 403 for rates.
_TOO_FAST: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"})
_LOCKED: Final = frozenset({"retentionPolicyNotMet", "objectUnderActiveHold"})

_CREDENTIALS: Final = (
    "check what was given: token, an OAuth token, which ends after about an hour, or service_file, the path of a"
    " credentials file; with neither, log in anew: gcloud auth application-default login"
)

NAME_PAUSE_S: Final = 1.0
"""Pause between two changes of one object name, about a second ("Quotas and limits")."""

RIGHTS: Final = (
    "needed is the role Storage Object User (roles/storage.objectUser) on the bucket, which may create, get, list,"
    f" move and delete objects ({page('stores/gcs.md#permissions')})"
)


def reason_of(answer: Answer) -> str:
    """Returns the service's reason; empty for downloads, and if something in front of the service answered."""
    found = _SAYS_REASON.search(answer.body[:4096])
    return found[1].decode() if found else ""


def says_no_bucket(answer: Answer) -> bool:
    """Returns True if a 404 is about the bucket."""
    return b"bucket does not exist" in answer.body[:4096]


def error_of(
    answer: Answer, operation: str, path: StorePath, *, source: StorePath | None = None, changes: bool = True
) -> CommitterError:
    """Maps a refusal (status 300 or more) to an error; `path` is the destination of a rename."""
    status, reason = answer.status, reason_of(answer)

    at = source if source is not None and status == 404 else path
    refusal = Refusal(status, reason, "", operation, at, source)
    if status == 429 and b"object mutation" in answer.body[:4096]:
        return StoreThrottledError(
            refusal.as_error(StoreThrottledError, "this name was changed too short a time ago").message,
            retry_after_s=NAME_PAUSE_S,
            one_name=True,
            operation=operation,
            path=path,
        )
    if status == 429 or (status == 403 and reason in _TOO_FAST):
        return refusal.slow_down(answer.headers)
    if status == 408 or (status >= 500 and status != 501):
        return refusal.failed(changes=changes)
    if status == 403 and reason in _LOCKED:
        return refusal.as_error(StorePermissionError, *_locked(answer, reason))
    if status == 401:
        return refusal.as_error(
            StorePermissionError, "the service refuses the credentials, or was sent none", _CREDENTIALS
        )
    if status == 403:
        return refusal.as_error(
            StorePermissionError, "the service refuses the credentials, or they lack a right", RIGHTS
        )
    if status == 404 and says_no_bucket(answer):
        return refusal.no_such("bucket")
    return refusal.as_error(*_other(status, reason, answer))


def unsupported(what: str, path: StorePath) -> UnsupportedError:
    """Builds the error for a service that lacks what a commit needs."""
    return UnsupportedError(
        f"this service {what}, so nothing keeps jobs from destroying each other's files",
        operation="probe",
        path=path,
        next_step="needed is moveTo with its preconditions, as Google Cloud Storage has it:"
        f" {page('stores/gcs.md#emulators')}",
    )


def check_heeded(answer: Answer, condition: str, operation: str, path: StorePath) -> None:
    """Checks that a request was refused for its false condition.

    Raises:
        UnsupportedError: The service did what the condition forbids.
        StoreError: The service refused for another reason; the trial can be repeated.
    """
    if answer.status < 300:
        raise unsupported(f"ignores a condition ({condition})", path)
    refused = error_of(answer, operation, path)
    if isinstance(refused, StoreThrottledError | StoreOutcomeUnknownError | StoreNotFoundError | StorePermissionError):
        raise refused


def _other(status: int, reason: str, answer: Answer) -> tuple[type[CommitterError], str, str]:
    if status in (404, 410):
        return StoreNotFoundError, "nothing is there", ""
    if status == 412:
        return StorePreconditionError, "another file is there", ""
    if status == 409:
        return StoreConflictError, "the service met a conflict", ""
    if status == 400 and b"requester pays" in answer.body[:4096].lower():
        return ConfigurationError, "the bucket's requester pays, and no project is named", "give user_project"
    if status == 400 and reason == "invalid" and b"object name" in answer.body[:4096].lower():
        return InvalidPathError, "the service can hold no such name", ""
    if status == 400:
        return ConfigurationError, "the service refuses the request", ""
    what = "the service does not know this request" if status in (405, 501) else "the service refuses the request"
    return StoreError, what, ""


def _locked(answer: Answer, reason: str) -> tuple[str, str]:
    said = _SAYS_MESSAGE.search(answer.body[:4096])
    until = re.search(r"until (\d{4}-[\dT:.+Z-]+)", said[1].decode("utf-8", "replace")) if said else None
    if reason == "objectUnderActiveHold":
        return "the object is under a hold", "release the object's hold, or write to another destination"
    when = f" until {until[1]}" if until else ""
    return (
        f"the object is retained{when}, and can be neither replaced, moved nor deleted",
        "write to a bucket without a retention policy: a job moves and deletes what it wrote",
    )
