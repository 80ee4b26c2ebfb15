"""Errors of this library, carried as data from Spark's Python processes to the caller of this library.

Spark brings an error over as text, a traceback, which ends with the error's notes. Where the option ``carry_errors``
asks for it, an error gets a note of one line in which it stands as JSON. `write` and `foreach_batch` set the option and
read the note: what they raise is of the class, and has the attributes, that it had where it was raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

import committer.errors
from committer.advice import to_blocking_callers
from committer.errors import CommitterError, Outcome
from committer.readable import UNDECODABLE

_MARK: Final = "committer-error: "
_OF_EVERY_ERROR: Final = frozenset({"message", "outcome"})
_NOTE: Final = re.compile(rf"^{_MARK}(\{{.*\}})$", re.MULTILINE)


class _Carried(msgspec.Struct, frozen=True, omit_defaults=True):
    """One error. Causes that are no errors of this library are left out: the message says what they were.

    Attributes:
        kind: The name of its class.
        message: Its message.
        outcome: Its outcome.
        texts: Its attributes that are text.
        lists: Those that are several texts.
        numbers: Those that are numbers.
        flags: Those that are true or false.
        causes: The separate failures behind it.
    """

    kind: str
    message: str
    outcome: Outcome
    texts: dict[str, str] = {}
    lists: dict[str, tuple[str, ...]] = {}
    numbers: dict[str, float] = {}
    flags: dict[str, bool] = {}
    causes: tuple[_Carried, ...] = ()


@contextmanager
def to_caller(carry: bool) -> Iterator[None]:
    """Around what Spark calls in its own processes: errors advise blocking calls and, if `carry`, are data too."""
    try:
        with to_blocking_callers():
            yield
    except CommitterError as error:
        if carry:
            error.add_note(_MARK + msgspec.json.encode(_carried(error)).decode())
        raise


def error_behind(error: BaseException) -> CommitterError | None:
    """The error of this library that an error of Spark carries; None when it carries none.

    Where it carries several, that is the one which was raised last.
    """
    found = _NOTE.findall(str(error))
    try:
        return _rebuilt(msgspec.json.decode(found[-1], type=_Carried)) if found else None
    except UNDECODABLE:  # of another release of this library
        return None


def _carried(error: CommitterError) -> _Carried:
    state = vars(error)
    return _Carried(
        kind=_public_class(error).__name__,
        message=error.message,
        outcome=error.outcome,
        texts={
            key: value for key, value in state.items() if isinstance(value, str) and key not in ("message", "outcome")
        },
        lists={key: value for key, value in state.items() if isinstance(value, tuple) and key != "causes" and value},
        numbers={
            key: value for key, value in state.items() if isinstance(value, int | float) and not isinstance(value, bool)
        },
        flags={key: value for key, value in state.items() if isinstance(value, bool)},
        causes=tuple(_carried(cause) for cause in error.causes if isinstance(cause, CommitterError)),
    )


def _public_class(error: CommitterError) -> type[CommitterError]:
    """The class that users know: a stage may raise one of its own, which derives from that."""
    return next(one for one in type(error).__mro__ if one.__module__ == committer.errors.__name__)


def _rebuilt(carried: _Carried) -> CommitterError | None:
    kind = getattr(committer.errors, carried.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, CommitterError)):
        return None
    causes = [cause for cause in map(_rebuilt, carried.causes) if cause is not None]
    attributes: dict[str, Any] = {**carried.texts, **carried.lists, **carried.numbers, **carried.flags}
    try:
        rebuilt: CommitterError = kind(carried.message, outcome=carried.outcome, causes=causes, **attributes)
    except TypeError:  # of another release of this library
        return None
    return rebuilt
