"""Adaptive limits of an endpoint: calls in flight and calls per second.

A `Pacer` hands out one permit per wire call, in the order of requests, whatever their amounts. Only the head of the
queue waits, for the end of a pause, then a free slot, then tokens, so the rate holds on the wire. When the store
throttles, the endpoint pauses, and rate and concurrency are cut and grow back in steps. Plain additive increase
would soon hit the store's ceiling again, and each collision costs a pause. So the last refused value is remembered:
growth is quick to a little below it, slow up to it, and quick beyond (figures: docs/pacing.md).
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, cast
from weakref import WeakKeyDictionary, WeakSet

from aiolimiter import AsyncLimiter

from committer.errors import StoreError, StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.flow.runtime import Runtime, Timer, current_runtime
from committer.logs import job_logger

DECREASE: Final = 0.7
"""Factor of a cut after a stable period."""

DECREASE_IN_A_STORM: Final = 0.5
"""Factor of a cut shortly after another: the ceiling is far below, or the service is down."""

STORM_S: Final = 3.0
"""Seconds within which a further cut is part of a storm; pauses between cuts are a second or two."""

GROWTH_INTERVAL_S: Final = 0.1
"""Seconds per step of growth."""

MOST_STEPS: Final = 10
"""Most steps per response, so that a rate of one per second grows like others, and an idle hour brings nothing."""

GROWTH_STEPS: Final = 100
"""Steps from nothing to the full limit."""

CAUTION: Final = 0.9
"""Start of slow growth, as a share of the refused value."""

CAUTIOUS_STEPS: Final = 100
"""Steps from there to the refused value."""


class AdaptiveLimit:
    """Adaptive limit of calls per second, or in flight: starts at `most`, and is never cut below `least`.

    `most` may change; a cut that has not grown back stays.
    """

    __slots__ = ("_least", "_reached", "_refused", "most")

    def __init__(self, most: float, least: float) -> None:
        self.most: float = most
        # Growth since the last cut, which `most` may hide; infinite if never cut, or fully recovered.
        self._reached = math.inf
        self._least = least
        self._refused = 0.0

    @property
    def value(self) -> float:
        """The current limit."""
        return min(self._reached, self.most)

    @property
    def is_full(self) -> bool:
        """Whether the limit has fully grown."""
        return self._reached >= self.most

    def cut(self, *, in_a_storm: bool) -> None:
        """Cuts the limit after a refusal."""
        value = self._refused = self.value
        kept = value * (DECREASE_IN_A_STORM if in_a_storm else DECREASE)
        self._reached = max(min(self._least, value), kept)

    def grow(self, steps: int) -> None:
        """Grows the limit by a number of steps."""
        careful = CAUTION * self._refused
        for _ in range(steps):
            value = self.value
            if careful <= value < self._refused:
                grown = value + (self._refused - careful) / CAUTIOUS_STEPS
            else:
                grown = value + self.most / GROWTH_STEPS
                if value < careful:
                    grown = min(grown, careful)
            self._reached = grown if grown < self.most else math.inf


class Bucket(AsyncLimiter):
    """Token bucket that holds `burst` tokens, at least 1, and starts full.

    `AsyncLimiter` reads the running loop's clock and has a fixed rate. This subclass replaces `_loop` by an injected
    clock, and reads and sets `_level` and `_last_check` so that a bucket of another rate continues from here. No
    caller waits in `AsyncLimiter`, whose heap orders by amount and starves large ones.
    """

    __slots__ = ("_clock", "rate")

    if TYPE_CHECKING:
        _last_check: float
        _level: float

    def __init__(self, rate: float, burst: float, runtime: Runtime) -> None:
        super().__init__(burst, burst / rate)
        self.rate: float = rate
        self._clock = cast("AbstractEventLoop", SimpleNamespace(time=runtime.monotonic))

    # AsyncLimiter reads the time from this; it would also start timers if a caller waited in `acquire`.
    @property
    def _loop(self) -> AbstractEventLoop:
        return self._clock

    def take(self, amount: float, now: float) -> float:
        """Takes `amount` tokens, at most the burst, and returns 0; or returns the seconds until they are there."""
        # As `AsyncLimiter.has_capacity` and `acquire`, in one call, since every store call comes here.
        level = self._level
        if now > self._last_check:
            if level:
                level = max(0.0, level - (now - self._last_check) * self.rate)
            self._last_check = now
        if level + amount <= self.max_rate:
            self._level = level + amount
            return 0.0
        self._level = level
        return (level + amount - self.max_rate) / self.rate

    def drain(self, seconds: float) -> None:
        """Leaves at most one token, in `seconds`: a pause must not save up a burst."""
        self._leak()
        self._level = max(self._level, self.max_rate - 1.0 + seconds * self.rate)

    def at_rate(self, rate: float, burst: float, runtime: Runtime) -> Bucket:
        """Returns a bucket of another rate with the same tokens, as far as they fit."""
        self._leak()
        successor = Bucket(rate, burst, runtime)
        successor._last_check = self._last_check
        successor._level = max(0.0, burst - (self.max_rate - self._level))
        return successor


SLOWEST_RATE = 1.0
DECREASE_INTERVAL_S = 1.0


class Limits:
    """Current limits: permits `in_flight` and tokens `per_second`; `reduced` until a cut has fully grown back."""

    __slots__ = ("_grown_at", "_reduced_at", "in_flight", "per_second", "reduced")

    def __init__(self, concurrency: int, rate: float | None) -> None:
        self.in_flight: AdaptiveLimit = AdaptiveLimit(concurrency, 1.0)
        self.per_second: AdaptiveLimit | None = None if rate is None else AdaptiveLimit(rate, SLOWEST_RATE)
        self.reduced: bool = False
        self._reduced_at = -math.inf
        self._grown_at = -math.inf

    def cut(self, now: float, granted_at: float | None) -> bool:
        """Cuts the limits, and returns True; not again for a call in flight at the last cut (unknown: for a second)."""
        is_new = now >= self._reduced_at + DECREASE_INTERVAL_S if granted_at is None else granted_at > self._reduced_at
        if not is_new:
            return False
        in_a_storm = now < self._reduced_at + STORM_S
        self.reduced = True
        self._reduced_at = self._grown_at = now
        self.in_flight.cut(in_a_storm=in_a_storm)
        if self.per_second is not None:
            self.per_second.cut(in_a_storm=in_a_storm)
        return True

    def grow(self, now: float, granted_at: float, paused_until: float) -> bool:
        """Grows cut limits after a response, by a step per 0.1 s since the last growth; returns whether they grew.

        A call with a permit (`granted_at`) from before the last cut says nothing; nothing grows until a pause ends.
        """
        steps = min(int((now - max(self._grown_at, paused_until)) / GROWTH_INTERVAL_S), MOST_STEPS)
        if granted_at <= self._reduced_at or steps < 1:
            return False
        self._grown_at = now
        self.in_flight.grow(steps)
        if self.per_second is not None:
            self.per_second.grow(steps)
        self.reduced = not self._is_full
        return True

    def change(self, concurrency: int, rate: float | None) -> None:
        """Changes the full limits. Concurrency only grows; cuts stay."""
        self.in_flight.most = max(self.in_flight.most, concurrency)
        if rate is None:
            self.per_second = None
        elif self.per_second is None:
            self.per_second = AdaptiveLimit(rate, SLOWEST_RATE)
        else:
            self.per_second.most = rate
        self.reduced = not self._is_full

    @property
    def _is_full(self) -> bool:
        return self.in_flight.is_full and (self.per_second is None or self.per_second.is_full)


Kind: TypeAlias = Literal["read", "write", "delete"]


Weights: TypeAlias = Mapping[Kind, float]
"""Tokens that one call of each kind costs; 0 exempts a kind from the rate, not from the concurrency.

Hadoop's ABFS client paces only renames, one token each (`AzureBlobFileSystem.commitSingleFileByRename`).
"""

ONE_EACH: Final[Weights] = {"read": 1.0, "write": 1.0, "delete": 1.0}
"""Weights of one token for each call (for each name of a batch delete), as Azure and S3 count requests per second."""


_log = job_logger("committer.flow")

DEFAULT_PAUSE_S: Final = 0.2
"""Seconds of a pause if the throttled call gives none."""

BURST_AFTER_REFUSAL_S: Final = 0.1
"""Seconds of its rate that an endpoint gets in one burst while its limits are cut.

After a stall of the process, all saved-up tokens at once would exceed what such a service takes, and look like a
ceiling far below.
"""

LONGEST_PAUSE_S: Final = 300.0
"""Longest pause that a store can ask for, in seconds."""

# Event loops have millisecond timers; a shorter wait would make a loop spin.
_SHORTEST_TIMER_S = 0.001


class Permit:
    """Context manager for one wire call. `waited_s` is the wait in seconds, set on entry.

    On exit with `StoreThrottledError` the pacer cuts its limits; any other response lets cut limits grow.
    """

    __slots__ = ("_amount", "_granted_at", "_kind", "_pacer", "waited_s")

    def __init__(self, pacer: Pacer, kind: Kind, amount: float) -> None:
        self._pacer = pacer
        self._kind = kind
        self._amount = amount
        self._granted_at = 0.0
        self.waited_s: float = 0.0

    async def __aenter__(self) -> Self:
        asked_at = self._pacer.runtime.monotonic()
        self._granted_at = await self._pacer._acquire(self._kind, self._amount, asked_at)
        self.waited_s = self._granted_at - asked_at
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pacer.give_back(self._granted_at, error)


@dataclass(slots=True, eq=False)
class _Waiter:
    kind: Kind
    missing: float
    future: asyncio.Future[None]
    granted_at: float = 0.0


@dataclass(slots=True, weakref_slot=True, eq=False)
class Claim:
    """Claim on an endpoint's limits by `Pacer.claim`; counts until released, or garbage-collected."""

    pacer: Pacer
    concurrency: int
    rate: float | None

    def __reduce__(self) -> tuple[object, ...]:
        return Pacer.claim, (self.pacer, self.concurrency, self.rate)

    def release(self) -> None:
        """Releases the claim. Does nothing the second time."""
        self.pacer._claims.discard(self)
        self.pacer._follow_claims()


class Pacer:
    """Pacer of one endpoint, for one event loop; `claim_limits` has the shared one.

    In any `t` seconds it grants at most ``rate * t + min(burst, rate)`` tokens (at least one at a time; a permit
    that costs more than the burst gets them while it waits), and never holds more than `concurrency` permits. While
    limits are cut, the burst is at most `BURST_AFTER_REFUSAL_S` of the rate.

    From the first `claim` on, the lowest rate of the held claims applies. Concurrency only grows, to the highest
    claimed: each job bounds its own work. `granted` counts permits by kind, `in_use` those held now, `throttles` the
    throttled calls.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        concurrency: int,
        rate: float | None = None,
        burst: int = 100,
        runtime: Runtime | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.runtime: Runtime = runtime or current_runtime()
        self.granted: dict[Kind, int] = {"read": 0, "write": 0, "delete": 0}
        self.throttles: int = 0
        self._burst = burst
        self._limits = Limits(concurrency, rate)
        # Copy of a limit's value, since every call reads it.
        self._slots: float = concurrency
        self._bucket = Bucket(rate, self._burst_at(rate), self.runtime) if rate is not None else None
        self._claims: WeakSet[Claim] = WeakSet()
        self.in_use: int = 0
        self._waiters: deque[_Waiter] = deque()
        self._timer: Timer | None = None
        self._paused_until = -math.inf

    def __reduce__(self) -> tuple[object, ...]:
        # Another process gets the limits, not the queue.
        limits = self._limits
        rate = None if limits.per_second is None else limits.per_second.most
        make = partial(Pacer, concurrency=int(limits.in_flight.most), rate=rate, burst=self._burst)
        return make, (self.endpoint,)

    @property
    def concurrency(self) -> int:
        """Permits that may be held at once, now."""
        return int(self._slots)

    @property
    def rate(self) -> float | None:
        """Tokens per second, now; None if unlimited."""
        return None if self._bucket is None else self._bucket.rate

    @property
    def waiting(self) -> int:
        """Callers in the queue now."""
        return len(self._waiters)

    def permit(self, kind: Kind = "read", amount: float = 1) -> Permit:
        """Returns a permit for one wire call. More tokens than the burst come in portions while all others wait."""
        return Permit(self, kind, amount)

    def take(self, kind: Kind, now: float, costs: Weights = ONE_EACH) -> bool:
        """Acquires a permit if one is free now; the caller then calls `give_back` with `now`. `costs` is by kind."""
        if self._waiters or self.in_use + 1 > self._slots or now < self._paused_until:
            return False
        if self._bucket is not None and self._bucket.take(costs[kind], now):
            return False
        self.in_use += 1
        self.granted[kind] += 1
        return True

    def give_back(self, granted_at: float, error: BaseException | None) -> None:
        """Returns a permit with the outcome of its call; see `Permit`."""
        self.in_use -= 1
        if isinstance(error, StoreThrottledError) and not error.one_name:
            self.throttled(error.retry_after_s, granted_at=granted_at)
        elif self._limits.reduced and (error is None or _answered(error)):
            self._grow(granted_at)
        if self._waiters and self._timer is None:
            self._pump()

    def throttled(self, retry_after_s: float | None = None, *, granted_at: float | None = None) -> None:
        """Cuts rate and concurrency as `Limits.cut`, and pauses the endpoint, by default for `DEFAULT_PAUSE_S`."""
        now = self.runtime.monotonic()
        self.throttles += 1
        pause_s = DEFAULT_PAUSE_S if retry_after_s is None else retry_after_s
        if self._limits.cut(now, granted_at):
            self._apply()
            _log.warning(
                "%s asked to slow down, %d times so far: no calls for %.1f s, then %s in flight and %s a second",
                self.endpoint,
                self.throttles,
                pause_s,
                self.concurrency,
                "any number" if self.rate is None else round(self.rate),
            )
        self.pause(pause_s)

    def pause(self, seconds: float) -> None:
        """Grants no permit for `seconds`, at most `LONGEST_PAUSE_S`; never shortens a pause, and saves up no burst."""
        now = self.runtime.monotonic()
        self._paused_until = max(self._paused_until, now + min(seconds, LONGEST_PAUSE_S))
        if self._bucket is not None:
            self._bucket.drain(self._paused_until - now)
        self._rearm()

    def claim(self, concurrency: int, rate: float | None = None) -> Claim:
        """Claims limits until `Claim.release`, beside other claims."""
        made = Claim(self, concurrency, rate)
        self._claims.add(made)
        self._follow_claims()
        return made

    def _follow_claims(self) -> None:
        claims = tuple(self._claims)
        # Without claims the limits stay, since they reflect the store. A tuple holds the claims while they are read:
        # the garbage collector may remove unreleased ones at any moment.
        if not claims:
            return
        rate = min((claim.rate for claim in claims if claim.rate is not None), default=None)
        self._limits.change(max(claim.concurrency for claim in claims), rate)
        self._apply()
        self._rearm()

    async def _acquire(self, kind: Kind, amount: float, now: float) -> float:
        if self.take(kind, now, {kind: amount}):
            return now
        waiter = _Waiter(kind, amount, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        if self._timer is None:
            self._pump()
        try:
            await waiter.future
        except asyncio.CancelledError:
            if not waiter.future.cancelled():
                # Granted at the same moment: the slot returns, the tokens are spent.
                self.in_use -= 1
                self.granted[kind] -= 1
            # The new head may wait for something else.
            self._rearm()
            raise
        return waiter.granted_at

    def _pump(self) -> None:
        """Serves the queue, and sets a timer if only time is missing."""
        while self._waiters:
            head = self._waiters[0]
            if head.future.cancelled():
                self._waiters.popleft()
                continue
            if self.in_use + 1 > self._slots:
                return
            wait = self._until_served(head)
            if wait > 0.0:
                self._timer = self.runtime.call_later(max(wait, _SHORTEST_TIMER_S), self._rearm)
                return
            self._waiters.popleft()
            self.in_use += 1
            self.granted[head.kind] += 1
            head.granted_at = self.runtime.monotonic()
            head.future.set_result(None)

    def _until_served(self, head: _Waiter) -> float:
        now = self.runtime.monotonic()
        paused = self._paused_until - now
        bucket = self._bucket
        if paused > 0.0 or bucket is None:
            return max(paused, 0.0)
        while head.missing > 0.0:
            helping = min(head.missing, bucket.max_rate)
            wait = bucket.take(helping, now)
            if wait > 0.0:
                return wait
            head.missing -= helping
        return 0.0

    def _rearm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pump()

    def _grow(self, granted_at: float) -> None:
        if self._limits.grow(self.runtime.monotonic(), granted_at, self._paused_until):
            self._apply()

    def _apply(self) -> None:
        self._slots = self._limits.in_flight.value
        per_second = self._limits.per_second
        if per_second is None:
            self._bucket = None
            return
        rate = per_second.value
        if self._bucket is None:
            self._bucket = Bucket(rate, self._burst_at(rate), self.runtime)
        elif rate != self._bucket.rate:
            self._bucket = self._bucket.at_rate(rate, self._burst_at(rate), self.runtime)

    def _burst_at(self, rate: float) -> float:
        most = BURST_AFTER_REFUSAL_S * rate if self._limits.reduced else rate
        return max(1.0, min(self._burst, most))


def _answered(error: BaseException) -> bool:
    """Whether the error is a response of a working store."""
    return isinstance(error, StoreError) and not isinstance(error, (StoreUnavailableError, StoreOutcomeUnknownError))


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, Runtime], Pacer]] = WeakKeyDictionary()


def claim_limits(endpoint: str, *, concurrency: int, rate: float | None = None) -> Claim:
    """Claims limits of the running loop's shared pacer for an endpoint.

    The lowest rate among the held claims applies to all of them, and the next lowest after its release. So a user
    who sees a store overloaded can start a job with a lower rate in the same process. The highest concurrency
    applies, for the life of the loop, since each job bounds its own work.
    """
    pacers = _shared.setdefault(asyncio.get_running_loop(), {})
    # Another runtime is another clock: one simulation must not affect the next.
    key = (endpoint, current_runtime())
    pacer = pacers.get(key)
    if pacer is None:
        pacer = pacers[key] = Pacer(endpoint, concurrency=concurrency, rate=rate)
    return pacer.claim(concurrency, rate)


def forget_limits(loop: asyncio.AbstractEventLoop) -> None:
    """Removes the pacers of a closed loop, which a runtime that refers to the loop would keep alive."""
    _shared.pop(loop, None)


# Rounding error of a rate that is divided and added up again.
_ROUNDING = 1e-9


class RateShares:
    """Shares of a rate (None for no limit) for a changing number of workers; those in use never exceed the rate.

    With fewer workers the remaining ones get more as soon as earlier shares return.
    """

    def __init__(self, rate: float | None, workers: Callable[[], int]) -> None:
        self._rate = rate
        self._workers = workers
        self._out: list[float] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> float | None:
        """Waits until a worker is free, and returns its share for `give_back`; None without a limit."""
        while True:
            workers = max(1, self._workers())
            share = 0.0 if self._rate is None else self._rate / workers
            free = self._rate is None or self._rate - sum(self._out) >= share * (1 - _ROUNDING)
            if not self._out or (len(self._out) < workers and free):
                self._out.append(share)
                return None if self._rate is None else share
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def give_back(self, share: float | None) -> None:
        """Returns the share of a worker that ended."""
        self._out.remove(share or 0.0)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def rest(self, share: float | None) -> float | None:
        """Returns the part of the rate that no other share uses: this share and the unused rest."""
        if self._rate is None or share is None:
            return None
        return max(self._rate - sum(self._out) + share, share)
