"""Adaptive limits of an endpoint: calls in flight and calls a second.

Plain additive increase runs into the store's ceiling again as fast as it left the ground, and every collision costs a
pause. So the value at which the store last refused is remembered: the limit comes back quickly to a little below it,
and from there takes its time. Past it nothing is known any more, and growth is quick again. docs/pacing.md has the
figures these constants were chosen by.

`AsyncLimiter` reads the time of the running loop, and its rate is fixed when it is made. This subclass replaces the
one property it reads the clock through (`_loop`), so that injected time drives it, and reads and sets the two numbers
it keeps (`_level`, and as of when), so that a bucket of another rate goes on where this one stood. It never lets the
limiter queue any caller: its heap serves waiters by amount and starves large ones; the queue is the pacer's.

A `Pacer` hands out permits, one for each wire call. Callers queue first in, first out, whatever they ask for: a large
acquire waits for those before it and holds back those after it. Only the head of the queue waits for anything (the end
of a pause, a free slot, tokens in the bucket), in that order, so a call goes out the moment its tokens are taken and
the rate holds on the wire. When the store asks to slow down, the endpoint pauses, rate and concurrency are cut, and
then grow back step by step (`committer.flow.pacing`).
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypeAlias, cast
from weakref import WeakSet

from aiolimiter import AsyncLimiter

from committer.errors import StoreError, StoreOutcomeUnknownError, StoreThrottledError, StoreUnavailableError
from committer.flow.runtime import Runtime, Timer, current_runtime
from committer.logs import job_logger

DECREASE: Final = 0.7
"""What a refusal leaves of a limit that had held for a while."""

DECREASE_IN_A_STORM: Final = 0.5
"""What a refusal leaves of a limit that was cut a moment ago: the ceiling is far below, or the service is down."""

STORM_S: Final = 3.0
"""Seconds within which a further cut is part of a storm; a pause of a second or two lies between two cuts."""

GROWTH_INTERVAL_S: Final = 0.1
"""Seconds that one step of growth stands for."""

MOST_STEPS: Final = 10
"""Steps that one answer can bring, so that a rate of one a second grows as fast as any, and an idle hour brings
nothing."""

GROWTH_STEPS: Final = 100
"""Steps from nothing to the full limit."""

CAUTION: Final = 0.9
"""Where the slow approach begins, as a share of the value that was refused."""

CAUTIOUS_STEPS: Final = 100
"""Steps from there to the value that was refused."""


class AdaptiveLimit:
    """One number: calls a second, or calls in flight.

    Args:
        most: The full limit, where it begins.
        least: Where cuts end; a full limit below it is not cut at all.

    Attributes:
        most: The full limit.
    """

    __slots__ = ("_least", "_reached", "_refused", "most")

    def __init__(self, most: float, least: float) -> None:
        self.most: float = most
        # How far it came since the last cut, which `most` may hide; without bound when it was never cut, or came back.
        self._reached = math.inf
        self._least = least
        self._refused = 0.0

    @property
    def value(self) -> float:
        """The limit now."""
        return min(self._reached, self.most)

    @property
    def is_full(self) -> bool:
        """Whether nothing is left to grow."""
        return self._reached >= self.most

    def cut(self, *, in_a_storm: bool) -> None:
        """The store refused at this value."""
        value = self._refused = self.value
        kept = value * (DECREASE_IN_A_STORM if in_a_storm else DECREASE)
        self._reached = max(min(self._least, value), kept)

    def grow(self, steps: int) -> None:
        """The store answered, that many intervals after the last step."""
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        value = self.value
        careful = CAUTION * self._refused
        if careful <= value < self._refused:
            grown = value + (self._refused - careful) / CAUTIOUS_STEPS
        else:
            grown = value + self.most / GROWTH_STEPS
            if value < careful:
                grown = min(grown, careful)
        self._reached = grown if grown < self.most else math.inf

    def limit(self, most: float) -> None:
        """Changes the full limit. What a refusal cut, and has not grown back yet, stays cut below a wider one."""
        self.most = most


class _Clock:
    """As much of an event loop as a bucket asks that never waits."""

    __slots__ = ("time",)

    def __init__(self, runtime: Runtime) -> None:
        self.time = runtime.monotonic


class Bucket(AsyncLimiter):
    """Requests per second, with a burst.

    Args:
        rate: Tokens that flow in, per second.
        burst: Tokens it holds when full, at least 1; it starts full.
        runtime: Whose clock it runs on.
    """

    __slots__ = ("_clock", "rate")

    if TYPE_CHECKING:
        _last_check: float
        _level: float

    def __init__(self, rate: float, burst: float, runtime: Runtime) -> None:
        super().__init__(burst, burst / rate)
        self.rate: float = rate
        self._clock = cast("AbstractEventLoop", _Clock(runtime))

    # aiolimiter asks this for the time, and would ask it for timers if a caller waited in `acquire`.
    @property
    def _loop(self) -> AbstractEventLoop:
        return self._clock

    def take(self, amount: float, now: float) -> float:
        """Takes `amount` tokens, at most the burst, if they are there.

        Args:
            amount: How many.
            now: The time on the runtime's clock.

        Returns:
            0 when they were taken; else the seconds until they will be there, if no other caller takes any.
        """
        # What `has_capacity` does, in one call: this is asked before each store call, whose caller knows the time.
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
        """Leaves one token at most, and that in `seconds`: what a pause saves up must not come out as a burst."""
        self._leak()
        self._level = max(self._level, self.max_rate - 1.0 + seconds * self.rate)

    def at_rate(self, rate: float, burst: float, runtime: Runtime) -> Bucket:
        """A bucket of another rate that holds what this one holds, or as much of it as fits."""
        self._leak()
        successor = Bucket(rate, burst, runtime)
        successor._last_check = self._last_check
        successor._level = max(0.0, burst - (self.max_rate - self._level))
        return successor


SLOWEST_RATE = 1.0
DECREASE_INTERVAL_S = 1.0


class Limits:
    """What an endpoint allows now, and how far that is from all it was made with.

    Attributes:
        in_flight: Permits held at once.
        per_second: Tokens a second; None for no limit.
        reduced: Whether a cut has not grown back yet.
    """

    __slots__ = ("_grown_at", "_reduced_at", "in_flight", "per_second", "reduced")

    def __init__(self, concurrency: int, rate: float | None) -> None:
        self.in_flight: AdaptiveLimit = AdaptiveLimit(concurrency, 1.0)
        self.per_second: AdaptiveLimit | None = None if rate is None else AdaptiveLimit(rate, SLOWEST_RATE)
        self.reduced: bool = False
        self._reduced_at = -math.inf
        self._grown_at = -math.inf

    def cut(self, now: float, granted_at: float | None) -> bool:
        """The store refused a call; False where that is no new sign, and cuts nothing.

        All calls that were in flight when the limits were last cut are one sign, not many.

        Args:
            now: The time.
            granted_at: When the refused call got its permit; when not known, cuts are a second apart.
        """
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
        """The store answered: limits that were cut grow, by a step for each tenth of a second since they last did.

        Args:
            now: The time.
            granted_at: When the call that was answered got its permit: one from before the last cut says nothing.
            paused_until: When the last pause ended; it lets nothing grow.

        Returns:
            Whether they grew.
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
        """Other limits hold when nothing is cut. Concurrency only grows; what a cut took stays cut."""
        self.in_flight.limit(max(self.in_flight.most, concurrency))
        if rate is None:
            self.per_second = None
        elif self.per_second is None:
            self.per_second = AdaptiveLimit(rate, SLOWEST_RATE)
        else:
            self.per_second.limit(rate)
        self.reduced = not self._is_full

    @property
    def _is_full(self) -> bool:
        return self.in_flight.is_full and (self.per_second is None or self.per_second.is_full)


Kind: TypeAlias = Literal["read", "write", "delete"]


class Weights(NamedTuple):
    """Tokens that one call of each kind costs; 0 leaves a kind out of the rate, not out of the concurrency.

    One each, as services count: Azure's and S3's limits are requests a second. Hadoop's ABFS client paces renames
    alone, one token each (`AzureBlobFileSystem.commitSingleFileByRename`); ``Weights(0, 1, 0)`` comes nearest to it.

    Attributes:
        read: Status, listing, reading.
        write: Creating, writing, renaming.
        delete: Deleting; of a batch, each name.
    """

    read: float = 1.0
    write: float = 1.0
    delete: float = 1.0

    @property
    def by_kind(self) -> dict[Kind, float]:
        """The same as a table."""
        return {"read": self.read, "write": self.write, "delete": self.delete}


ONE_EACH: Final[Mapping[Kind, float]] = Weights().by_kind


_log = job_logger("committer.flow")

DEFAULT_PAUSE_S: Final = 0.2
"""How long an endpoint rests after a throttled call that did not say for how long."""

BURST_AFTER_REFUSAL_S: Final = 0.1
"""How many seconds of its rate an endpoint that refused may be sent at once, until its limits are whole again.

A process that had no processor for a while would send all that it saved up: more than a service takes at once that has
just shown its limit, so that each such moment would look like a ceiling far below.
"""

LONGEST_PAUSE_S: Final = 300.0
"""The longest pause that a store can ask for."""

# Event loops time to the millisecond; a shorter wait would make a loop spin for a fraction of one.
_SHORTEST_TIMER_S = 0.001


class Permit:
    """The right to make one wire call; an asynchronous context manager around that call, to be used once.

    Leaving it with a `StoreThrottledError` tells the pacer; leaving it with any answer of the store lets limits that
    were cut grow back.

    Attributes:
        waited_s: Seconds it was waited for; known inside the block.
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


class _Waiter:
    __slots__ = ("amount", "future", "granted_at", "kind", "missing")

    def __init__(self, kind: Kind, amount: float, future: asyncio.Future[None]) -> None:
        self.kind = kind
        self.amount = amount
        self.missing: float = amount
        self.future = future
        self.granted_at = 0.0


class Claim:
    """What one user of an endpoint asked of its limits: a job, a task attempt, an operation. Made by `Pacer.claim`.

    It counts until it is released; one that is dropped unreleased counts until it is collected.

    Attributes:
        pacer: The limits.
        concurrency: Permits held at once.
        rate: Tokens per second; None for no limit.
    """

    __slots__ = ("__weakref__", "concurrency", "pacer", "rate")

    def __init__(self, pacer: Pacer, concurrency: int, rate: float | None) -> None:
        self.pacer: Pacer = pacer
        self.concurrency: int = concurrency
        self.rate: float | None = rate

    def __reduce__(self) -> tuple[object, ...]:
        return Pacer.claim, (self.pacer, self.concurrency, self.rate)

    def release(self) -> None:
        """Ends the claim: the other claims alone make the endpoint's limits. Does nothing the second time."""
        self.pacer._released(self)


class Pacer:
    """The limits of one endpoint. Used by one event loop; `committer.flow.endpoints` has the shared one.

    In any stretch of `t` seconds at most ``rate * t + min(burst, rate)`` tokens are given out (at least one at a time),
    those of a permit that costs more than the burst while it waits; and never more than `concurrency` permits are held
    at once. While limits are cut the burst is `BURST_AFTER_REFUSAL_S` of the rate at most.

    The limits are those it is made with until the first `claim`. From then on the lowest rate of the claims that are
    held is its rate. Concurrency only grows, to the greatest that was claimed: each job bounds its own work.

    Attributes:
        endpoint: What the limits are of.
        runtime: Whose clock it runs on.
        granted: Permits given out so far, by kind.
        throttles: Times the store asked to slow down.
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
        _check(concurrency, rate, burst)
        self.endpoint = endpoint
        self.runtime: Runtime = runtime or current_runtime()
        self.granted: dict[Kind, int] = {"read": 0, "write": 0, "delete": 0}
        self.throttles: int = 0
        self._burst = burst
        self._limits = Limits(concurrency, rate)
        # A copy of the value of one of them, which every call asks for.
        self._slots: float = concurrency
        self._bucket = self._make_bucket(rate) if rate is not None else None
        self._claims: WeakSet[Claim] = WeakSet()
        self._in_use = 0
        self._waiters: deque[_Waiter] = deque()
        self._timer: Timer | None = None
        self._paused_until = -math.inf

    def __reduce__(self) -> tuple[object, ...]:
        # What goes to another process with a store is the limits, not who waits for them here.
        limits = self._limits
        rate = None if limits.per_second is None else limits.per_second.most
        return _unpickled, (self.endpoint, int(limits.in_flight.most), rate, self._burst)

    @property
    def concurrency(self) -> int:
        """Permits that may be held at once, now."""
        return int(self._slots)

    @property
    def rate(self) -> float | None:
        """Tokens per second, now; None when unlimited."""
        return None if self._bucket is None else self._bucket.rate

    @property
    def in_use(self) -> int:
        """Permits held now."""
        return self._in_use

    @property
    def waiting(self) -> int:
        """Callers that queue for a permit now."""
        return len(self._waiters)

    def permit(self, kind: Kind = "read", amount: float = 1) -> Permit:
        """A permit for one wire call.

        Args:
            kind: What the call does; only counted.
            amount: Tokens it costs; more than the burst is taken in several helpings while all others wait.

        Raises:
            ValueError: `amount` is negative.
        """
        if amount < 0:
            raise ValueError(f"amount must not be negative: {amount}")
        return Permit(self, kind, amount)

    def take(self, kind: Kind, now: float, costs: Mapping[Kind, float] = ONE_EACH) -> bool:
        """Takes a permit if it is free this moment; who gets it calls `give_back`.

        Args:
            kind: What the call does; only counted.
            now: The time on the runtime's clock; `give_back` wants it again.
            costs: Tokens it costs, by kind: a table, which an endpoint without a rate need not look into.
        """
        if self._waiters or self._in_use + 1 > self._slots or now < self._paused_until:
            return False
        if self._bucket is not None and self._bucket.take(costs[kind], now):
            return False
        self._in_use += 1
        self.granted[kind] += 1
        return True

    def give_back(self, granted_at: float, error: BaseException | None) -> None:
        """Ends a permit, with what the call made of it; see `Permit`."""
        self._in_use -= 1
        if error is not None and isinstance(error, StoreThrottledError) and not error.one_name:
            self.throttled(error.retry_after_s, granted_at=granted_at)
        elif self._limits.reduced and (error is None or _answered(error)):
            self._succeeded(granted_at)
        if self._waiters and self._timer is None:
            self._pump()

    def throttled(self, retry_after_s: float | None = None, *, granted_at: float | None = None) -> None:
        """Notes that the store asked to slow down: cuts rate and concurrency, and pauses the endpoint.

        All calls that were in flight when the limits were last cut are one sign, not many: they cut nothing again.

        Args:
            retry_after_s: What the store asked for; `DEFAULT_PAUSE_S` when it did not say.
            granted_at: When the refused call got its permit; when not known, cuts are a second apart.
        """
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
        """Gives out no permit for the next `seconds`, at most `LONGEST_PAUSE_S`; never shortens a pause.

        Where a rate holds, calls come one by one afterwards: a pause saves up no burst.
        """
        now = self.runtime.monotonic()
        self._paused_until = max(self._paused_until, now + min(seconds, LONGEST_PAUSE_S))
        if self._bucket is not None:
            self._bucket.drain(self._paused_until - now)
        self._rearm()

    def claim(self, concurrency: int, rate: float | None = None) -> Claim:
        """Asks for limits, which hold together with those that others ask for until `Claim.release`.

        Raises:
            ValueError: `concurrency` is below 1, or `rate` is neither positive nor None.
        """
        _check(concurrency, rate, self._burst)
        made = Claim(self, concurrency, rate)
        self._claims.add(made)
        self._follow_claims()
        return made

    def _released(self, claim: Claim) -> None:
        self._claims.discard(claim)
        self._follow_claims()

    def _follow_claims(self) -> None:
        claims = tuple(self._claims)
        # With none left the limits stay: what was learnt of the store counts for the next. Held before it is asked for,
        # since the garbage collector may take the last of those that were not released at any moment.
        if not claims:
            return
        rate = min((claim.rate for claim in claims if claim.rate is not None), default=None)
        self._limits.change(max(claim.concurrency for claim in claims), rate)
        self._apply()
        self._rearm()

    async def _acquire(self, kind: Kind, amount: float, now: float) -> float:
        """Waits for a permit and returns when it was given."""
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
                # Granted in the same moment: the slot goes back, the tokens are spent.
                self._in_use -= 1
                self.granted[kind] -= 1
            # The caller that is the head now may wait for something else than the one that left.
            self._rearm()
            raise
        return waiter.granted_at

    def _pump(self) -> None:
        """Serves the queue as far as it goes, and sets a timer when only time is missing."""
        while self._waiters:
            head = self._waiters[0]
            if head.future.cancelled():
                self._waiters.popleft()
                continue
            if self._in_use + 1 > self._slots:
                return
            wait = self._until_served(head)
            if wait > 0.0:
                self._timer = self.runtime.call_later(max(wait, _SHORTEST_TIMER_S), self._rearm)
                return
            self._waiters.popleft()
            self._in_use += 1
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

    def _succeeded(self, granted_at: float) -> None:
        if self._limits.grow(self.runtime.monotonic(), granted_at, self._paused_until):
            self._apply()

    def _apply(self) -> None:
        """Makes the limits hold as they are now."""
        self._slots = self._limits.in_flight.value
        per_second = self._limits.per_second
        if per_second is None:
            self._bucket = None
            return
        rate = per_second.value
        if self._bucket is None:
            self._bucket = self._make_bucket(rate)
        elif rate != self._bucket.rate:
            self._bucket = self._at_rate(self._bucket, rate)

    def _make_bucket(self, rate: float) -> Bucket:
        return Bucket(rate, self._burst_at(rate), self.runtime)

    def _at_rate(self, bucket: Bucket, rate: float) -> Bucket:
        return bucket.at_rate(rate, self._burst_at(rate), self.runtime)

    def _burst_at(self, rate: float) -> float:
        most = BURST_AFTER_REFUSAL_S * rate if self._limits.reduced else rate
        return max(1.0, min(self._burst, most))


def _unpickled(endpoint: str, concurrency: int, rate: float | None, burst: int) -> Pacer:
    return Pacer(endpoint, concurrency=concurrency, rate=rate, burst=burst)


def _answered(error: BaseException) -> bool:
    """Whether the store was well enough to answer, though not as hoped."""
    return isinstance(error, StoreError) and not isinstance(error, (StoreUnavailableError, StoreOutcomeUnknownError))


def _check(concurrency: int, rate: float | None, burst: int) -> None:
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    if rate is not None and not 0 < rate < math.inf:
        raise ValueError(f"rate must be a positive number of calls per second, or None, not {rate}")
    if burst < 1:
        raise ValueError(f"burst must be at least 1, not {burst}")
