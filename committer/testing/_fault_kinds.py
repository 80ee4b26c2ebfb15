"""What can go wrong with a call to a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from committer.paths import StorePath

FaultKind: TypeAlias = Literal[
    "unavailable", "throttled", "forbidden", "unanswered", "lost", "crash_before", "crash_after", "late", "again"
]


class SimulatedCrash(BaseException):
    """The process died here. No ``except Exception`` catches it, as none would catch a SIGKILL."""


class Call(msgspec.Struct):
    """One call that reached a `FaultyStore`.

    Attributes:
        number: Its place in the order of arrival; the first is 1.
        operation: Name of the store method; of a file being written ``write``, ``close_writer`` or ``abort_writer``.
        path: Its path.
        destination: Its second path, where there is one.
        fault: What was done to it.
        result: Empty while it runs; then ``ok`` or the name of the error that the caller saw.
    """

    number: int
    operation: str
    path: StorePath
    destination: StorePath | None = None
    fault: FaultKind | None = None
    result: str = ""

    def __str__(self) -> str:
        target = f" -> {self.destination}" if self.destination is not None else ""
        fault = f" [{self.fault}]" if self.fault else ""
        return f"{self.number:4} {self.operation} {self.path}{target}{fault}: {self.result or 'running'}"


class Fault(msgspec.Struct, kw_only=True):
    """One thing that goes wrong, at the calls that fit all that is given.

    Attributes:
        kind: What happens. Without effect: ``unavailable``, ``throttled``, ``forbidden``, and ``unanswered`` (the
            request is lost, and its caller cannot know). After the effect: ``lost`` (the answer is). ``crash_before``
            and ``crash_after`` kill the process: this call, and every later one, raises `SimulatedCrash`. Out of order:
            ``late`` (the caller cannot know, and the request arrives `delay_s` later), ``again`` (it is answered, and
            arrives a second time `delay_s` later); of listings and of writing to an open file both are ``lost``.
        call: The number of the call.
        operation: The name of the operation.
        path: Part of a path's text, or what says yes to a path; one of the call's two paths must fit.
        times: How many fitting calls it hits, the first ones; None hits all.
        retry_after_s: What a throttled call says about the wait, in seconds.
        delay_s: How much later a request arrives that comes late or again, in seconds of the runtime.
    """

    kind: FaultKind
    call: int | None = None
    operation: str | None = None
    path: str | Callable[[StorePath], bool] | None = None
    times: int | None = 1
    retry_after_s: float | None = None
    delay_s: float = 1.0

    def fits(self, call: Call) -> bool:
        """Whether it hits a call, were it still in force."""
        if self.call is not None and self.call != call.number:
            return False
        if self.operation is not None and self.operation != call.operation:
            return False
        paths = [path for path in (call.path, call.destination) if path is not None]
        if isinstance(self.path, str):
            return any(self.path in str(path) for path in paths)
        return self.path is None or any(self.path(path) for path in paths)
