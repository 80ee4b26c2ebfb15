"""HTTP responses: errors, contents, times, XML and continuation tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar
from xml.etree.ElementTree import Element, ParseError, XMLParser, fromstring

from committer.advice import LOOK_BEFORE, UNREADABLE
from committer.errors import (
    CommitterError,
    DestinationNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.runtime import current_runtime
from committer.flow.store_clock import retry_after_s
from committer.paths import StorePath
from committer.readable import clean
from committer.stores.helpers import too_long

if TYPE_CHECKING:
    from committer.stores.http import Answer


class ErrorOf(Protocol):
    """Function that maps a refused response of one service to a store error."""

    def __call__(self, answer: Answer, operation: str, path: StorePath, *, changes: bool) -> CommitterError:
        """Returns the error of a refused response."""


def range_up_to(limit: int) -> str:
    """Returns the ``Range`` header for `limit` bytes and one more, which shows that a file is longer."""
    return f"bytes=0-{limit}"


def content_in(answer: Answer, path: StorePath, limit: int, error_of: ErrorOf) -> bytes:
    """Returns the file in the response to a GET with `range_up_to`; raises `error_of` a refusal, or `RecordError`."""
    if answer.status == 416:
        # Services answer so for any range of an empty file.
        return b""
    if answer.status >= 300:
        raise error_of(answer, "read", path, changes=False)
    if len(answer.body) > limit:
        raise too_long(path, limit)
    return answer.body


@lru_cache(maxsize=4096)
def moment_of(text: str) -> float | None:
    """Parses the date of a header into seconds since the epoch; None if it is invalid."""
    return _moment(parsedate_to_datetime, text)


def iso_moment_of(text: str) -> float | None:
    """Parses an ISO 8601 date into seconds since the epoch; None if it is invalid."""
    return _moment(datetime.fromisoformat, text)


def _moment(read: Callable[[str], datetime], text: str) -> float | None:
    try:
        moment = read(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    # In the first and last year the date may not exist in another zone.
    return moment.timestamp() if MINYEAR < moment.year < MAXYEAR else None


E = TypeVar("E", bound=CommitterError)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refused response, and the call that it answers: `path` is the destination of a rename, `source` its source."""

    status: int
    code: str
    request_id: str
    operation: str
    path: StorePath
    source: StorePath | None = None

    def as_error(self, kind: type[E], message: str, next_step: str = "", *, at: StorePath | None = None) -> E:
        """Builds an error; of a rename it names both paths, since services do not report which one lacks the right."""
        if kind is StorePermissionError and self.source is not None:
            message, at = f"{message}: {self.source} cannot be renamed to {self.path}", self.source
        return kind(self._told(message), operation=self.operation, path=at or self.path, next_step=next_step)

    def slow_down(self, headers: Mapping[str, str]) -> StoreThrottledError:
        """Builds the error of a throttled call, with the wait that the headers ask for."""
        return StoreThrottledError(
            self._told("the service asks to slow down"),
            retry_after_s=retry_after_s(headers, current_runtime().now()),
            operation=self.operation,
            path=self.path,
        )

    def failed(self, *, changes: bool) -> StoreUnavailableError | StoreOutcomeUnknownError:
        """Builds the error of a failed service; with `changes` the outcome is unknown."""
        if not changes:
            return self.as_error(StoreUnavailableError, "the service failed")
        return self.as_error(StoreOutcomeUnknownError, "the service failed and may have done it", LOOK_BEFORE)

    def no_such(self, what: str) -> DestinationNotFoundError:
        """Builds the error of a missing bucket or container."""
        return self.as_error(
            DestinationNotFoundError,
            f"there is no such {what}: {self.path.authority}",
            f"create the {what} first, or correct its name",
        )

    def _told(self, message: str) -> str:
        said = " ".join(part for part in (str(self.status), self.code, self.request_id) if part)
        return f"{message} ({clean(said)})"


T = TypeVar("T")


class PageTokens:
    """Detector of repeated continuation tokens in one call, whose pages would never end.

    Compares each token with the last one and with one earlier token, which is replaced each time that the number of
    pages has doubled (R. P. Brent, "An improved Monte Carlo factorization algorithm", 1980). This finds a cycle of
    any length in constant memory, within three times the pages before the cycle and in it. With `changes`, a
    repeated token leaves the outcome of the call unknown.
    """

    def __init__(self, operation: str, path: StorePath, *, changes: bool = False) -> None:
        self._error = StoreOutcomeUnknownError if changes else StoreUnavailableError
        self._operation = operation
        self._path = path
        self._last: object = None
        self._kept: object = None
        self._span = self._left = 1

    def following(self, token: T) -> T:
        """Returns the token of the next page; raises an error if it is empty or repeats an earlier one."""
        if not token or token in (self._last, self._kept):
            why = "repeats the token of an earlier page" if token else "names no next page, and is not the last"
            raise self._error(
                f"a page of an answer {why}",
                operation=self._operation,
                path=self._path,
                next_step="report this to the operator of the service, or of the proxy before it",
            )
        self._last = token
        self._left -= 1
        if not self._left:
            self._span *= 2
            self._kept, self._left = token, self._span
        return token


def unreadable(operation: str, path: StorePath, what: str = "an answer") -> StoreUnavailableError:
    """Builds the error of a response that the service cannot have given."""
    return StoreUnavailableError(f"{what} cannot be read", operation=operation, path=path, next_step=UNREADABLE)


def texts_in(element: Element) -> dict[str, str]:
    """Returns the text of each child of an element of `parsed`, by name."""
    return {child.tag: child.text or "" for child in element}


def parsed(body: bytes, root: str, operation: str, path: StorePath) -> Element:
    """Parses an XML response whose root element's name starts with `root`; S3-compatible services vary its end.

    All elements lose their namespace.
    """
    try:
        # No store's response has declarations, which could expand during parsing. UTF-16 would hide these bytes.
        if b"<!" not in body and b"\0" not in body:
            found = fromstring(body, XMLParser(encoding="utf-8"))  # noqa: S314
            for element in found.iter():
                element.tag = element.tag.rpartition("}")[2]
            if found.tag.startswith(root):
                return found
    except ParseError:
        pass
    raise unreadable(operation, path)
