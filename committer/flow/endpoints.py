"""The pacer of each endpoint, which everything in a loop shares."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from committer.flow.pacing import Claim, Pacer
from committer.flow.runtime import Runtime, current_runtime

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, Runtime], Pacer]] = WeakKeyDictionary()


def claim_limits(endpoint: str, *, concurrency: int, rate: float | None = None) -> Claim:
    """Asks for limits of the pacer that everything in the running loop shares for an endpoint, and names it.

    The lowest rate that a claim which is held asks for holds for all of them; when that claim is released, the next. So
    a user who finds a store overloaded can start a job with a lower rate in a living process, and a process that must
    stay below some rate is below it as long as one of its jobs says so. Of concurrencies the greatest holds, for as
    long as the loop: each job bounds its own work.

    Raises:
        ValueError: `concurrency` is below 1, or `rate` is neither positive nor None.
        RuntimeError: No event loop is running.
    """
    pacers = _shared.setdefault(asyncio.get_running_loop(), {})
    # Another runtime is another clock: what one simulation learnt must not leak into the next.
    key = (endpoint, current_runtime())
    pacer = pacers.get(key)
    if pacer is None:
        pacer = pacers[key] = Pacer(endpoint, concurrency=concurrency, rate=rate)
    return pacer.claim(concurrency, rate)


def forget_limits(loop: asyncio.AbstractEventLoop) -> None:
    """Lets go of the pacers of a loop that is closed: one whose runtime refers to the loop would keep it for ever."""
    _shared.pop(loop, None)
