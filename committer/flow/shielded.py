"""Cleanup that no cancellation interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

UNDO_BOUND_S: Final = 60.0
"""Seconds that the undo of failed or cancelled work may take.

A call with retries takes seconds if a store fails, and at most two minutes if it throttles (`RetryPolicy`). A minute
suffices for nearly all, and lets a process that was told to stop do so. ``list_jobs`` finds the rest, and
``cleanup`` removes it.
"""


async def run_shielded(work: Callable[[], Coroutine[Any, Any, object]], *, bound_s: float) -> bool:
    """Runs cleanup to its end or to `bound_s` seconds, then cancels it; returns whether it ended in time.

    anyio's shield only blocks cancellations of its own scopes. ``asyncio.timeout``, a task group or the end of the
    loop cancel the task itself, even while an earlier cancellation is handled. Raises CancelledError after the work
    if the caller was cancelled meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + bound_s
    task = asyncio.create_task(work())
    cancelled: asyncio.CancelledError | None = None
    in_time = True
    with anyio.CancelScope(shield=True):
        while not task.done():
            # At least one turn of the loop, so that the work begins even after the deadline.
            remaining = max(0.0, deadline - loop.time()) if in_time else None
            try:
                await asyncio.wait({task}, timeout=remaining)
            except asyncio.CancelledError as error:
                cancelled = error
                continue
            if in_time and not task.done() and loop.time() >= deadline:
                in_time = False
                task.cancel()
    if cancelled is not None:
        if not task.cancelled():
            # Retrieved, so that the loop does not log it.
            task.exception()
        raise cancelled
    if in_time:
        task.result()
    return in_time
