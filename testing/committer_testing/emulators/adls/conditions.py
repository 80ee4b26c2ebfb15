"""Conditional headers: If-Match and its relatives, for the path named in the URL and for the source of a rename."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol

from committer_testing.emulators.adls.errors import ServiceError


class Versioned(Protocol):
    """What conditions look at."""

    etag: str
    modified: float


class Conditions:
    """The conditional headers of one request.

    Attributes:
        if_match: `*`, or an etag in quotes; None when the header is absent.
        if_none_match: Likewise.
    """

    __slots__ = ("_code", "_modified_since", "_unmodified_since", "if_match", "if_none_match")

    def __init__(self, headers: Mapping[str, str], prefix: str = "", code: str = "ConditionNotMet") -> None:
        self._code = code
        self.if_match: str | None = _quoted(headers.get(prefix + "If-Match"))
        self.if_none_match: str | None = _quoted(headers.get(prefix + "If-None-Match"))
        self._modified_since = _moment(headers.get(prefix + "If-Modified-Since"))
        self._unmodified_since = _moment(headers.get(prefix + "If-Unmodified-Since"))

    @property
    def only_if_absent(self) -> bool:
        """Whether the target must not exist."""
        return self.if_none_match == "*"

    def check(self, existing: Versioned | None) -> None:
        """Raises ServiceError when a write must not go on; an absent path meets no If-Match.

        That something exists in spite of `If-None-Match: *` is an error of its own on every write that may create, so
        it is left to the caller.
        """
        if self.if_match is not None and (existing is None or self.if_match not in {"*", existing.etag}):
            raise ServiceError(self._code)
        if existing is None:
            return
        if self.if_none_match is not None and self.if_none_match == existing.etag:
            raise ServiceError(self._code)
        # Dates on the wire have whole seconds.
        changed = int(existing.modified)
        if self._modified_since is not None and changed <= self._modified_since:
            raise ServiceError(self._code)
        if self._unmodified_since is not None and changed > self._unmodified_since:
            raise ServiceError(self._code)

    def check_read(self, existing: Versioned) -> None:
        """As `check`, for reads, where a failed If-None-Match or If-Modified-Since is 304."""
        try:
            self.check(existing)
        except ServiceError as error:
            unchanged = self.if_none_match == existing.etag or (
                self._modified_since is not None and int(existing.modified) <= self._modified_since
            )
            if unchanged and (self.if_match is None and self._unmodified_since is None):
                raise ServiceError(error.code, status=304) from None
            raise
        if self.only_if_absent:
            raise ServiceError(self._code, status=304)


def _quoted(etag: str | None) -> str | None:
    if etag is None or etag == "*" or etag.startswith('"'):
        return etag
    return f'"{etag}"'


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        raise ServiceError("InvalidHeaderValue") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
