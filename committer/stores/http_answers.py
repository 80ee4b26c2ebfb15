"""What the answers of all services that speak HTTP say in one way: a file's content, and moments."""

from __future__ import annotations

from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Protocol

from committer.errors import CommitterError
from committer.paths import StorePath
from committer.stores.helpers import too_long
from committer.stores.http import Answer


class ErrorOf(Protocol):
    """A store's one mapping of refusals to errors."""

    def __call__(self, answer: Answer, operation: str, path: StorePath, *, changes: bool) -> CommitterError:
        """The error that a refusal is."""


def range_up_to(limit: int) -> str:
    """The value of ``Range`` that asks for `limit` bytes of a file and one more, which says that it is longer."""
    return f"bytes=0-{limit}"


def content_in(answer: Answer, path: StorePath, limit: int, error_of: ErrorOf) -> bytes:
    """The whole file in the answer to a GET of `range_up_to` a limit.

    Raises:
        CommitterError: What `error_of` makes of a refusal.
        RecordError: The file is longer than the limit.
    """
    if answer.status == 416:
        # What services say of any range of an empty file.
        return b""
    if answer.status >= 300:
        raise error_of(answer, "read", path, changes=False)
    if len(answer.body) > limit:
        raise too_long(path, limit)
    return answer.body


@lru_cache(maxsize=4096)
def moment_of(text: str) -> float | None:
    """The moment that a header's date is, in seconds since 1970; None where it is none."""
    return _moment(parsedate_to_datetime, text)


def iso_moment_of(text: str) -> float | None:
    """The moment that a date of ISO 8601 is, in seconds since 1970; None where it is none."""
    return _moment(datetime.fromisoformat, text)


def _moment(read: Callable[[str], datetime], text: str) -> float | None:
    try:
        moment = read(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # In the first and last year another zone may have no such date.
    return moment.timestamp() if MINYEAR < moment.year < MAXYEAR else None
