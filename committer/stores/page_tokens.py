"""Check of the continuation tokens of paged calls."""

from __future__ import annotations

from typing import TypeVar

from committer.errors import StoreOutcomeUnknownError, StoreUnavailableError
from committer.paths import StorePath

T = TypeVar("T")


class PageTokens:
    """Detector of repeated continuation tokens in one call, whose pages would never end.

    Compares each token with the last one and with one earlier token, which is replaced each time that the number of
    pages has doubled (R. P. Brent, "An improved Monte Carlo factorization algorithm", 1980). This finds a cycle of any
    length in constant memory, within three times the pages before the cycle and in it.

    Args:
        operation: The name of the call, for errors.
        path: The path of the call, for errors.
        changes: Whether the call changes something; then a repeated token leaves its outcome unknown.
    """

    def __init__(self, operation: str, path: StorePath, *, changes: bool = False) -> None:
        self._error = StoreOutcomeUnknownError if changes else StoreUnavailableError
        self._operation = operation
        self._path = path
        self._last: object = None
        self._kept: object = None
        self._span = self._left = 1

    def following(self, token: T) -> T:
        """Checks the token of the next page, and returns it.

        Raises:
            StoreUnavailableError: The token is empty or repeats an earlier one.
            StoreOutcomeUnknownError: Likewise, in a call that changes something.
        """
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
