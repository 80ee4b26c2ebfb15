"""Telling what several workers' failures mean together."""

from __future__ import annotations

import copy
from typing import TypeAlias, TypeVar

from committer.errors import (
    CommitterError,
    JobError,
    JobNotFoundError,
    MultipleError,
    RecordError,
    StoreCrossDeviceError,
    StoreNotFoundError,
    StorePartsError,
    TargetExistsError,
    TaskError,
)

E = TypeVar("E", bound=BaseException)


def among(error: CommitterError, kind: type[E]) -> E | None:
    """The news of one kind among the failures of several workers."""
    causes = error.causes if isinstance(error, MultipleError) else ()
    return next((cause for cause in causes if isinstance(cause, kind)), None)


def is_missing(error: CommitterError) -> bool:
    """Whether something was not there any more, and nothing else went wrong."""
    if isinstance(error, MultipleError):
        return all(isinstance(cause, CommitterError) and is_missing(cause) for cause in error.causes)
    return isinstance(error, StoreNotFoundError | JobNotFoundError)


_MEANINGS = (JobError, RecordError, TaskError)

Refusal: TypeAlias = TargetExistsError | StoreCrossDeviceError | StorePartsError


def definite_refusal(error: CommitterError) -> Refusal | None:
    """The refusal that trying again cannot change, among one or several failures of a stage; None when any of them may
    be something else.
    """
    if isinstance(error, Refusal):
        return error
    found = [cause for cause in error.causes if isinstance(cause, Refusal)]
    return found[0] if found and len(found) == len(error.causes) else None


def as_one(error: CommitterError) -> CommitterError:
    """Several failures that mean the same as one error of their type, which has them all as `causes`; else `error`.

    A caller that tells a record that is not one, or an outcome that is unknown, from other failures need not know that
    two workers met it.
    """
    if not isinstance(error, MultipleError):
        return error
    first = error.causes[0]
    if not isinstance(first, _MEANINGS) or any(type(cause) is not type(first) for cause in error.causes):
        return error
    one = copy.copy(first)
    one.message = f"{first.message} (and {len(error.causes) - 1} more)"
    one.args = (one.message,)
    one.outcome, one.causes = error.outcome, error.causes
    return one
