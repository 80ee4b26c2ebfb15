"""Leases on paths and filesystems: acquire, renew, change, release, break, and the check every write makes."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from committer_testing.emulators.adls.errors import ServiceError

_INFINITE = -1


@dataclass(slots=True)
class Lease:
    """A lease, from its first acquisition until it is released.

    Attributes:
        id: What names it: a client that holds the lease gives this id.
        duration: Seconds, or -1 for a lease without end.
        until: When it ends by itself, on the monotonic clock; infinity for one without end.
        breaking_until: When a break takes effect; None while no client broke it.
    """

    id: str
    duration: int
    until: float
    breaking_until: float | None = None

    @property
    def state(self) -> str:
        """`leased`, `breaking`, `broken` or `expired`."""
        now = time.monotonic()
        if self.breaking_until is not None:
            return "breaking" if now < self.breaking_until else "broken"
        return "leased" if now < self.until else "expired"

    @property
    def active(self) -> bool:
        """Whether it still keeps others out."""
        return self.state in {"leased", "breaking"}


def describe(lease: Lease | None) -> dict[str, str]:
    """The headers that tell a lease's state."""
    if lease is None:
        return {"x-ms-lease-state": "available", "x-ms-lease-status": "unlocked"}
    state = lease.state
    headers = {"x-ms-lease-state": state, "x-ms-lease-status": "locked" if lease.active else "unlocked"}
    if state == "leased":
        headers["x-ms-lease-duration"] = "infinite" if lease.duration == _INFINITE else "fixed"
    return headers


def check(lease: Lease | None, given: str | None) -> None:
    """Raises ServiceError when a write that carries the lease id `given` must not go on."""
    if lease is None:
        if given is not None:
            raise ServiceError("LeaseNotPresent")
        return
    if lease.active:
        if given is None:
            raise ServiceError("LeaseIdMissing")
        if given.lower() != lease.id:
            raise ServiceError("LeaseIdMismatch")
    elif given is not None:
        raise ServiceError("LeaseLost" if given.lower() == lease.id else "LeaseIdMismatch")


def operate(
    lease: Lease | None,
    action: str,
    *,
    given: str | None,
    proposed: str | None,
    duration: str | None,
    break_period: str | None,
) -> tuple[Lease | None, int, dict[str, str]]:
    """One lease operation: the lease after it, the status and the headers of the answer.

    Raises:
        ServiceError: It is refused, or the request is malformed.
    """
    if action == "acquire":
        return _acquire(lease, proposed, duration)
    if action == "break":
        return _break(lease, break_period)
    if given is None:
        raise ServiceError("MissingRequiredHeader")
    if action not in {"renew", "change", "release"}:
        raise ServiceError("InvalidHeaderValue")
    if lease is None:
        raise ServiceError("LeaseNotPresentWithLeaseOperation")
    if action == "change":
        return _change(lease, given, proposed)
    if given.lower() != lease.id:
        raise ServiceError("LeaseIdMismatchWithLeaseOperation")
    if action == "release":
        return None, 200, {}
    if lease.state in {"breaking", "broken"}:
        raise ServiceError("LeaseIsBrokenAndCannotBeRenewed")
    lease.until = _end(lease.duration)
    return lease, 200, {"x-ms-lease-id": lease.id}


def _acquire(lease: Lease | None, proposed: str | None, duration: str | None) -> tuple[Lease, int, dict[str, str]]:
    if duration is None:
        raise ServiceError("MissingRequiredHeader")
    seconds = _number(duration)
    if seconds != _INFINITE and not 15 <= seconds <= 60:
        raise ServiceError("InvalidHeaderValue")
    holder = _identifier(proposed) if proposed is not None else str(uuid.uuid4())
    if lease is not None and lease.active:
        if holder != lease.id:
            raise ServiceError("LeaseAlreadyPresent")
        if lease.state == "breaking":
            raise ServiceError("LeaseIsBreakingAndCannotBeAcquired")
    return Lease(holder, seconds, _end(seconds)), 201, {"x-ms-lease-id": holder}


def _break(lease: Lease | None, period: str | None) -> tuple[Lease, int, dict[str, str]]:
    if lease is None:
        raise ServiceError("LeaseNotPresentWithLeaseOperation")
    if lease.state == "broken":
        raise ServiceError("LeaseIsAlreadyBroken")
    now = time.monotonic()
    # Without a period a lease of fixed length runs to its end; one without end breaks at once ("Lease Blob").
    remaining = 0.0 if lease.duration == _INFINITE else max(0.0, lease.until - now)
    if period is not None:
        seconds = _number(period)
        if not 0 <= seconds <= 60:
            raise ServiceError("InvalidHeaderValue")
        remaining = float(seconds) if lease.duration == _INFINITE else min(remaining, float(seconds))
    if lease.breaking_until is not None:
        remaining = min(remaining, max(0.0, lease.breaking_until - now))
    lease.breaking_until = now + remaining
    return lease, 202, {"x-ms-lease-time": str(round(remaining))}


def _change(lease: Lease, given: str, proposed: str | None) -> tuple[Lease, int, dict[str, str]]:
    if proposed is None:
        raise ServiceError("MissingRequiredHeader")
    holder = _identifier(proposed)
    if not lease.active:
        raise ServiceError("LeaseNotPresentWithLeaseOperation")
    if lease.id not in {given.lower(), holder}:
        raise ServiceError("LeaseIdMismatchWithLeaseOperation")
    if lease.state == "breaking":
        raise ServiceError("LeaseIsBreakingAndCannotBeChanged")
    lease.id = holder
    return lease, 200, {"x-ms-lease-id": holder}


def _end(duration: int) -> float:
    return float("inf") if duration == _INFINITE else time.monotonic() + duration


def _identifier(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ServiceError("InvalidHeaderValue") from None


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ServiceError("InvalidHeaderValue") from None
