"""The continuation tokens of a call that a service answers in pages."""

from __future__ import annotations

from typing import TypeVar

from committer.errors import StoreOutcomeUnknownError, StoreUnavailableError
from committer.paths import StorePath

T = TypeVar("T")


class PageTokens:
    """Refuses a token that a service gave before in the same call: its pages would go round for ever.

    Compared are the last token and one more, a later one each time that the number of pages has doubled (R. P. Brent,
    "An improved Monte Carlo factorization algorithm", 1980). So a circle of any length is found in constant memory,
    within three times the pages that lead into it and once around.

    Args:
        operation: What errors call the call.
        path: What it is about.
        changes: Whether each page is what was done, and not what was found.
    """

    def __init__(self, operation: str, path: StorePath, *, changes: bool = False) -> None:
        self._error = StoreOutcomeUnknownError if changes else StoreUnavailableError
        self._operation = operation
        self._path = path
        self._last: object = None
        self._kept: object = None
        self._span = self._left = 1

    def following(self, token: T) -> T:
        """Returns the token of the next page.

        Raises:
            StoreUnavailableError: It came before, or is empty.
            StoreOutcomeUnknownError: Likewise, in a call that changes something.
        """
        if not token or token in (self._last, self._kept):
            why = "repeats the token of an earlier page" if token else "names no next page, and is not the last"
            raise self._error(
                f"a page of an answer {why}",
                operation=self._operation,
                path=self._path,
                next_step="tell who runs the service, or the proxy on the way to it",
            )
        self._last = token
        self._left -= 1
        if not self._left:
            self._span *= 2
            self._kept, self._left = token, self._span
        return token
