"""Carries errors of this library as data from Spark's Python processes to the caller.

Spark passes errors on as text: a traceback that ends with the error's notes. With the option ``carry_errors``, an
error gets a note that is its JSON in one line. `write` and `foreach_batch` set the option and raise the error
again, with the same class and attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

import committer.errors
from committer.advice import COMMIT_AGAIN, to_blocking_callers
from committer.committers.failures import without_the_end
from committer.errors import CommitterError, Outcome
from committer.readable import UNDECODABLE

_MARK: Final = "committer-error: "
_NOTE: Final = re.compile(rf"^{_MARK}(\{{.*\}})$", re.MULTILINE)
_FIELDS: Final = frozenset({"message", "outcome", "causes"})


class _Carried(msgspec.Struct, frozen=True, omit_defaults=True):
    """Error as data; causes of other libraries are left out, as the message names them."""

    kind: str
    message: str
    outcome: Outcome
    attributes: dict[str, str | float | bool | tuple[str, ...]] = {}
    causes: tuple[_Carried, ...] = ()


@contextmanager
def to_caller(carry: bool) -> Iterator[None]:
    """Makes errors of the block advise blocking calls and, if `carry`, carry themselves as data."""
    try:
        with to_blocking_callers():
            yield
    except CommitterError as error:
        if carry:
            error.add_note(_MARK + msgspec.json.encode(_carried(error)).decode())
        raise


@contextmanager
def aborted_by_spark(again: str) -> Iterator[None]:
    """Corrects the advice of a commit that fails: Spark then aborts the job, and the user can do `again`."""
    try:
        yield
    except CommitterError as error:
        error.next_step = without_the_end(error.next_step).replace(COMMIT_AGAIN, again)
        raise


def error_behind(error: BaseException) -> CommitterError | None:
    """Returns the error of this library that a Spark error carries, the last if several; None if there is none."""
    found = _NOTE.findall(str(error))
    try:
        return _rebuilt(msgspec.json.decode(found[-1], type=_Carried)) if found else None
    except UNDECODABLE:  # from another release of this library
        return None


def _carried(error: CommitterError) -> _Carried:
    return _Carried(
        kind=_public_class(error).__name__,
        message=error.message,
        outcome=error.outcome,
        attributes={
            key: value
            for key, value in vars(error).items()
            if key not in _FIELDS and isinstance(value, str | int | float | tuple)
        },
        causes=tuple(_carried(cause) for cause in error.causes if isinstance(cause, CommitterError)),
    )


def _public_class(error: CommitterError) -> type[CommitterError]:
    """Returns the public class of an error: a stage may raise a subclass of its own."""
    return next(one for one in type(error).__mro__ if one.__module__ == committer.errors.__name__)


def _rebuilt(carried: _Carried) -> CommitterError | None:
    kind = getattr(committer.errors, carried.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, CommitterError)):
        return None
    causes = [cause for cause in map(_rebuilt, carried.causes) if cause is not None]
    attributes: dict[str, Any] = carried.attributes
    try:
        rebuilt: CommitterError = kind(carried.message, outcome=carried.outcome, causes=causes, **attributes)
    except TypeError:  # from another release of this library
        return None
    return rebuilt
