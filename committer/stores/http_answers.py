"""What the answers of all services that speak HTTP say in one way: a file's content, and moments."""

from __future__ import annotations

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
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
