"""Telling what several workers' failures mean together."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from committer.errors import (
    CommitterError,
    JobNotFoundError,
    MultipleError,
    StoreCrossDeviceError,
    StoreNotFoundError,
    StorePartsError,
    TargetExistsError,
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


Refusal: TypeAlias = TargetExistsError | StoreCrossDeviceError | StorePartsError


def definite_refusal(error: CommitterError) -> Refusal | None:
    """The refusal that trying again cannot change, among one or several failures of a stage; None when any of them may
    be something else.
    """
    if isinstance(error, Refusal):
        return error
    found = [cause for cause in error.causes if isinstance(cause, Refusal)]
    return found[0] if found and len(found) == len(error.causes) else None
