"""What refusals of all services that speak HTTP have in common: how errors tell of them, and what some mean on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from committer.advice import LOOK_BEFORE
from committer.errors import (
    CommitterError,
    DestinationNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.retry_after import retry_after_s
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.readable import clean

E = TypeVar("E", bound=CommitterError)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal, and the call it was given to.

    Attributes:
        status: The HTTP status.
        code: What the service calls its reason; empty where it says none.
        request_id: By which the service knows the request; empty where it says none.
        operation: The store call.
        path: What it was made on; the destination of a rename.
        source: The source of a rename.
    """

    status: int
    code: str
    request_id: str
    operation: str
    path: StorePath
    source: StorePath | None = None

    def as_error(self, kind: type[E], message: str, next_step: str = "", *, at: StorePath | None = None) -> E:
        """An error that tells of it; `at` another path than the call's.

        A service does not report on which path of a rename the right is missing, so the error names both.
        """
        if kind is StorePermissionError and self.source is not None:
            message, at = f"{message}: {self.source} cannot be renamed to {self.path}", self.source
        return kind(self._told(message), operation=self.operation, path=at or self.path, next_step=next_step)

    def slow_down(self, headers: Mapping[str, str]) -> StoreThrottledError:
        """It asks to slow down, for as long as its headers say."""
        return StoreThrottledError(
            self._told("the service asks to slow down"),
            retry_after_s=retry_after_s(headers, current_runtime().now()),
            operation=self.operation,
            path=self.path,
        )

    def failed(self, *, changes: bool) -> StoreUnavailableError | StoreOutcomeUnknownError:
        """The service failed, at a call that may have changed something, or at one that cannot have."""
        if not changes:
            return self.as_error(StoreUnavailableError, "the service failed")
        return self.as_error(StoreOutcomeUnknownError, "the service failed and may have done it", LOOK_BEFORE)

    def no_such(self, what: str) -> DestinationNotFoundError:
        """The bucket or container of the path is not there."""
        return self.as_error(
            DestinationNotFoundError,
            f"there is no such {what}: {self.path.authority}",
            f"create the {what} first, or correct its name",
        )

    def _told(self, message: str) -> str:
        said = " ".join(part for part in (str(self.status), self.code, self.request_id) if part)
        return f"{message} ({clean(said)})"
