"""Errors of this library that Spark carries over from its Python processes, as text: read back as what they were."""

from __future__ import annotations

import re
from typing import Final

import msgspec

import committer.errors
from committer.errors import CommitterError, DestinationBusyError, Outcome

_ERROR: Final = re.compile(
    r"^.*\bcommitter\.errors\.(?P<kind>\w+): (?P<message>.*?)"
    r"(?:; path: (?P<path>.*?))?(?:; operation: (?P<operation>[^;]*))?"
    r"; outcome: (?P<outcome>unchanged|partial|committed|unknown)(?:; next step: (?P<next_step>.*))?$",
    re.MULTILINE,
)
_OWNERS: Final = re.compile(r" now: jobs? (\S+(?:, \S+)*) ")


def error_behind(error: BaseException) -> CommitterError | None:
    """The error of this library that an error of Spark tells of; None when it tells of none.

    Spark carries errors of its Python processes over as text. The last one in it is the one that was raised last.
    """
    found = list(_ERROR.finditer(str(error)))
    if not found:
        return None
    match = found[-1]
    kind = getattr(committer.errors, match["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, CommitterError)):
        return None
    message, outcome = match["message"], msgspec.convert(match["outcome"], Outcome)
    path, operation, next_step = (match[key] or "" for key in ("path", "operation", "next_step"))
    if kind is DestinationBusyError:
        owners = _OWNERS.search(message)
        return DestinationBusyError(
            message,
            owners=owners[1].split(", ") if owners else (),
            path=path,
            operation=operation,
            outcome=outcome,
            next_step=next_step,
        )
    return kind(message, path=path, operation=operation, outcome=outcome, next_step=next_step)
