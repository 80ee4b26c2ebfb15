"""Faults on demand, a rate limit, and the counters and log that tell what an emulator did; every emulator has them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

FaultKind = Literal["latency", "latency-after", "error", "error-after", "reset", "reset-after"]


@dataclass(slots=True)
class Fault:
    """Something that goes wrong, told to `POST /_control/faults` as a JSON object with these names.

    Attributes:
        kind: What happens. `latency` waits before the effect, `latency-after` between the effect and the answer.
            `error` refuses without effect, `error-after` has the effect and then refuses: with 404 for a rename, what
            a client sees when a front end sent it twice. `reset` drops the connection without effect, `reset-after`
            with it: a lost response.
        operation: Only this operation; None for all. The names are those of the request log.
        path_prefix: Only requests whose path begins so; it begins with the filesystem or the bucket.
        skip: How many that fit pass untouched first.
        count: How many are hit then; None for all.
        seconds: Of latency.
        status: Of an error.
        code: Of an error, in the service's words; "" is what goes with the status.
        message: Of an error; None is the service's own.
        retry_after: What an error's Retry-After says; None for none.
        per_request: Whether each request is hit only at its first try: one is known again by the id that the client
            gave it, else by method, path and rename source.
        hits: How many it has hit.
    """

    kind: FaultKind
    operation: str | None = None
    path_prefix: str = ""
    skip: int = 0
    count: int | None = None
    seconds: float = 0.0
    status: int = 500
    code: str = ""
    message: str | None = None
    retry_after: str | None = None
    per_request: bool = False
    hits: int = 0
    _seen: set[str] = field(default_factory=set, repr=False)

    def fits(self, operation: str, place: str, identity: str) -> bool:
        """Whether it hits this request; counts it."""
        if (self.operation is not None and operation != self.operation) or not place.startswith(self.path_prefix):
            return False
        if self.per_request:
            if identity in self._seen:
                return False
            self._seen.add(identity)
        if self.skip:
            self.skip -= 1
            return False
        if self.count is not None and self.hits >= self.count:
            return False
        self.hits += 1
        return True

    def as_json(self) -> dict[str, Any]:
        """Its public fields."""
        return {one.name: getattr(self, one.name) for one in fields(self) if not one.name.startswith("_")}


_FIELDS = {one.name: one for one in fields(Fault) if not one.name.startswith("_") and one.name != "hits"}
_NUMBERS = {"skip", "count", "seconds", "status"}


def parse_fault(given: Mapping[str, Any]) -> Fault:
    """A fault from its JSON.

    Raises:
        ValueError: An unknown name or kind, or a value of the wrong type.
    """
    unknown = sorted(given.keys() - _FIELDS.keys())
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(_FIELDS))}")
    if given.get("kind") not in get_args(FaultKind):
        raise ValueError(f"kind must be one of {', '.join(get_args(FaultKind))}")
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        right = number if name in _NUMBERS else isinstance(value, bool if name == "per_request" else str)
        if name in {"skip", "count", "status"}:
            right = right and isinstance(value, int)
        if not right and not (value is None and _FIELDS[name].default is None):
            raise ValueError(f"{name} cannot be {value!r}")
    return Fault(**given)


class RateLimit:
    """A token bucket: `rate` a second, and at most `burst_seconds` of them saved up."""

    def __init__(self, rate: float, burst_seconds: float) -> None:
        self.rate: float = rate
        self._burst_seconds = burst_seconds
        self._level = max(1.0, rate * burst_seconds)
        self._at = time.monotonic()

    def admit(self) -> bool:
        """Takes a token, if there is one."""
        if not self.rate:
            return True
        now = time.monotonic()
        capacity = max(1.0, self.rate * self._burst_seconds)
        self._level = min(capacity, self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True


@dataclass(slots=True)
class Counters:
    """What the server counted.

    Attributes:
        started: When, on the wall clock.
        seconds: By whole seconds since then: how many requests were served, and how many refused for the rate.
        operations: Requests served, by operation.
        statuses: Answers by status; 0 stands for a dropped connection.
    """

    started: float = field(default_factory=time.time)
    seconds: dict[int, list[int]] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)

    def count(self, operation: str, *, throttled: bool) -> None:
        """Counts a request when it arrives."""
        second = int(time.time() - self.started)
        counts = self.seconds.get(second)
        if counts is None:
            counts = self.seconds[second] = [0, 0]
        counts[throttled] += 1
        if not throttled:
            self.operations[operation] += 1

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "started": self.started,
            "elapsed": time.time() - self.started,
            "seconds": [
                {"second": second, "served": counts[0], "throttled": counts[1]}
                for second, counts in sorted(self.seconds.items())
            ],
            "served": sum(counts[0] for counts in self.seconds.values()),
            "throttled": sum(counts[1] for counts in self.seconds.values()),
            "operations": dict(self.operations),
            "statuses": {str(status): count for status, count in self.statuses.items()},
        }


class Conduct:
    """How the server behaves beside serving: what it breaks, caps, counts and remembers.

    Attributes:
        faults: Those in force, first come first; all that fit a request hit it.
        limit: The rate limit.
        counters: What was counted.
        log: The last requests, oldest first.
    """

    def __init__(self, rate: float, burst_seconds: float, request_log: int) -> None:
        self.faults: list[Fault] = []
        self.limit: RateLimit = RateLimit(rate, burst_seconds)
        self.counters: Counters = Counters()
        self.log: deque[LoggedRequest] = deque(maxlen=request_log)

    def faults_for(self, operation: str, place: str, identity: str) -> list[Fault]:
        """The faults that hit a request."""
        if not self.faults:
            return []
        return [fault for fault in self.faults if fault.fits(operation, place, identity)]


@dataclass(slots=True)
class LoggedRequest:
    """One request in the log. No header that authorises is kept, nor a signature in a query.

    Attributes:
        time: When it came, seconds since 1970.
        endpoint: Which of the service's endpoints: `dfs` or `blob`; `json` or `upload`.
        operation: What it asked for.
        method: GET, PUT, ...
        path: Filesystem or bucket, a slash, and the path or name in it.
        source: Where the source of a rename, a move or a copy is.
        status: What was answered; 0 for a dropped connection.
        code: The error code answered; "" for none.
        client_request_id: As the client gave it: Azure's client request id, Google's idempotency token.
        user_agent: Likewise.
        request_id: What the server called it.
        faults: The kinds of those that hit it.
    """

    time: float
    endpoint: str
    operation: str
    method: str
    path: str
    source: str
    status: int
    code: str
    client_request_id: str
    user_agent: str
    request_id: str
    faults: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {one.name: getattr(self, one.name) for one in fields(self)}
